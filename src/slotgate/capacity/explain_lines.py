"""How a line of arithmetic is written, so that a reader, or a test, can work it out again.

    LABEL: EXPRESSION = RESULT UNIT (WORDS)

An expression has whole numbers with commas, `+ - x / //`, brackets, `min`, `ceil`, and `up256`,
which rounds up to a multiple of 256.  The words name its terms in their order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.capacity.units import show_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_MiB, _GiB = 1 << 20, 1 << 30


def equation(label: str, expression: str, result: int, unit: str, words: str = "") -> str:
    """One line; bytes from a MiB on are also said in larger units."""
    said = f" ({words})" if words else ""
    return f"  {label}: {expression} = {number(result)} {unit}{said}{_in_large(result, unit)}"


def number(value: int) -> str:
    return f"{value:,}"


def product(*factors: int) -> str:
    return " x ".join(map(number, factors))


def sum_of(terms: Iterable[int]) -> str:
    """The terms added; what is below zero is taken away."""
    numbers = list(terms) or [0]
    signed = ((" + " if one >= 0 else " - ") + number(abs(one)) for one in numbers[1:])
    return number(numbers[0]) + "".join(signed)


def named(parts: Sequence[tuple[str, int]]) -> tuple[str, str]:
    """The sum of named terms, and their names; those of zero are left out."""
    there = [(name, value) for name, value in parts if value] or list(parts[:1])
    return sum_of(value for _, value in there), " + ".join(name for name, _ in there)


def _in_large(result: int, unit: str) -> str:
    if unit != "bytes" or abs(result) < _MiB:
        return ""
    units = ("GiB", "GB") if abs(result) >= _GiB else ("MiB", "MB")
    return "".join(f", {show_bytes(result, one)}" for one in units)
