"""Takes the progress of prefill out of a stream whose client did not ask for it.

We ask for it so that llama-server notices a client that leaves during prefill.  What it changes in
a stream, and is changed back here:

- Frames of its own, with `prompt_progress`: dropped.  On chat they look like the frame that names
  the role, which is sent once more with the first token.
- On responses the first two events ride on the first progress, and `response.in_progress` comes
  again with each: the first stays, without its progress.
- On chat, what the template has already begun for the assistant (`<think>` when reasoning is not
  parsed, a continued turn with `echo`) comes with the first progress instead of the first token,
  after a role frame that is not marked: both are held back until the first token.

The text of the answer is the same; only that beginning comes in a frame of its own, where without
progress it is in the first token's.
"""

from __future__ import annotations

from slotgate.wire.routes import Shape
from slotgate.wire.sse import frame_event, is_comment

PROGRESS = b'"prompt_progress":'
ROLE_ONLY = b'"delta":{"role":"assistant","content":null}'
_DELTA = b'"delta":'
_OPENING = frozenset({b"response.created", b"response.in_progress"})


class ProgressFilter:
    """Takes whole frames and returns what the client shall have of them.

    `is_done`: no more progress can come, for the answer of the only sequence has begun.
    """

    def __init__(self, shape: Shape, width: int) -> None:
        self._shape = shape
        # With several sequences the progress of one may come amid the answer of another.
        self._lasts_to_the_end = width > 1
        self._has_opened = False
        self._role = b""
        self._begun: list[bytes] = []
        self.is_done = False

    def take(self, frame: bytes) -> bytes:
        if is_comment(frame):
            return frame
        if PROGRESS in frame:
            return self._cut_event(frame) if self._shape is Shape.RESPONSES else self._cut(frame)
        if ROLE_ONLY in frame:
            # Maybe a progress follows that it belongs to.
            before, self._role = self._role, frame
            return before
        is_opening = self._shape is Shape.RESPONSES and frame_event(frame) in _OPENING
        self.is_done = not is_opening and not self._lasts_to_the_end
        return self.release() + frame

    def release(self) -> bytes:
        """Return what was held back."""
        held = self._role + b"".join(self._begun)
        self._role = b""
        self._begun.clear()
        return held

    def _cut(self, frame: bytes) -> bytes:
        if _DELTA not in frame or ROLE_ONLY in frame:
            return b""
        # Frames of one sequence are the same up to the delta.
        if self._role.partition(_DELTA)[0] == frame.partition(_DELTA)[0]:
            self._role = b""
        self._begun.append(_without_progress(frame))
        return b""

    def _cut_event(self, frame: bytes) -> bytes:
        if self._has_opened:
            return b""
        self._has_opened = True
        return _without_progress(frame)


def _without_progress(frame: bytes) -> bytes:
    """Cut off the end of the object, where progress is, and before it maybe the timings."""
    ends = [frame.find(mark) for mark in (b',"timings":', b"," + PROGRESS)]
    return frame[: min(end for end in ends if end >= 0)] + b"}\n\n"
