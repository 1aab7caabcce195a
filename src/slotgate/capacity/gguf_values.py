"""The metadata of a GGUF file: keys, and values of thirteen types.

    entries: key | type u32 | value            array: element type u32 | count u64 | elements

Numbers, texts and short arrays of numbers are kept.  Arrays of strings (a vocabulary) and long
ones are stepped over: a `Skipped` tells how many elements they have.  Bytes that are no UTF-8 are
replaced, as a key or a text may be shown but is never sent back.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slotgate.capacity.gguf_cursor import quoted

if TYPE_CHECKING:
    from slotgate.capacity.gguf_cursor import Cursor

_STRING, _ARRAY = 8, 9
# Type number -> struct format of one.
_FORMS: Final = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
_SINGLE: Final = {kind: struct.Struct(f"<{form}") for kind, form in _FORMS.items()}

MAX_ENTRIES: Final = 1 << 16
MAX_KEY_BYTES: Final = (1 << 16) - 1
# Longer texts are stepped over; a chat template has some tens of kilobytes.
MAX_TEXT_BYTES: Final = 1 << 20
# Longer arrays are stepped over; what is said per layer has some hundreds of elements.
MAX_ARRAY_ELEMENTS: Final = 1 << 12


@dataclass(frozen=True, slots=True)
class Skipped:
    """A value that was left in the file: so many elements of an array, or bytes of a text."""

    count: int

    def __len__(self) -> int:
        return self.count


Number = int | float
Value = int | float | bool | str | tuple[Number, ...] | Skipped


def read_meta(cursor: Cursor, count: int) -> dict[str, Value]:
    """Read so many entries; like llama.cpp, refuse empty keys and repeated ones."""
    if count > MAX_ENTRIES:
        raise cursor.error(f"{count:,} metadata entries, more than {MAX_ENTRIES:,}")
    meta: dict[str, Value] = {}
    for _ in range(count):
        key = _decoded(cursor.text(limit=MAX_KEY_BYTES, what="a key"))
        if not key:
            raise cursor.error("an empty key")
        if key in meta:
            raise cursor.error(f"the key {quoted(key)} is there twice")
        meta[key] = _value(cursor, cursor.u32(), key)
    return meta


def _value(cursor: Cursor, kind: int, key: str) -> Value:
    if kind == _STRING:
        return _text(cursor)
    if kind == _ARRAY:
        return _array(cursor, key)
    return cursor.number(_form(cursor, kind, key))


def _text(cursor: Cursor) -> Value:
    length = cursor.peek_u64()
    if length <= MAX_TEXT_BYTES:
        return _decoded(cursor.text(limit=MAX_TEXT_BYTES, what="a text"))
    cursor.skip_texts(1)
    return Skipped(length)


def _array(cursor: Cursor, key: str) -> Value:
    kind, count = cursor.u32(), cursor.u64()
    if kind == _STRING:
        cursor.skip_texts(count)
        return Skipped(count)
    form = _form(cursor, kind, key)
    if count > MAX_ARRAY_ELEMENTS:
        cursor.skip(count * form.size)
        return Skipped(count)
    cursor.keep(0, elements=count)
    return cursor.numbers(struct.Struct(f"<{count}{_FORMS[kind]}"))


def _form(cursor: Cursor, kind: int, key: str) -> struct.Struct:
    # llama.cpp reads no arrays of arrays either.
    if kind not in _SINGLE:
        raise cursor.error(f"the key {quoted(key)} has a value of unknown type {kind}")
    return _SINGLE[kind]


def _decoded(raw: bytes) -> str:
    return raw.decode("utf-8", errors="replace")
