"""Anthropic's messages out of their events.

Blocks are found again by their kind rather than their index: llama-server begins a block anew in
its last event, and counts the blocks before it differently from event to event.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from slotgate.wire.usage import as_mapping

_KINDS = ("thinking", "text", "tool_use")
# Kind of a delta -> kind of its block, the field of the delta.
_DELTAS = {
    "thinking_delta": ("thinking", "thinking"),
    "text_delta": ("text", "text"),
    "input_json_delta": ("tool_use", "partial_json"),
}


_Object = dict[str, Any]


class _Event(msgspec.Struct):
    type: str = ""
    index: int = 0
    message: _Object | None = None
    content_block: _Object | None = None
    delta: _Object | None = None
    usage: _Object | None = None


_EVENT = msgspec.json.Decoder(_Event)


class MessagesAnswer:
    """`/v1/messages`.

    llama-server sends no `message_start` when the first token is only a part of a character.
    Then the message has no id and no model of its own, and its input was not counted.
    """

    def __init__(self, model: str) -> None:
        self._model = model
        self._start: dict[str, Any] | None = None
        self._end: dict[str, Any] = {}
        self._usage: dict[str, Any] = {}
        # Kind, and for tools the id -> the block as it began, and its pieces; in arrival order.
        self._blocks: dict[tuple[str, str], tuple[dict[str, Any], list[str]]] = {}
        # Index -> the tool that was begun there last.
        self._tools: dict[int, tuple[str, str]] = {}
        self._digest = hashlib.blake2b(digest_size=16)

    def take(self, event: bytes | None, data: bytes) -> None:
        """Take one event.  Raises msgspec.DecodeError when it is none of Anthropic's."""
        told = _EVENT.decode(data)
        self._digest.update(data)
        match told.type:
            case "message_start":
                self._start = told.message
            case "content_block_start":
                self._begin(told.index, told.content_block or {})
            case "content_block_delta":
                self._extend(told.index, told.delta or {})
            case "message_delta":
                self._end |= told.delta or {}
                self._usage |= told.usage or {}
            case _:
                pass

    def body(self) -> bytes:
        message = self._start or self._unstarted()
        blocks = [
            _block(kind, start, "".join(pieces))
            for (kind, _), (start, pieces) in sorted(
                self._blocks.items(), key=lambda item: _KINDS.index(item[0][0])
            )
        ]
        usage = as_mapping(message.get("usage")) | self._usage
        return msgspec.json.encode(message | {"content": blocks} | self._end | {"usage": usage})

    def _begin(self, index: int, block: dict[str, Any]) -> None:
        kind = block.get("type")
        if kind not in _KINDS:
            return
        key = (kind, str(block.get("id", index)) if kind == "tool_use" else "")
        if key in self._blocks:
            self._blocks[key][0].update(block)
        else:
            self._blocks[key] = (block, [])
        if kind == "tool_use":
            self._tools[index] = key

    def _extend(self, index: int, delta: dict[str, Any]) -> None:
        if delta.get("type") not in _DELTAS:
            return
        kind, name = _DELTAS[delta["type"]]
        key = self._tools.get(index, (kind, "")) if kind == "tool_use" else (kind, "")
        if key not in self._blocks:
            self._begin(index, {"type": kind})
            key = self._tools[index] if kind == "tool_use" else key
        self._blocks[key][1].append(str(delta.get(name) or ""))

    def _unstarted(self) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{self._digest.hexdigest()}",
            "type": "message",
            "role": "assistant",
            "content": [],
            "model": self._model,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"cache_read_input_tokens": 0, "input_tokens": 0},
        }


def _block(kind: str, start: dict[str, Any], text: str) -> dict[str, Any]:
    if kind == "thinking":
        # Local models sign nothing.
        return {"type": "thinking", "thinking": text, "signature": ""}
    if kind == "text":
        return {"type": "text", "text": text}
    return {
        "type": "tool_use",
        "id": start.get("id", ""),
        "name": start.get("name", ""),
        "input": _input(text),
    }


def _input(arguments: str) -> Any:
    """Return the arguments as JSON; cut short by a limit they are none, as in llama-server."""
    try:
        return msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return {}
