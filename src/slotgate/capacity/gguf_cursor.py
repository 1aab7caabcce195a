"""A place in a file that only moves forward, and refuses what a hostile file may claim.

Rule 1: the file is read once, in order, in large blocks, and not beyond the block in which the
        last value lies: over a network that is a few requests, and no seek.
Rule 2: nothing is allocated because the file claims a size.  What is kept is bounded by a budget,
        what is skipped is read block by block, and all of it by `MAX_HEADER_BYTES`.
Rule 3: whatever goes wrong is a `HeaderError` that names the file and the place.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from slotgate.errors import HeaderError

if TYPE_CHECKING:
    from typing import IO

BLOCK_BYTES: Final = 4 << 20
# The largest headers known, of vocabularies of 262,144 tokens with their merges, have some 20 MB.
MAX_HEADER_BYTES: Final = 128 << 20
# What all texts and arrays that are kept may take; a hostile file could fill memory with them.
MAX_KEPT_BYTES: Final = 16 << 20
# An element of an array becomes a Python number, and a reference to it.
_ELEMENT_BYTES: Final = 32
_SHOWN_LENGTH: Final = 80

U32 = struct.Struct("<I")
U64 = struct.Struct("<Q")


class Cursor:
    """Reads a file's header from its beginning to wherever the caller stops."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file = file
        self._name = name
        self._buffer = b""
        # The next unread byte within the buffer, and where in the file the buffer begins.
        self._at = 0
        self._begin = 0
        self._kept_bytes = 0

    @property
    def offset(self) -> int:
        """Where in the file the next byte lies."""
        return self._begin + self._at

    def error(self, what: str) -> HeaderError:
        return HeaderError(f"{self._name}: at byte {self.offset:,}: {what}")

    def number(self, form: struct.Struct) -> int | float:
        return self.numbers(form)[0]

    def u32(self) -> int:
        return int(self.number(U32))

    def u64(self) -> int:
        return int(self.number(U64))

    def numbers(self, form: struct.Struct) -> tuple[int | float, ...]:
        self._need(form.size)
        values = form.unpack_from(self._buffer, self._at)
        self._at += form.size
        return values

    def peek_u64(self) -> int:
        self._need(U64.size)
        length: int = U64.unpack_from(self._buffer, self._at)[0]
        return length

    def text(self, *, limit: int, what: str) -> bytes:
        """A string of at most `limit` bytes, as it is in the file."""
        length = self.u64()
        if length > limit:
            raise self.error(f"{what} of {length:,} bytes, more than {limit:,}")
        self.keep(length)
        return self.take(length)

    def take(self, length: int) -> bytes:
        """So many bytes; the caller has bounded the number."""
        self._need(length)
        self._at += length
        return self._buffer[self._at - length : self._at]

    def keep(self, length: int, elements: int = 0) -> None:
        """Take so much from the budget of what may be kept of this file."""
        self._kept_bytes += length + elements * _ELEMENT_BYTES
        if self._kept_bytes > MAX_KEPT_BYTES:
            raise self.error("more texts and numbers than a model's header has")

    def skip(self, length: int) -> None:
        if self.offset + length > MAX_HEADER_BYTES:
            raise self.error(f"{length:,} bytes, more than a model's header has")
        self._move_to(self._at + length)

    def skip_texts(self, count: int) -> None:
        """Pass over an array of strings; a vocabulary has a million, so this is the fast path."""
        if count * U64.size > MAX_HEADER_BYTES - self.offset:
            raise self.error(f"{count:,} strings, more than a model's header has")
        while count:
            self._need(U64.size)
            passed, at = _step_over_texts(self._buffer, self._at, count)
            count -= passed
            if self._begin + at > MAX_HEADER_BYTES:
                raise self.error("a string that ends beyond any model's header")
            self._move_to(at)

    def _move_to(self, at: int) -> None:
        """Move to a place given as of the buffer, which may lie beyond it."""
        while at > len(self._buffer):
            at -= len(self._buffer)
            self._begin += len(self._buffer)
            self._buffer, self._at = b"", 0
            self._buffer = self._read_block()
        self._at = at

    def _need(self, length: int) -> None:
        """Have so many unread bytes in the buffer."""
        if len(self._buffer) - self._at >= length:
            return
        parts = [self._buffer[self._at :]]
        self._begin += self._at
        self._buffer, self._at = parts[0], 0
        missing = length - len(parts[0])
        while missing > 0:
            parts.append(self._read_block())
            missing -= len(parts[-1])
        self._buffer = b"".join(parts)

    def _read_block(self) -> bytes:
        if self._begin > MAX_HEADER_BYTES:
            raise self.error("this header is larger than any model's")
        try:
            block = self._file.read(BLOCK_BYTES)
        except Exception as error:  # of whatever library the opener is
            raise self.error(f"cannot be read: {error}") from error
        if not block:
            raise self.error("the file ends within its header; it is cut short, or was never whole")
        return block


def quoted(name: str) -> str:
    """A name out of the file, fit for a message: of bounded length, and nothing in it unseen."""
    return repr(name if len(name) <= _SHOWN_LENGTH else name[:_SHOWN_LENGTH] + "...")


def _step_over_texts(buffer: bytes, at: int, count: int) -> tuple[int, int]:
    """Step over strings while their lengths lie within the buffer.

    Returns how many, and where the next one begins, which may be beyond the buffer.
    """
    length_of = U64.unpack_from
    passed = 0
    try:
        for passed in range(count):  # noqa: B007 - it is what was passed if the buffer ends
            at += 8 + length_of(buffer, at)[0]
    except (struct.error, OverflowError):  # beyond the buffer, or beyond any memory
        return passed, at
    return count, at
