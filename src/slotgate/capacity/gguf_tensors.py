"""The tensor table of a GGUF file: names, shapes, types, and where the bytes lie.

    tensors: name | dimensions u32 | each u64 | type u32 | offset u64

Offsets count from the aligned end of the table; as llama.cpp demands, tensors follow each other
without gaps but those of the alignment, so the table says how long the file must be.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from slotgate.capacity.ggml_types import BY_NUMBER, row_bytes
from slotgate.capacity.gguf_cursor import quoted

if TYPE_CHECKING:
    from slotgate.capacity.gguf_cursor import Cursor

# The experts of old files are tensors of their own, some ten thousand of them.
MAX_TENSORS: Final = 1 << 15
MAX_DIMENSIONS: Final = 4
# ggml has 64 bytes for a name, the last of them zero.
MAX_NAME_BYTES: Final = 63
# ggml counts elements and bytes in signed 64 bits.
MAX_COUNT: Final = (1 << 63) - 1


class Tensor(NamedTuple):
    """One tensor; the shape is in ggml's order, the length of a row first.

    `offset` counts from the beginning of its file; `part` is that file's number in a split model,
    from 1.
    """

    name: str
    shape: tuple[int, ...]
    type: str
    offset: int
    n_bytes: int
    part: int


class Table(NamedTuple):
    """The tensors of one file, and how long the file must be to hold them."""

    tensors: tuple[Tensor, ...]
    n_bytes: int


def read_tensors(cursor: Cursor, count: int, *, alignment: int, part: int) -> Table:
    """Read so many tensors; like llama.cpp, refuse repeated names and wrong offsets."""
    if count > MAX_TENSORS:
        raise cursor.error(f"{count:,} tensors, more than {MAX_TENSORS:,}")
    tensors: dict[str, Tensor] = {}
    end = 0
    for _ in range(count):
        one = _tensor(cursor, part)
        if one.name in tensors:
            raise cursor.error(f"the tensor {quoted(one.name)} is there twice")
        if one.offset != end:
            raise cursor.error(
                f"the tensor {quoted(one.name)} has offset {one.offset:,}, not {end:,}"
            )
        tensors[one.name] = one
        end = _aligned(end + one.n_bytes, alignment)
    if not tensors:
        return Table((), cursor.offset)
    begin = _aligned(cursor.offset, alignment)
    moved = (one._replace(offset=begin + one.offset) for one in tensors.values())
    return Table(tuple(moved), begin + end)


def _tensor(cursor: Cursor, part: int) -> Tensor:
    name = cursor.text(limit=MAX_NAME_BYTES, what="a tensor's name").decode(errors="replace")
    shape = _shape(cursor, name)
    number = cursor.u32()
    if number not in BY_NUMBER:
        raise cursor.error(f"the tensor {quoted(name)} has the unknown type {number}")
    kind = BY_NUMBER[number].name
    return Tensor(name, shape, kind, cursor.u64(), _n_bytes(cursor, name, shape, kind), part)


def _shape(cursor: Cursor, name: str) -> tuple[int, ...]:
    dimensions = cursor.u32()
    if dimensions > MAX_DIMENSIONS:
        raise cursor.error(f"the tensor {quoted(name)} has {dimensions:,} dimensions, more than 4")
    shape = tuple(cursor.u64() for _ in range(dimensions)) or (1,)
    if 0 in shape:
        raise cursor.error(f"the tensor {quoted(name)} is empty: a dimension is 0")
    if math.prod(shape) > MAX_COUNT:
        raise cursor.error(f"the tensor {quoted(name)} has more elements than ggml can count")
    return shape


def _n_bytes(cursor: Cursor, name: str, shape: tuple[int, ...], kind: str) -> int:
    try:
        n_bytes = row_bytes(kind, shape[0]) * math.prod(shape[1:])
    except ValueError as error:
        raise cursor.error(f"the tensor {quoted(name)}: {error}") from error
    if n_bytes > MAX_COUNT:
        raise cursor.error(f"the tensor {quoted(name)} has more bytes than ggml can count")
    return n_bytes


def _aligned(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment
