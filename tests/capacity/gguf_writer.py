"""Writes GGUF files for tests, in pure Python: a dictionary, and tensors of made-up numbers.

The numbers are small and repeat with a period that no matrix width shares, so that rows differ;
norms lie around one and `ssm_a` below zero, so that a model computes without overflow.
Quantised tensors hold zeros.
"""

from __future__ import annotations

import math
import random
import struct
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from slotgate.capacity.ggml_types import BY_NAME, row_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
_FORMS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?",
          U64: "Q", I64: "q", F64: "d"}  # fmt: skip
_PERIOD = 8191


@dataclass(frozen=True, slots=True)
class Typed:
    """A value whose type in the file is said; for an array, that of its elements."""

    kind: int
    value: Any


class TensorSpec(NamedTuple):
    """A tensor to write; the shape is in ggml's order, the row's length first."""

    name: str
    shape: tuple[int, ...]
    type: str = "f32"

    @property
    def n_bytes(self) -> int:
        return row_bytes(self.type, self.shape[0]) * math.prod(self.shape[1:])


def write_gguf(
    path: Path,
    meta: Mapping[str, Any],
    tensors: Iterable[TensorSpec] = (),
    *,
    version: int = 3,
    alignment: int = 32,
) -> Path:
    """Write the file and return its path."""
    specs = list(tensors)
    with path.open("wb") as file:
        file.write(encode_header(meta, specs, version=version, alignment=alignment))
        for index, spec in enumerate(specs):
            _pad(file, alignment)
            _write_numbers(file, spec, index)
        if specs:
            _pad(file, alignment)
    return path


def encode_header(
    meta: Mapping[str, Any],
    tensors: Sequence[TensorSpec] = (),
    *,
    version: int = 3,
    alignment: int = 32,
) -> bytes:
    """Encode everything up to and including the table of tensors."""
    if alignment != 32:
        meta = {**meta, "general.alignment": Typed(U32, alignment)}
    parts = [b"GGUF", struct.pack("<IQQ", version, len(tensors), len(meta))]
    parts += [encode_string(key) + encode_value(value) for key, value in meta.items()]
    offset = 0
    for spec in tensors:
        parts.append(encode_tensor(spec, offset))
        offset += -(-spec.n_bytes // alignment) * alignment
    return b"".join(parts)


def encode_tensor(spec: TensorSpec, offset: int) -> bytes:
    shape = struct.pack(f"<I{len(spec.shape)}Q", len(spec.shape), *spec.shape)
    return encode_string(spec.name) + shape + struct.pack("<IQ", BY_NAME[spec.type].number, offset)


def encode_string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def encode_value(value: Any) -> bytes:
    """Encode the type and the value, of a type that fits it if none is said."""
    kind, value = _typed(value)
    if isinstance(value, (list, tuple)):
        return struct.pack("<IIQ", ARRAY, kind, len(value)) + _encode_array(kind, value)
    return struct.pack("<I", kind) + _encode_array(kind, [value])


def _encode_array(kind: int, values: Sequence[Any]) -> bytes:
    if kind == STRING:
        return b"".join(map(encode_string, values))
    return struct.pack(f"<{len(values)}{_FORMS[kind]}", *values)


def _typed(value: Any) -> tuple[int, Any]:
    if isinstance(value, Typed):
        return value.kind, value.value
    if isinstance(value, (list, tuple)):
        first = value[0] if value else 0
        # llama.cpp reads arrays of integers as signed, single ones as unsigned.
        return (I32 if type(first) is int else _kind_of(first)), value
    return _kind_of(value), value


def _kind_of(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return U32 if value >= 0 else I32
    return {bool: BOOL, float: F32, str: STRING}[type(value)]


def _pad(file: BinaryIO, alignment: int) -> None:
    file.write(bytes(-file.tell() % alignment))


def _write_numbers(file: BinaryIO, spec: TensorSpec, index: int) -> None:
    if spec.type not in ("f32", "f16"):
        file.write(bytes(spec.n_bytes))
        return
    pool = _numbers(_flavour(spec.name), spec.type)
    item = len(pool) // _PERIOD
    start = index * 97 % _PERIOD * item
    rest = spec.n_bytes
    while rest:
        file.write(pool[start : start + rest])
        rest -= min(rest, len(pool) - start)
        start = 0


def _flavour(name: str) -> str:
    if "ssm_a" in name:
        return "negative"
    return "near one" if name.endswith("norm.weight") else "small"


@cache
def _numbers(flavour: str, type_name: str) -> bytes:
    chance = random.Random(1000)
    small = (chance.gauss(0.0, 0.05) for _ in iter(int, 1))
    change = {
        "negative": lambda x: -abs(x) - 0.1,
        "near one": lambda x: 1.0 + x,
        "small": lambda x: x,
    }[flavour]
    form = {"f32": "f", "f16": "e"}[type_name]
    return struct.pack(f"<{_PERIOD}{form}", *map(change, islice(small, _PERIOD)))
