"""When slots come free, by what is expected of the leases that hold them.

    F_j(t)  = how likely slot j has come free by t: Weibull, with the lease's mean and deviation
    N(t)    = sum_j F_j(t) + sum_j max(0, t - m_j) / s: slots that came free by t, again and again

with m_j the mean of F_j and s the mean service of what goes before.  The time at which N(t) is a
given number is looked for by false position, from where a straight line would have it.
"""

from __future__ import annotations

from math import exp, gamma
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slotgate.core.turns import Ahead

# For so long the ends of what runs are taken to come nearer by the clock alone.
FRESH_SECONDS = 0.25
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

    __slots__ = ("_ends", "_longest", "_mean_sum", "slots", "turnover")

    def __init__(self, ends: Sequence[End]) -> None:
        self._ends = ends
        slots = 0
        mean_sum = longest = rate = 0.0
        for mean, _, _, count in ends:
            slots += count
            mean_sum += count * mean
            rate += count / mean
            longest = max(longest, mean)
        self.slots, self._mean_sum, self._longest = slots, mean_sum, longest
        # The mean time from one free slot to the next.
        self.turnover = 1 / rate if rate else LEAST_SECONDS

    @classmethod
    def of(cls, rests: list[tuple[float, float, int]]) -> Ends:
        """Take the mean, the deviation and the slots of each lease, in a few groups."""
        rests.sort()
        size = max(1, -(-len(rests) // _GROUPS))
        return cls([_merge(rests[place : place + size]) for place in range(0, len(rests), size)])

    def time_of(self, ahead: Ahead, width: int, service: float) -> float:
        """Return when so many will have come free that it is the turn of one that wide.

        `service` is its own, for want of any that goes before it.
        """
        number, slots = ahead.number, self.slots
        if number > _CLOSE:
            service = ahead.service / number
        service = max(service, LEAST_SECONDS)
        wanted = number + min(width, slots) - 1 + _FIRST
        close = _CLOSE * (number + _FIRST)
        # As if all slots came free at their means, which is no later: so it is, about, after all.
        low = (service * (wanted - slots) + self._mean_sum) / slots
        if low > self._longest:
            below = self._freed(low, service, number) - wanted
            if below >= -close:
                return low
        else:
            low, below = 0.0, -wanted
        return self._search(low, below, wanted, close, service, number)

    def _search(
        self, low: float, below: float, wanted: float, close: float, service: float, number: float
    ) -> float:
        """Search from a time that is too early, up to one that would be enough in any case."""
        high = wanted * service / self.slots + 2 * self._longest
        above = self._freed(high, service, number) - wanted
        for _ in range(_STEPS):
            time = low - below * (high - low) / (above - below)
            excess = self._freed(time, service, number) - wanted
            if -close <= excess <= close:
                return time
            if excess < 0:
                low, below, above = time, excess, above / 2
            else:
                high, above, below = time, excess, below / 2
        return (low + high) / 2

    def _freed(self, time: float, service: float, ahead: float) -> float:
        """Return how many slots will have come free by then: each once, and again after others."""
        once = again = 0.0
        for mean, scale, shape, count in self._ends:
            once += count - count * exp(-((time / scale) ** shape))
            if time > mean:
                again += count * (time - mean)
        # No more than are granted before can end again: a free slot waits with a wide ticket.
        return once + min(again / service, ahead)


class FreeSlots:
    """When the slots come free that some shape could have, as of not long ago."""

    __slots__ = ("ends", "made_at", "slots", "turns_over")

    def __init__(self, ends: Ends, slots: int, made_at: float, turns_over: int) -> None:
        self.ends = ends
        self.slots = slots
        self.made_at = made_at
        self.turns_over = turns_over

    def is_fresh(self, now: float, turns_over: int) -> bool:
        """Whether it may still be believed, after so many grants and ends in all."""
        return (
            now - self.made_at <= FRESH_SECONDS
            and turns_over - self.turns_over <= self.slots // _STALE_PART
        )


def _merge(rests: Sequence[tuple[float, float, int]]) -> End:
    slots = 0
    mean = spread = 0.0
    for each_mean, each_spread, width in rests:
        slots += width
        mean += each_mean * width
        spread += each_spread * width
    return End.of(mean / slots, spread / slots, slots)
