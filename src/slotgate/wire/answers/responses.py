"""OpenAI's responses: the last event holds the whole answer, with its keys in another order."""

from __future__ import annotations

from typing import Any

import msgspec

Raw = msgspec.Raw
_ORDER = ("completed_at", "created_at", "id", "model", "object", "output", "status", "usage")
_ITEM_ORDER = {
    "reasoning": ("id", "summary", "type", "content", "encrypted_content", "status"),
    "message": ("content", "id", "role", "status", "type"),
}
_ENDS = frozenset({b"response.completed", b"response.incomplete", b"response.failed"})


class _Last(msgspec.Struct):
    response: dict[str, Raw]
    type: str = ""


def _may_end(data: bytes) -> bool:
    """Tell whether data without an event's name, as transformers sends it, may be the last."""
    return any(b'"%s"' % end in data for end in _ENDS)


def _in_order(fields: dict[str, Any], order: tuple[str, ...]) -> dict[str, Any]:
    return {name: fields[name] for name in order if name in fields} | fields


class ResponsesAnswer:
    """`/v1/responses`."""

    def __init__(self) -> None:
        self._response: dict[str, Raw] = {}
        self._output: list[dict[str, Any]] = []

    def take(self, event: bytes | None, data: bytes) -> None:
        """Take one event.  Raises msgspec.DecodeError when the last one has no response."""
        if event in _ENDS or (event is None and _may_end(data)):
            last = msgspec.json.decode(data, type=_Last)
            if event is None and last.type.encode() not in _ENDS:
                return
            self._response = last.response
            output = self._response.get("output")
            self._output = msgspec.json.decode(output, type=list[dict[str, Any]]) if output else []

    def body(self) -> bytes:
        response: dict[str, Any] = dict(self._response)
        if "created_at" in response:
            response.setdefault("completed_at", response["created_at"])
        response["output"] = [_item(item) for item in self._output]
        return msgspec.json.encode(_in_order(response, _ORDER))


def _item(item: dict[str, Any]) -> dict[str, Any]:
    if item.get("type") == "reasoning":
        # Only the answer says that the reasoning is over.
        item = {"status": "completed"} | item
    return _in_order(item, _ITEM_ORDER.get(str(item.get("type")), ()))
