"""Reads from a GGUF file the context length that its model was trained for.

    magic "GGUF" | version u32 | tensors u64 | entries u64 | entries: key, type u32, value ...

A string is its length (u64) and its bytes.  All numbers are little-endian.  The entry wanted
stands near the beginning, before the vocabulary, so little is read.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, BinaryIO

from slotgate.backends.model_files import GGUF_MAGIC

if TYPE_CHECKING:
    from pathlib import Path

# Type number -> struct format; 8 is a string, 9 an array.
_NUMBERS = dict(enumerate(("<B", "<b", "<H", "<h", "<I", "<i", "<f", "<?"))) | {
    10: "<Q",
    11: "<q",
    12: "<d",
}
_STRING, _ARRAY = 8, 9
MAX_ENTRIES = 10_000
MAX_STRING_BYTES = 1 << 24


def read_context_length(path: Path) -> int | None:
    """Tokens of context the model was trained for; None if the file does not say."""
    try:
        with path.open("rb") as file:
            return _find(file)
    except (OSError, ValueError, struct.error, KeyError, OverflowError, RecursionError):
        return None


def _find(file: BinaryIO) -> int | None:
    if file.read(4) != GGUF_MAGIC or _number(file, "<I") < 2:
        return None
    file.seek(8, 1)
    for _ in range(min(_number(file, "<Q"), MAX_ENTRIES)):
        key = _string(file)
        kind = _number(file, "<I")
        if key.endswith(b".context_length") and kind in _NUMBERS:
            return int(_number(file, _NUMBERS[kind])) or None
        _skip(file, kind)
    return None


def _number(file: BinaryIO, form: str) -> int:
    value: int = struct.unpack(form, file.read(struct.calcsize(form)))[0]
    return value


def _string(file: BinaryIO) -> bytes:
    length = _number(file, "<Q")
    if length > MAX_STRING_BYTES:
        raise ValueError("no string is that long")
    return file.read(length)


def _skip(file: BinaryIO, kind: int) -> None:
    if kind == _STRING:
        _string(file)
    elif kind == _ARRAY:
        element, count = _number(file, "<I"), _number(file, "<Q")
        if element in _NUMBERS:
            file.seek(struct.calcsize(_NUMBERS[element]) * count, 1)
            return
        for _ in range(count):
            _skip(file, element)
    else:
        file.seek(struct.calcsize(_NUMBERS[kind]), 1)
