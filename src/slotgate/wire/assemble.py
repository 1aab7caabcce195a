"""One answer out of a stream, for a client that asked for none.

A generation goes upstream as a stream (DESIGN.md A3); the answer is put together here, equal to
what llama-server itself would have answered to the same request: same keys in the same order, same
values.  Only ids, times of day and milliseconds are another run's.

What llama-server's stream loses for good, so that the answer may differ from its own:

- text held back when a limit strikes: what may be the beginning of a stop word, or a part of a
  character (which its own answer shows as U+FFFD; `/completion` counts its tokens, so there it is
  known and shown here too);
- a chat message that was nothing but markup to its parser when a limit struck: its own answer then
  shows the raw text;
- on `/v1/messages`, the model's name and the input's count when the first token is only a part of
  a character: there is no `message_start` then.

What the stream loses and a request can bring back, or must go whole for, is in `wire.request`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from slotgate.errors import BrokenAnswerError
from slotgate.wire.answers.messages import MessagesAnswer
from slotgate.wire.answers.native import NativeAnswer
from slotgate.wire.answers.openai import ChatAnswer, CompletionAnswer
from slotgate.wire.answers.responses import ResponsesAnswer
from slotgate.wire.facts import Facts, has_any
from slotgate.wire.progress import PROGRESS
from slotgate.wire.routes import Shape
from slotgate.wire.sse import (
    DATA_AT,
    FrameSplitter,
    frame_data,
    frame_event,
    is_comment,
    is_data_line,
)
from slotgate.wire.usage import Usage, as_mapping, usage_of_answer

if TYPE_CHECKING:
    from slotgate.wire.request import Prepared

_MARKS = (b"error", b"\r")
# `null` is what older builds send for each prompt of a list that begins.
_NO_FRAME = frozenset({b"", b"null", b"[DONE]"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembled:
    """The whole answer.  `usage` is None when the backend counted nothing."""

    status: int
    body: bytes
    usage: Usage | None = None


class _Answer(Protocol):
    """An answer of one shape, in the making."""

    def take(self, event: bytes | None, data: bytes) -> None: ...

    def body(self) -> bytes: ...


class Assembler:
    """Takes a stream as it comes, cut anywhere, and gives one answer.

    A body that is no stream at all (a backend may know none on this route) is the answer as it is.
    `token_frames` is how many tokens have come, as `StreamRelay` counts them.
    """

    def __init__(self, answer: _Answer, facts: Facts) -> None:
        self._answer = answer
        self._facts = facts
        self._marks = (*facts.marks, *facts.tokenless, *_MARKS)
        self._token_mark = facts.token_mark
        self._tokenless = (PROGRESS, *facts.tokenless)
        self.token_frames = 0
        self._splitter = FrameSplitter()
        # What came before it was clear whether this is a stream, or all of it when it is none.
        self._undecided = b""
        self._plain: list[bytes] | None = None
        self._is_stream = False

    def feed(self, data: bytes) -> None:
        """Take the next bytes.  Raises BrokenAnswerError when they make no sense."""
        if self._plain is not None:
            self._plain.append(data)
            return
        if not self._is_stream:
            data = self._undecided + data
            self._decide(data)
        if self._is_stream:
            for frame in self._splitter.feed(data):
                self._take(frame)

    def finish(self) -> Assembled:
        """Take the end of the stream.  Raises BrokenAnswerError when the answer is not whole."""
        if self._plain is not None:
            return _plain_answer(b"".join(self._plain))
        rest = self._splitter.pending
        if rest:
            self._take(rest)
        error = self._facts.error
        if error is not None:
            return Assembled(status=_status_of(error), body=msgspec.json.encode({"error": error}))
        if not self._facts.has_terminator:
            raise BrokenAnswerError("the backend's stream ended before the answer did")
        usage = self._facts.usage if self._facts.is_usage_final else None
        return Assembled(status=200, body=self._answer.body(), usage=usage)

    def _decide(self, data: bytes) -> None:
        first = data.lstrip()[:1]
        if first in {b"{", b"["}:
            self._plain = [data]
        elif first:
            self._is_stream = True
        else:
            self._undecided = data

    def _take(self, frame: bytes) -> None:
        if self._facts.error is not None:
            return
        plain = self._facts.plain
        if plain.fits(frame):
            self.token_frames += 1
            self._pass_on(plain.event, frame[plain.data_at : -2])
            return
        if not has_any(frame, self._tokenless):
            self.token_frames += frame.count(self._token_mark)
        if is_data_line(frame):
            self._take_event(None, frame[DATA_AT:-2], is_marked=has_any(frame, self._marks))
        elif not is_comment(frame):
            self._take_lines(frame.replace(b"\r\n", b"\n"))

    def _take_lines(self, frame: bytes) -> None:
        event, data = frame_event(frame), frame_data(frame)
        if data is None:
            self._facts.note_stray(frame)
        else:
            self._take_event(event, data, is_marked=has_any(frame, self._marks))

    def _take_event(self, event: bytes | None, data: bytes, *, is_marked: bool) -> None:
        if is_marked:
            self._facts.note(event, data)
        if self._facts.error is None and data not in _NO_FRAME:
            self._pass_on(event, data)

    def _pass_on(self, event: bytes | None, data: bytes) -> None:
        try:
            self._answer.take(event, data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BrokenAnswerError(f"the backend sent an event that is none: {error}") from error


def assembler(shape: Shape, prepared: Prepared) -> Assembler:
    """Return a new assembler for the answer to one request."""
    return Assembler(_answer_of(shape, prepared), Facts(shape, prepared))


def _answer_of(shape: Shape, prepared: Prepared) -> _Answer:
    if shape is Shape.COMPLETION:
        return NativeAnswer(prepared.response_fields)
    if shape is Shape.MESSAGES:
        return MessagesAnswer(prepared.model or "")
    if shape is Shape.RESPONSES:
        return ResponsesAnswer()
    return CompletionAnswer() if shape is Shape.OPENAI_COMPLETION else ChatAnswer()


def _status_of(error: dict[str, Any]) -> int:
    code = error.get("code")
    return code if isinstance(code, int) and 400 <= code <= 599 else 500


def _plain_answer(body: bytes) -> Assembled:
    try:
        answer = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BrokenAnswerError(f"the backend's answer is not JSON: {error}") from error
    failed = as_mapping(as_mapping(answer).get("error"))
    return Assembled(
        status=_status_of(failed) if failed else 200, body=body, usage=usage_of_answer(answer)
    )
