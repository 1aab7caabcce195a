"""Reads a streamed chat completion as a client does: when tokens came, how many, how it ended."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from slotgate.wire.sse import FrameSplitter

if TYPE_CHECKING:
    from collections.abc import Iterable

_DATA: Final = b"data:"
_DONE: Final = b"[DONE]"
_MAX_FRAME_BYTES: Final = 1 << 20
# Where an answer's text is: in one of these fields of a choice's delta.
_TEXTS: Final = ("content", "reasoning_content", "reasoning", "tool_calls", "refusal")


class Listener:
    """What has come of one answer.  One event is one token unless the server counts itself."""

    def __init__(self) -> None:
        self._frames = FrameSplitter(max_frame_bytes=_MAX_FRAME_BYTES)
        self._events = 0
        self.first_at: float | None = None
        self.last_at: float | None = None
        self.is_finished = False
        self.error = ""
        self.input_tokens: int | None = None
        self._output_tokens: int | None = None

    def feed(self, data: bytes, now: float) -> None:
        """Take what came now; BrokenAnswerError if one event is too long."""
        for frame in self._frames.feed(data):
            for line in frame.splitlines():
                if line.startswith(_DATA):
                    self._take(line[len(_DATA) :].strip(), now)

    @property
    def output_tokens(self) -> int:
        return self._events if self._output_tokens is None else self._output_tokens

    @property
    def tpot(self) -> float | None:
        """Seconds a token after the first, None below two."""
        if self.first_at is None or self.last_at is None or self.output_tokens < 2:
            return None
        return (self.last_at - self.first_at) / (self.output_tokens - 1)

    def _take(self, data: bytes, now: float) -> None:
        if data == _DONE:
            self.is_finished = True
            return
        try:
            event = json.loads(data)
        except ValueError:
            self.error = "malformed_event"
            return
        if isinstance(event, dict):
            self._take_event(event, now)

    def _take_event(self, event: dict[str, Any], now: float) -> None:
        if event.get("error"):
            self.error = error_code(event) or "error"
            return
        for choice in _dicts(event.get("choices")):
            delta = choice.get("delta")
            if isinstance(delta, dict) and any(delta.get(name) for name in _TEXTS):
                self._events += 1
                self.first_at = now if self.first_at is None else self.first_at
                self.last_at = now
            if choice.get("finish_reason"):
                self.is_finished = True
        usage = event.get("usage")
        if isinstance(usage, dict):
            self.input_tokens = _count(usage.get("prompt_tokens"))
            self._output_tokens = _count(usage.get("completion_tokens"))


def error_code(body: object) -> str:
    """The code, or else the type, of an error in OpenAI's shape; "" if there is none."""
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        return "error" if error else ""
    return str(error.get("code") or error.get("type") or "error")


def _dicts(value: object) -> Iterable[dict[str, Any]]:
    return (each for each in value if isinstance(each, dict)) if isinstance(value, list) else ()


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
