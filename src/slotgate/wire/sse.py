"""Server-sent events, byte for byte: whole frames out of a stream that is cut anywhere.

A frame ends with a blank line, and its bytes include it.  Lines end with LF or CRLF; a lone CR,
which the standard also allows and no server of models sends, is not a line end here: it would
make the end of a frame depend on a byte that has not come yet.
"""

from __future__ import annotations

import re

from slotgate.errors import BrokenAnswerError

_BLANK_LINE = re.compile(rb"\n\r?\n")
# The final frame of llama.cpp's own completion repeats the prompt, and a prompt may be 100 MiB.
MAX_FRAME_BYTES = 128 << 20
# The beginning of a frame up to this size is searched again with what follows it: that is cheaper
# than to remember how far the search has come.
_SHORT_BYTES = 1024
_DATA = b"data: "
# Where the data begins in a line of it.
DATA_AT = len(_DATA)


class FrameSplitter:
    """Cuts a byte stream into frames; the same frames however the stream was cut before.

    `pending` is the beginning of a frame whose end has not come; `is_between_frames` says that
    there is none.
    """

    def __init__(self, *, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._pending = bytearray()
        self.is_between_frames = True
        # Where the search for a blank line goes on: no byte is searched twice.
        self._searched = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next bytes and return the frames that are whole now.

        Raises BrokenAnswerError when one frame grows beyond `max_frame_bytes`.
        """
        if self.is_between_frames and _is_one_frame(data):
            return [data]
        frames = self._split(data) if len(self._pending) <= _SHORT_BYTES else None
        if frames is None:
            self._pending += data
            frames = self._search()
        # The last two bytes may be the beginning of a blank line.
        self._searched = max(0, len(self._pending) - 2)
        self.is_between_frames = not self._pending
        if len(self._pending) > self._max_frame_bytes:
            raise BrokenAnswerError(
                f"an event of the stream is longer than {self._max_frame_bytes} bytes"
            )
        return frames

    def _split(self, data: bytes) -> list[bytes] | None:
        """Cut out all whole frames at once; None, and nothing done, where a line ends with CRLF."""
        data = bytes(self._pending) + data
        if b"\r" in data:
            return None
        *whole, rest = data.split(b"\n\n")
        self._pending[:] = rest
        return [frame + b"\n\n" for frame in whole]

    def _search(self) -> list[bytes]:
        """Cut out whole frames one by one, from where the last search has come to."""
        frames = []
        start = 0
        search = self._searched
        while (end := _BLANK_LINE.search(self._pending, search)) is not None:
            frames.append(bytes(self._pending[start : end.end()]))
            start = search = end.end()
        del self._pending[:start]
        return frames

    @property
    def pending(self) -> bytes:
        return bytes(self._pending)


def _is_one_frame(data: bytes) -> bool:
    """Tell whether this is one whole frame with LF, as nearly every piece of a stream is."""
    return data.endswith(b"\n\n") and data.find(b"\n\n") == len(data) - 2 and b"\r" not in data


def _field(frame: bytes, name: bytes) -> list[bytes]:
    values = []
    for line in frame.split(b"\n"):
        if line.startswith(name):
            value = line[len(name) :].removesuffix(b"\r")
            values.append(value.removeprefix(b" "))
    return values


def is_data_line(frame: bytes) -> bool:
    """Tell whether the frame is one line of data and no more: `frame[DATA_AT:-2]`."""
    return (
        frame.startswith(_DATA)
        and frame.endswith(b"\n\n")
        and frame.count(b"\n") == 2
        and b"\r" not in frame
    )


def frame_data(frame: bytes) -> bytes | None:
    """Return the frame's data, its lines joined; None when it carries none."""
    if is_data_line(frame):
        return frame[DATA_AT:-2]
    lines = _field(frame, b"data:")
    return b"\n".join(lines) if lines else None


def frame_event(frame: bytes) -> bytes | None:
    """Return the name of the frame's event; None when it has none."""
    if b"event:" not in frame:
        return None
    names = _field(frame, b"event:")
    return names[-1] if names else None


def is_comment(frame: bytes) -> bool:
    """Tell whether the frame only keeps the connection alive."""
    if not frame.startswith((b":", b"\n", b"\r")):
        return False
    lines = [line for line in frame.split(b"\n") if line.strip(b"\r")]
    return all(line.startswith(b":") for line in lines)
