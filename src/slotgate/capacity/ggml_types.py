"""The element types of ggml's tensors: their numbers in a file, and the bytes that they take.

A row of elements is stored in blocks: `block_bytes` for each `block_elements` of them.
As of llama.cpp build 11434.  A number that is absent here was never used, or its type was removed.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class GgmlType(NamedTuple):
    """One element type, named as llama.cpp prints it."""

    number: int
    name: str
    block_elements: int
    block_bytes: int


_ALL = (
    GgmlType(0, "f32", 1, 4),
    GgmlType(1, "f16", 1, 2),
    GgmlType(2, "q4_0", 32, 18),
    GgmlType(3, "q4_1", 32, 20),
    GgmlType(6, "q5_0", 32, 22),
    GgmlType(7, "q5_1", 32, 24),
    GgmlType(8, "q8_0", 32, 34),
    GgmlType(9, "q8_1", 32, 36),
    GgmlType(10, "q2_K", 256, 84),
    GgmlType(11, "q3_K", 256, 110),
    GgmlType(12, "q4_K", 256, 144),
    GgmlType(13, "q5_K", 256, 176),
    GgmlType(14, "q6_K", 256, 210),
    GgmlType(15, "q8_K", 256, 292),
    GgmlType(16, "iq2_xxs", 256, 66),
    GgmlType(17, "iq2_xs", 256, 74),
    GgmlType(18, "iq3_xxs", 256, 98),
    GgmlType(19, "iq1_s", 256, 50),
    GgmlType(20, "iq4_nl", 32, 18),
    GgmlType(21, "iq3_s", 256, 110),
    GgmlType(22, "iq2_s", 256, 82),
    GgmlType(23, "iq4_xs", 256, 136),
    GgmlType(24, "i8", 1, 1),
    GgmlType(25, "i16", 1, 2),
    GgmlType(26, "i32", 1, 4),
    GgmlType(27, "i64", 1, 8),
    GgmlType(28, "f64", 1, 8),
    GgmlType(29, "iq1_m", 256, 56),
    GgmlType(30, "bf16", 1, 2),
    GgmlType(34, "tq1_0", 256, 54),
    GgmlType(35, "tq2_0", 256, 66),
    GgmlType(39, "mxfp4", 32, 17),
    GgmlType(40, "nvfp4", 64, 36),
    GgmlType(41, "q1_0", 128, 18),
    GgmlType(42, "q2_0", 64, 18),
)

BY_NUMBER: Mapping[int, GgmlType] = MappingProxyType({one.number: one for one in _ALL})
BY_NAME: Mapping[str, GgmlType] = MappingProxyType({one.name: one for one in _ALL})

# What `--cache-type-k` and `--cache-type-v` accept, most precise first.
CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")


def row_bytes(type_name: str, elements: int) -> int:
    """The bytes of one row; ValueError unless its elements fill whole blocks.

    KeyError if there is no such type.
    """
    one = BY_NAME[type_name]
    blocks, rest = divmod(elements, one.block_elements)
    if rest or elements < 0:
        raise ValueError(f"{elements} elements are no whole blocks of {type_name}")
    return blocks * one.block_bytes
