"""What the frames of a stream tell, by shape: how it ends, what failed, what was used.

What ends a stream well differs: `data: [DONE]` on OpenAI's routes; of other makes than llama-server
a `finish_reason` for each choice that began, as not all of them say that they are done
(transformers does not, and has one choice whatever `n` says); a frame with `"stop":true` for each
sequence on llama.cpp's own, `response.completed`, `message_stop`.  A router ends the stream of a
backend that died cleanly too, so an end without its terminator is a broken answer.

An error inside a stream is a frame with an `error` object; on `/v1/messages` an event named so;
before September 2025 a line `error: {...}`; and from a router the bare line `proxy error: ...`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from slotgate.wire.progress import ROLE_ONLY
from slotgate.wire.routes import Shape
from slotgate.wire.sse import DATA_AT
from slotgate.wire.usage import (
    Usage,
    as_count,
    as_mapping,
    usage_of_messages,
    usage_of_native,
    usage_of_openai,
    usage_of_timings,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from slotgate.wire.request import Prepared

_DONE = b"[DONE]"
_PROXY_ERROR = b"proxy error:"
_OLD_ERROR = b"error:"


def _decode(data: bytes) -> dict[str, Any]:
    try:
        return as_mapping(msgspec.json.decode(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


def stray_error(line: bytes) -> dict[str, Any] | None:
    """Return the error in bytes that are no data of any event, if there is one."""
    if line.startswith(_PROXY_ERROR):
        message = line.strip().decode(errors="replace")
        return {"code": 500, "message": message, "type": "server_error"}
    if line.startswith(_OLD_ERROR):
        fields = _decode(line.removeprefix(_OLD_ERROR).partition(b"\n")[0])
        return as_mapping(fields.get("error")) or fields or None
    return None


def error_of(event: bytes | None, fields: dict[str, Any]) -> dict[str, Any] | None:
    """Return the error that a decoded frame carries, if it is one."""
    error = fields.get("error")
    if isinstance(error, dict):
        return error
    if event == b"error":
        return fields
    return None


def has_any(data: bytes, marks: tuple[bytes, ...]) -> bool:
    # A loop, because this runs for every token and `any` takes twice as long.
    for mark in marks:  # noqa: SIM110
        if mark in data:
            return True
    return False


class Facts:
    """Learns from the frames of one stream, as its shape's `_Kind` in the table below knows how.

    `usage` sums what the backend counted for the sequences that have ended, where a prompt that
    several of them share counts once; `is_usage_final` says that no more will come.
    """

    def __init__(self, shape: Shape, prepared: Prepared) -> None:
        self._kind = _KINDS.get(shape, _OPENAI)
        self._finals_expected = self._choices = prepared.width
        self._sequences_per_prompt = max(1, prepared.completions)
        # With `response_fields` llama.cpp's final object has no `stop`; the others have it still.
        is_thinned = shape is Shape.COMPLETION and bool(prepared.response_fields)
        self.marks = (b"{",) if is_thinned else self._kind.marks
        self.token_mark = self._kind.token_mark
        self.tokenless = self._kind.tokenless
        self.plain = self._kind.plain
        self.has_terminator = False
        self.error: dict[str, Any] | None = None
        # Whether an event said so: what a bare line says, no client of events sees.
        self.is_error_told = False
        self.is_usage_final = False
        self._sum = Usage()
        self._has_usage = False
        # Of OpenAI's routes: which of the choices began with their role, and which have ended.
        self._is_done = False
        self._has_end_mark = prepared.has_end_mark
        self._begun: set[int] = set()
        self._ended: set[int] = set()
        # Summed from `timings`, for a client that did not ask for the usage frame.
        self._timed = Usage()

    def note(self, event: bytes | None, data: bytes) -> bool:
        """Take a frame that has a mark; tell whether it may be a token's."""
        if data == _DONE:
            if self._kind is _OPENAI:
                self._note_done()
            return False
        fields = _decode(data)
        error = error_of(event, fields)
        if error is not None:
            self.error, self.is_error_told = error, True
            return False
        self._kind.learn(self, fields)
        return not has_any(data, self.tokenless)

    def note_stray(self, line: bytes) -> bool:
        """Take bytes that are not an event's data; tell whether they are an error."""
        error = stray_error(line.lstrip())
        self.error = error or self.error
        return error is not None

    @property
    def usage(self) -> Usage:
        shares = self._sequences_per_prompt
        if shares == 1:
            return self._sum
        return replace(
            self._sum,
            input_tokens=self._sum.input_tokens // shares,
            cached_tokens=self._sum.cached_tokens // shares,
            prompt_ms=self._sum.prompt_ms / shares,
        )

    def _note_done(self) -> None:
        self.has_terminator = self._is_done = True
        if not self._has_usage:
            self._sum = self._timed
        self.is_usage_final = self._has_usage or self._timed.output_tokens > 0

    def learn_openai(self, fields: dict[str, Any]) -> None:
        timings = fields.get("timings")
        if fields.get("usage"):
            self._sum += usage_of_openai(fields["usage"], timings)
            self._has_usage = True
            self._finals_expected -= 1
            self.is_usage_final = self._finals_expected <= 0
        elif timings and _choices(fields, _has_ended):
            self._timed += usage_of_timings(timings)
        self._begun |= _choices(fields, _names_role)
        self._ended |= _choices(fields, _has_ended)
        if not self._has_end_mark:
            are_known = len(self._ended) >= self._choices or bool(self._begun)
            has_ended = bool(self._ended) and self._ended >= self._begun
            self.has_terminator = self._is_done or (are_known and has_ended)

    def learn_native(self, fields: dict[str, Any]) -> None:
        if not fields or fields.get("stop") is False:
            return
        self._finals_expected -= 1
        self._sum += usage_of_native(fields)
        self.has_terminator = self.is_usage_final = self._finals_expected <= 0

    def learn_responses(self, fields: dict[str, Any]) -> None:
        if fields.get("type") not in _RESPONSE_ENDS:
            return
        self._finals_expected -= 1
        usage = as_mapping(fields.get("response")).get("usage")
        self._sum += usage_of_openai(usage, fields.get("timings"))
        self.has_terminator = self._finals_expected <= 0
        self.is_usage_final = self.has_terminator and bool(usage)

    def learn_messages(self, fields: dict[str, Any]) -> None:
        match fields.get("type"):
            case "message_start":
                self._sum = usage_of_messages(as_mapping(fields.get("message")).get("usage"))
            case "message_delta":
                output = usage_of_messages(fields.get("usage")).output_tokens
                self._sum = replace(self._sum, output_tokens=output)
                self.is_usage_final = True
            case "message_stop":
                self.has_terminator = True
            case _:
                pass


def _choices(chunk: dict[str, Any], is_such: Callable[[dict[str, Any]], bool]) -> set[int]:
    """Return the choices in the chunk that are such."""
    choices = chunk.get("choices")
    found = map(as_mapping, choices if isinstance(choices, list) else [])
    return {as_count(choice.get("index")) for choice in found if is_such(choice)}


def _has_ended(choice: dict[str, Any]) -> bool:
    return choice.get("finish_reason") is not None


def _names_role(choice: dict[str, Any]) -> bool:
    return "role" in as_mapping(choice.get("delta"))


@dataclass(frozen=True, slots=True)
class PlainToken:
    """How the frame of one more token looks, byte by byte where it never varies.

    Nearly all frames of a stream are such; to know them costs a tenth of looking for marks.
    """

    beginnings: tuple[bytes, ...] = ()
    end: bytes = b""
    lines: int = 2
    event: bytes | None = None
    data_at: int = DATA_AT

    def fits(self, frame: bytes) -> bool:
        # Text cannot hold a line end of its own, so the lines tell that this is one frame.
        return (
            frame.startswith(self.beginnings)
            and frame.endswith(self.end)
            and frame.count(b"\n") == self.lines
        )


@dataclass(frozen=True, slots=True)
class _Kind:
    """How the streams of one shape are watched.

    `marks` are the bytes that say a frame must be decoded; `token_mark` what each token brings,
    and `tokenless` are marks of frames that look like a token's and are none.
    """

    marks: tuple[bytes, ...]
    token_mark: bytes
    learn: Callable[[Facts, dict[str, Any]], None]
    plain: PlainToken = PlainToken()
    tokenless: tuple[bytes, ...] = ()


def _plain_event(event: bytes, end: bytes) -> PlainToken:
    beginning = b'event: %s\ndata: {"type":"%s",' % (event, event)
    return PlainToken((beginning,), end, 3, event, beginning.index(b"{"))


_RESPONSE_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})
# The end of a choice, as it is written with and without spaces.
_ENDS = (b'"finish_reason":"', b'"finish_reason": "')
# How other makes name the role, in a frame before the first token.
_OTHER_ROLES = (
    b'"delta":{"role":"assistant"}',
    b'"delta": {"role": "assistant"}',
    b'"delta":{"role":"assistant","content":""',
)
_CHAT_BEGINNING = b'data: {"choices":[{"finish_reason":null,"index":0,"delta":{"'
_OPENAI = _Kind(
    (b'"timings":', b'"usage":', _DONE, *_ENDS),
    b"}\n\n",
    Facts.learn_openai,
    PlainToken(
        tuple(_CHAT_BEGINNING + name for name in (b"content", b"reasoning_content", b"tool_calls")),
        b'"object":"chat.completion.chunk"}\n\n',
    ),
    (ROLE_ONLY, *_OTHER_ROLES),
)
_KINDS = {
    Shape.COMPLETION: _Kind((b'"stop":true',), b"}\n\n", Facts.learn_native),
    Shape.RESPONSES: _Kind(
        tuple(b'"%s"' % name.encode() for name in sorted(_RESPONSE_ENDS)),
        b'.delta"',
        Facts.learn_responses,
        _plain_event(b"response.output_text.delta", b'"}\n\n'),
    ),
    Shape.MESSAGES: _Kind(
        (b"message_start", b"message_delta", b"message_stop"),
        b"content_block_delta\ndata:",
        Facts.learn_messages,
        _plain_event(b"content_block_delta", b"}}\n\n"),
    ),
}
