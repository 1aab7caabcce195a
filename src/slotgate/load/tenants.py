"""A synthesised population of tenants, after what production traces show.

A few tenants send most of the requests (Zipf); each sends in bursts of its own (Gamma renewals,
whose variation is drawn anew every ten minutes); all follow the day; and each mostly asks for one
kind of thing.  The figures are those of ServeGen's largest model: the median variation is 2.5,
the busiest hour has about 2.5 times the mean rate and the quietest a fifth of it.
"""

from __future__ import annotations

from math import cos, exp, log, pi
from typing import TYPE_CHECKING, Final

from slotgate.load.lengths import CHAT, CODE, REASON, SUMM
from slotgate.load.streams import Stream
from slotgate.load.workloads import Plan, Workload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slotgate.load.dice import Dice
    from slotgate.load.lengths import LengthClass

_VARIATION_MEDIAN: Final = 2.5
_VARIATION_SIGMA: Final = 0.9
_VARIATIONS: Final = (0.5, 20.0)
_WINDOW_SECONDS: Final = 600.0
_DAY_SECONDS: Final = 86400.0
_DAY_SWING: Final = 1.24
_DAY_MEAN: Final = 1.423  # of exp(swing * cos): the modified Bessel function I0(1.24)
# What tenants ask for, and how many of ten ask for it.
_KINDS: Final = ((CHAT, 5), (CODE, 3), (SUMM, 1), (REASON, 1))


def zipf_shares(count: int, exponent: float = 1.0) -> tuple[float, ...]:
    """The parts of the whole that the first, second and so on of `count` tenants have."""
    weights = [1 / rank**exponent for rank in range(1, count + 1)]
    return tuple(weight / sum(weights) for weight in weights)


def day_factor(at: float, day_seconds: float = _DAY_SECONDS) -> float:
    """The rate at a time of day in relation to the day's mean; busiest in its middle."""
    return exp(-_DAY_SWING * cos(2 * pi * at / day_seconds)) / _DAY_MEAN


def make_tenants(
    plan: Plan, *, count: int, load: float, exponent: float = 1.0, day_seconds: float | None = None
) -> Workload:
    """Draw what `count` tenants ask for; without `day_seconds` the rate is the same all day."""
    drawn = [
        arrival
        for rank, share in enumerate(zipf_shares(count, exponent), 1)
        for stream in _windows(plan, f"t{rank:04}", load * share, day_seconds)
        for arrival in stream.arrivals(plan.dice)
    ]
    return Workload(
        name="tenants",
        seconds=plan.seconds,
        arrivals=tuple(sorted(drawn, key=lambda arrival: arrival.at)),
    )


def _windows(plan: Plan, tenant: str, load: float, day_seconds: float | None) -> Iterator[Stream]:
    kind = _kind(plan.dice)
    cost = plan.capacity.cost(kind)
    start = 0.0
    while start < plan.seconds:
        end = min(start + _WINDOW_SECONDS, plan.seconds)
        drawn = plan.dice.lognormvariate(log(_VARIATION_MEDIAN), _VARIATION_SIGMA)
        yield Stream(
            tenant=tenant,
            kind=kind,
            rate=lambda at: load / cost * (day_factor(at, day_seconds) if day_seconds else 1.0),
            start=start,
            end=end,
            variation=min(max(drawn, _VARIATIONS[0]), _VARIATIONS[1]),
            patience=plan.patience,
            max_tokens=plan.max_tokens,
        )
        start = end


def _kind(dice: Dice) -> LengthClass:
    place = dice.random() * sum(weight for _, weight in _KINDS)
    for kind, weight in _KINDS:
        place -= weight
        if place < 0:
            return kind
    return _KINDS[-1][0]
