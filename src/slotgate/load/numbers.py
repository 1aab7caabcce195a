"""Quantiles, and means over several runs with their confidence."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Student's t, two-sided 95 %, by degrees of freedom from 1; the normal's beyond.
_STUDENT: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
_NORMAL: Final = 1.96


@dataclass(frozen=True, slots=True)
class Estimate:
    """The mean of a number over runs; `margin` is half of its 95 % confidence interval.

    One run alone has no margin.
    """

    mean: float
    margin: float | None
    runs: int


def estimate(values: Iterable[float | None]) -> Estimate | None:
    """The estimate from one value a run; None if no run has one."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    mean = sum(known) / len(known)
    if len(known) == 1:
        return Estimate(mean, None, 1)
    variance = sum((value - mean) ** 2 for value in known) / (len(known) - 1)
    freedom = len(known) - 1
    student = _STUDENT[freedom - 1] if freedom <= len(_STUDENT) else _NORMAL
    return Estimate(mean, student * sqrt(variance / len(known)), len(known))


def quantile(ordered: Sequence[float], share: float) -> float | None:
    """The quantile of values in ascending order, linear between two of them."""
    if not ordered:
        return None
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def ratio(part: float, whole: float) -> float | None:
    """`part / whole`, None of nothing."""
    return part / whole if whole else None
