"""When slots come free, by what is expected of the leases that hold them.

    F_j(t)  = how likely slot j has come free by t: Weibull, with the lease's mean and deviation
    N(t)    = sum_j F_j(t) + sum_j max(0, t - m_j) / s: slots that came free by t, again and again

with m_j the mean of F_j and s the mean service of what goes before.  Beyond the time by which
nearly all came free once, N(t) is a straight line.  Before that, the time at which it is a given
number is looked for by false position, between points of both sums that earlier questions have
left: most answers lie between two that are close enough.

The picture is kept while it can be off by no more than a hundredth of the wait that is told from
it: it is no older than that, and no more slots were granted or came free since than do in that
time.  For short waits that is a quarter of a second, and an eighth of the slots.
"""

from __future__ import annotations

from bisect import insort
from math import exp, gamma
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slotgate.core.turns import Ahead

# For so long the ends of what runs are taken to come nearer by the clock alone, or where the wait
# is long, for that part of it.
FRESH_SECONDS = 0.25
_FRESH_PART = 0.01
# The ends of what runs are made anew after as many grants and ends as this part of the slots.
_STALE_PART = 8
# The shortest mean and the least time from one free slot to the next.
LEAST_SECONDS = 0.001
# Groups of slots that are taken to be alike.
_GROUPS = 4
# The median of the first of many events comes when 0.69 are expected.
_FIRST = 0.69
_STEPS = 12
_CLOSE = 0.03
# Points that are kept of one picture.
_MOST_POINTS = 64
# By so many scales of a Weibull, to the power of its shape, 99 of 100 have come free: ln 100.
_NEARLY_ALL = 4.6


class End(NamedTuple):
    """When some slots come free: Weibull, with that mean."""

    mean: float
    scale: float
    shape: float
    slots: int

    @classmethod
    def of(cls, mean: float, spread: float, slots: int) -> End:
        """Fit mean and spread; the shape is Justus' approximation, spread / mean ^ -1.086."""
        mean = max(mean, LEAST_SECONDS)
        part = min(1.6, max(0.15, spread / mean))
        shape = part**-1.086
        return cls(mean, mean / gamma(1 + 1 / shape), shape, slots)


class Ends:
    """When slots come free: all that a shape could have, or all that its tenant may."""

    __slots__ = (
        "_ends",
        "_longest",
        "_mean_sum",
        "_nearly_all_by",
        "_points",
        "slots",
        "turnover",
    )

    def __init__(self, ends: Sequence[End]) -> None:
        self._ends = ends
        slots = 0
        mean_sum = longest = rate = nearly_all_by = 0.0
        for mean, scale, shape, count in ends:
            slots += count
            mean_sum += count * mean
            rate += count / mean
            longest = max(longest, mean)
            nearly_all_by = max(nearly_all_by, scale * _NEARLY_ALL ** (1 / shape))
        self.slots, self._mean_sum, self._longest = slots, mean_sum, longest
        self._nearly_all_by = nearly_all_by
        # (a time, slots that came free once by then, the seconds since in all), by time.
        self._points = [(0.0, 0.0, 0.0)]
        # The mean time from one free slot to the next.
        self.turnover = 1 / rate if rate else LEAST_SECONDS

    @classmethod
    def of(cls, rests: list[tuple[float, float, int]]) -> Ends:
        """Take the mean, the deviation and the slots of each lease, in a few groups."""
        rests.sort()
        size = max(1, -(-len(rests) // _GROUPS))
        return cls([_merge(rests[place : place + size]) for place in range(0, len(rests), size)])

    def least(self, ahead: Ahead, width: int, service: float) -> float:
        """Return when it would be, did all slots come free at their means: no later, about."""
        if not self.slots:
            return 0.0
        wanted = ahead.number + min(width, self.slots) - 1 + _FIRST
        return (_each(ahead, service) * (wanted - self.slots) + self._mean_sum) / self.slots

    def time_of(self, ahead: Ahead, width: int, service: float) -> float:
        """Return when so many will have come free that it is the turn of one that wide.

        `service` is its own, for want of any that goes before it.
        """
        least = self.least(ahead, width, service)
        number = ahead.number
        if least > self._nearly_all_by and self.slots <= 3 * number:
            return least
        wanted = number + min(width, self.slots) - 1 + _FIRST
        return self._search(wanted, _CLOSE * (number + _FIRST), _each(ahead, service), number)

    def _search(self, wanted: float, close: float, service: float, number: float) -> float:
        """Search between two points that are known, which may be close enough already."""
        (low, below), (high, above) = self._bracket(wanted, service, number)
        time = low - below * (high - low) / (above - below)
        if above - below <= close:
            return time
        for _ in range(_STEPS):
            excess = _freed(*self._look_at(time), service, number) - wanted
            if -close <= excess <= close:
                break
            if excess < 0:
                low, below, above = time, excess, above / 2
            else:
                high, above, below = time, excess, below / 2
            time = low - below * (high - low) / (above - below)
        return time

    def _bracket(
        self, wanted: float, service: float, number: float
    ) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return two times, at which fewer come free than are wanted, and no fewer: by how many."""
        points = self._points
        place, after = 0, len(points)
        while after - place > 1:
            middle = (place + after) // 2
            _, once, again = points[middle]
            if _freed(once, again, service, number) < wanted:
                place = middle
            else:
                after = middle
        time, once, again = points[place]
        low = high, above = time, _freed(once, again, service, number) - wanted
        if after < len(points):
            time, once, again = points[after]
            return low, (time, _freed(once, again, service, number) - wanted)
        while above < 0:
            high = 2 * max(high, wanted * service / self.slots, self._longest)
            above = _freed(*self._look_at(high), service, number) - wanted
        return low, (high, above)

    def _look_at(self, time: float) -> tuple[float, float]:
        """Return how many slots will have come free once by then, and for how long in all."""
        once = again = 0.0
        for mean, scale, shape, count in self._ends:
            once += count - count * exp(-((time / scale) ** shape))
            if time > mean:
                again += count * (time - mean)
        if len(self._points) < _MOST_POINTS:
            insort(self._points, (time, once, again))
        return once, again


def _freed(once: float, again: float, service: float, number: float) -> float:
    """Return N, of which no more than are granted before come free again.

    A slot that is free waits with a wide ticket.
    """
    return once + min(again / service, number)


def _each(ahead: Ahead, service: float) -> float:
    """Return the mean service of what goes before, or else one's own."""
    number = ahead.number
    return max(ahead.service / number if number > _CLOSE else service, LEAST_SECONDS)


class FreeSlots:
    """When the slots come free that some shape could have, as of not long ago."""

    __slots__ = ("ends", "made_at", "slots", "turns_over")

    def __init__(self, ends: Ends, slots: int, made_at: float, turns_over: int) -> None:
        self.ends = ends
        self.slots = slots
        self.made_at = made_at
        self.turns_over = turns_over

    def is_fresh(self, now: float, turns_over: int, wait: float) -> bool:
        """Whether such a wait may be told from it, after so many grants and ends in all."""
        age, turned_over = now - self.made_at, turns_over - self.turns_over
        if age <= FRESH_SECONDS and turned_over <= self.slots // _STALE_PART:
            return True
        return max(age, turned_over * self.ends.turnover) <= _FRESH_PART * wait


def _merge(rests: Sequence[tuple[float, float, int]]) -> End:
    slots = 0
    mean = spread = 0.0
    for each_mean, each_spread, width in rests:
        slots += width
        mean += each_mean * width
        spread += each_spread * width
    return End.of(mean / slots, spread / slots, slots)
