"""A backend's stream on its way to a client: the same bytes, and the facts about them.

Life of a relay: `feed` each piece as it came and send what it returns, `finish` at the end and
send that too, then ask.  While progress must be taken out (`Prepared.upstream_progress` without
`wants_progress`), a frame is held back until it is whole; from the first token on, bytes pass at
once.  Facts and output are the same however the stream was cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from slotgate.wire.facts import Facts, has_any
from slotgate.wire.progress import PROGRESS, ProgressFilter
from slotgate.wire.sse import FrameSplitter, frame_data, frame_event, is_comment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slotgate.wire.request import Prepared
    from slotgate.wire.routes import Shape
    from slotgate.wire.usage import Usage

_FRAME_END = b"}\n\n"
# An error of any age, a comment, CRLF, progress: each deserves a closer look in every shape.
_COMMON_MARKS = (b"error", b"\n:", b"\r", PROGRESS)


class StreamRelay:
    """Passes one stream on and watches it.

    Until the backend has counted, `usage` is a guess from the number of frames.
    """

    def __init__(self, shape: Shape, prepared: Prepared) -> None:
        self._splitter = FrameSplitter()
        self._facts = Facts(shape, prepared)
        self._marks = (*_COMMON_MARKS, *self._facts.marks, *self._facts.tokenless)
        self._token_mark = self._facts.token_mark
        self._plain = self._facts.plain
        # None from the moment when bytes pass as they come.
        self._filter: ProgressFilter | None = None
        if prepared.upstream_progress and not prepared.wants_progress:
            self._filter = ProgressFilter(shape, prepared.width)
        self.token_frames = 0

    # Bytes in, bytes out.

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes and return those to send now, maybe none."""
        if self._filter is None:
            if self._splitter.is_between_frames and self._plain.fits(data):
                self.token_frames += 1
            else:
                self._watch(data)
            return data
        return b"".join(self._filtered(data)) + self._released()

    def finish(self) -> bytes:
        """Take the end of the stream and return what was held back, if the stream is whole."""
        rest = self._splitter.pending
        if rest:
            self._note(rest)
        if self._filter is None or not self.has_terminator:
            return b""
        return self._filter.release() + rest

    # Questions.

    @property
    def has_started(self) -> bool:
        """The first token has come."""
        return self.token_frames > 0

    @property
    def has_begun(self) -> bool:
        """There is something for the client that it can use: a token, or at least a whole frame."""
        return self.has_started or self.is_between_frames

    @property
    def has_terminator(self) -> bool:
        """The stream has ended as its shape must; without that, an end is a broken answer."""
        return self._facts.has_terminator

    @property
    def error(self) -> dict[str, Any] | None:
        """The `error` object that came inside the stream, if one did."""
        return self._facts.error

    @property
    def has_failed_early(self) -> bool:
        """An error came before any token: who got nothing yet can have it as a status."""
        return self.error is not None and not self.has_started

    @property
    def has_untold_error(self) -> bool:
        """The error is a bare line, as a router writes it: clients that read events miss it."""
        return self.error is not None and not self._facts.is_error_told

    @property
    def is_between_frames(self) -> bool:
        """What was returned so far ends with a whole frame: an event of ours can follow."""
        return self._filter is not None or self._splitter.is_between_frames

    @property
    def has_exact_usage(self) -> bool:
        return self._facts.is_usage_final

    @property
    def is_whole(self) -> bool:
        """The stream has ended well."""
        return self.has_terminator and self.error is None

    @property
    def counted(self) -> Usage | None:
        """What the backend counted; None while it has not."""
        return self._facts.usage if self.has_exact_usage else None

    def usage(self) -> Usage:
        usage = self._facts.usage
        return usage if self.has_exact_usage else replace(usage, output_tokens=self.token_frames)

    # Watching.

    def _filtered(self, data: bytes) -> Iterator[bytes]:
        for frame in self._splitter.feed(data):
            self._note(frame)
            if self._filter is None:
                yield frame
                continue
            yield self._filter.take(frame)
            if self._filter.is_done:
                self._filter = None

    def _released(self) -> bytes:
        """Return the begun frame, when the answer has begun and nothing is held back any more."""
        return self._splitter.pending if self._filter is None else b""

    def _watch(self, data: bytes) -> None:
        if (
            self._splitter.is_between_frames
            and data.endswith(_FRAME_END)
            and not data.startswith(b":")
            and not has_any(data, self._marks)
        ):
            # Whole frames, in each of them a token and nothing else to learn.
            self.token_frames += data.count(self._token_mark)
            return
        for frame in self._splitter.feed(data):
            self._note(frame)

    def _note(self, frame: bytes) -> None:
        if self._plain.fits(frame):
            self.token_frames += 1
            return
        if is_comment(frame) or PROGRESS in frame:
            return
        if b"\r" in frame:
            frame = frame.replace(b"\r\n", b"\n")
        data = frame_data(frame)
        if data is None:
            is_token = not self._facts.note_stray(frame)
        elif has_any(frame, self._marks):
            is_token = self._facts.note(frame_event(frame), data)
        else:
            is_token = True
        if is_token:
            self.token_frames += frame.count(self._token_mark)
