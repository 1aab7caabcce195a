"""How likely a newcomer is to start in time, learned from what became of those that waited.

    r      = (time until it must start + c) / (foretold wait + c)
    chance = 1 - product over the steps of r up to that of (1 - ended / still waiting)

with c the mean time from one free slot to the next, as for `WaitCalibration`.  Whose wait ended
without a grant would have waited longer; left out, as only grants can be compared with what was
foretold, waits would seem short just where most are too long.  So it counts as one that was still
waiting then (the estimate of Kaplan and Meier).

Each tenant's waits speak for it.  Of a tenant that asks for ten times its share somebody comes at
every moment at which a forecast errs on the short side, so waits of its that were let in are longer
than foretold; of one that asks seldom they are not.  As long as they are few, those of all
stand in; and for those, an exponential of which two of three are no longer than foretold.  What
happened fades with time, since who is refused teaches nothing.

What is known of all is asked for at every arrival, and is made anew once a hundredth of it has
come since, or after a second: until then a chance is off by about as much.  A tenant's own waits
count at once.
"""

from __future__ import annotations

from itertools import pairwise
from math import inf, log2

# Steps of r are an eighth of an octave, from 1/4 to 4.
_STEPS_PER_OCTAVE = 8
_OCTAVES = 2
_STEPS = 2 * _OCTAVES * _STEPS_PER_OCTAVE + 1
# After so long what happened counts half.
_HALF_LIFE_SECONDS = 300.0
# Weights grow instead of all old ones fading; when they are this large, all are scaled down.
_MOST = 2.0**40
# What stands in counts as so many waits.
_STAND_IN = 10.0
# What is known of all may be so old, in seconds; and miss such a part of what it counts.
_FRESH_SECONDS = 1.0
_STALE_PART = 0.01
# Tenants whose waits are kept: those that waited last.
_MOST_TENANTS = 1000


def _step(ratio: float) -> int:
    most = 2.0**_OCTAVES
    return round(_STEPS_PER_OCTAVE * (log2(min(most, max(1 / most, ratio))) + _OCTAVES))


def _exponential() -> list[float]:
    """Return the part that ends in each step, of those that got there: 1 - 3^-r do by r."""
    ends: list[float] = [2 ** ((n + 0.5) / _STEPS_PER_OCTAVE - _OCTAVES) for n in range(_STEPS)]
    return [1 - 3.0 ** (start - end) for start, end in pairwise([0.0, *ends])]


_UNKNOWN = _exponential()


def chance_of_next(wait: float, left: float) -> float:
    """Return how likely the first slot comes free in the time that is left.

    That is an exponential whatever runs; and were it learned, nobody might be let in any more who
    could teach otherwise.
    """
    if wait <= 0 or left <= 0:
        return float(left >= wait)
    return 1 - float(3.0 ** -(left / wait))


class _Waits:
    """Waits by r, old ones fading: those that ended in a grant, and those that did not."""

    __slots__ = ("_cut", "_ended", "_since", "_total")

    def __init__(self, now: float) -> None:
        self._since = now
        self._ended = [0.0] * _STEPS
        self._cut = [0.0] * _STEPS
        self._total = 0.0

    def add(self, step: int, now: float, *, is_granted: bool) -> None:
        weight = self._weight(now)
        if weight == _MOST:
            self._ended = [each / weight for each in self._ended]
            self._cut = [each / weight for each in self._cut]
            self._total /= weight
            self._since, weight = now, 1.0
        (self._ended if is_granted else self._cut)[step] += weight
        self._total += weight

    def _weight(self, now: float) -> float:
        return min(_MOST, float(2.0 ** min(1000.0, (now - self._since) / _HALF_LIFE_SECONDS)))

    def count(self, now: float) -> float:
        """Return how many waits those that were seen are worth now."""
        return self._total / self._weight(now)

    def late(self, stand_in: list[float], now: float, steps: int = _STEPS) -> list[float]:
        """Return the part that has not ended after each of the first steps.

        `stand_in` is the part that ends in each, of those that got there, as far as others tell.
        """
        extra = _STAND_IN * self._weight(now)
        waiting = extra + self._total
        late, found = 1.0, []
        for ended, cut, other in zip(self._ended[:steps], self._cut, stand_in, strict=False):
            late *= 1 - (ended + extra * other) / waiting
            found.append(late)
            waiting -= ended + cut
        return found


class Chances:
    """The chances of one model's tenants."""

    def __init__(self) -> None:
        self._of_all = _Waits(0.0)
        # By step, of all: the part that has not ended after it, and the part that ends in it, of
        # those that got there.  As of when, and how many may come until that is made anew.
        self._late: list[float] = []
        self._hazards: list[float] = []
        self._made_at = -inf
        self._may_come = 0
        # Tenant -> its waits, the one that waited longest ago first.
        self._of_tenant: dict[str, _Waits] = {}

    def observe(self, tenant: str, ratio: float, now: float, *, is_granted: bool) -> None:
        """Note a wait that has ended, as the r to which it came."""
        step = _step(ratio)
        waits = self._of_tenant.pop(tenant, None) or _Waits(now)
        self._of_tenant[tenant] = waits
        for each in (self._of_all, waits):
            each.add(step, now, is_granted=is_granted)
        self._may_come -= 1
        if len(self._of_tenant) > _MOST_TENANTS:
            del self._of_tenant[next(iter(self._of_tenant))]

    def of(self, tenant: str, ratio: float, now: float) -> float:
        """Return how likely a wait of the tenant ends by that r."""
        if self._may_come < 0 or now - self._made_at > _FRESH_SECONDS:
            self._look_at_all(now)
        step = _step(ratio)
        waits = self._of_tenant.get(tenant)
        late = self._late if waits is None else waits.late(self._hazards, now, step + 1)
        return 1 - late[step]

    def _look_at_all(self, now: float) -> None:
        self._made_at, self._may_come = now, int(_STALE_PART * self._of_all.count(now))
        self._late = late = self._of_all.late(_UNKNOWN, now)
        self._hazards = [1 - then / before for before, then in pairwise([1.0, *late])]
