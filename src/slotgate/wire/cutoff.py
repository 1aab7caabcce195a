"""Ending a stream that is stopped amid its answer as if its length had come to a limit.

Every client knows an answer that ends so, and keeps what it has got.  The end is made in the
likeness of the last frame that was sent.  Where it cannot be made (several sequences, whose frames
come mixed, and responses, whose end repeats the whole answer) the stream ends with an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from slotgate.wire.routes import Shape
from slotgate.wire.sse import frame_data
from slotgate.wire.usage import as_mapping

if TYPE_CHECKING:
    from collections.abc import Callable

_END = b"\n\n"
_DONE = b"data: [DONE]\n\n"
# What only a chunk of its own has, not the next one.
_OWN = ("timings", "usage", "prompt_progress", "__verbose")


def cut_off(shape: Shape, sent: bytes, *, width: int, output_tokens: int) -> bytes | None:
    """Return the frames that end the stream after `sent`, the last bytes of it; None: none can."""
    make = _ENDS.get(shape)
    if make is None or width != 1 or not sent.endswith(_END):
        return None
    last = sent[:-2].rpartition(_END)[2] + _END
    try:
        fields = as_mapping(msgspec.json.decode(frame_data(last) or b""))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return make(fields, output_tokens)


def _data(value: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(value) + _END


def _event(value: dict[str, Any]) -> bytes:
    return b"event: %s\n" % str(value["type"]).encode() + _data(value)


def _chunk(fields: dict[str, Any], choice: dict[str, Any]) -> bytes | None:
    if not fields.get("choices"):
        return None
    end = {name: value for name, value in fields.items() if name not in _OWN}
    end["choices"] = [{"finish_reason": "length", "index": 0, **choice}]
    return _data(end) + _DONE


def _end_chat(fields: dict[str, Any], _output_tokens: int) -> bytes | None:
    return _chunk(fields, {"delta": {}})


def _end_completion(fields: dict[str, Any], _output_tokens: int) -> bytes | None:
    return _chunk(fields, {"text": "", "logprobs": None})


def _end_native(fields: dict[str, Any], output_tokens: int) -> bytes | None:
    if fields.get("stop") is not False:
        return None
    end: dict[str, Any] = {**fields, "content": "", "tokens": [], "stop": True}
    end |= {"tokens_predicted": output_tokens, "stop_type": "limit", "stopping_word": ""}
    return _data({name: value for name, value in end.items() if name not in _OWN})


def _end_messages(fields: dict[str, Any], output_tokens: int) -> bytes | None:
    index = fields.get("index")
    if fields.get("type") != "content_block_delta" or not isinstance(index, int):
        return None
    # llama-server leaves every block open until the end.
    stops = [_event({"type": "content_block_stop", "index": i}) for i in range(index + 1)]
    reason = {"stop_reason": "max_tokens", "stop_sequence": None}
    usage = {"output_tokens": output_tokens}
    delta = _event({"type": "message_delta", "delta": reason, "usage": usage})
    return b"".join([*stops, delta, _event({"type": "message_stop"})])


_ENDS: dict[Shape, Callable[[dict[str, Any], int], bytes | None]] = {
    Shape.CHAT: _end_chat,
    Shape.OPENAI_COMPLETION: _end_completion,
    Shape.COMPLETION: _end_native,
    Shape.MESSAGES: _end_messages,
}
