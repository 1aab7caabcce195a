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
"""

from __future__ import annotations

from itertools import pairwise
from math import log2

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

    __slots__ = ("_cut", "_ended", "_since")

    def __init__(self, now: float) -> None:
        self._since = now
        self._ended = [0.0] * _STEPS
        self._cut = [0.0] * _STEPS

    def add(self, step: int, now: float, *, is_granted: bool) -> None:
        weight = self._weight(now)
        if weight == _MOST:
            self._ended = [each / weight for each in self._ended]
            self._cut = [each / weight for each in self._cut]
            self._since, weight = now, 1.0
        (self._ended if is_granted else self._cut)[step] += weight

    def _weight(self, now: float) -> float:
        return min(_MOST, float(2.0 ** min(1000.0, (now - self._since) / _HALF_LIFE_SECONDS)))

    def hazards(self, stand_in: list[float], now: float) -> list[float]:
        """Return the part that ends in each step, of those that got there."""
        extra = _STAND_IN * self._weight(now)
        waiting = extra + sum(self._ended) + sum(self._cut)
        found = []
        for ended, cut, other in zip(self._ended, self._cut, stand_in, strict=True):
            found.append((ended + extra * other) / waiting)
            waiting -= ended + cut
        return found


class Chances:
    """The chances of one model's tenants."""

    def __init__(self) -> None:
        self._of_all = _Waits(0.0)
        # Tenant -> its waits, the one that waited longest ago first.
        self._of_tenant: dict[str, _Waits] = {}

    def observe(self, tenant: str, ratio: float, now: float, *, is_granted: bool) -> None:
        """Note a wait that has ended, as the r to which it came."""
        step = _step(ratio)
        waits = self._of_tenant.pop(tenant, None) or _Waits(now)
        self._of_tenant[tenant] = waits
        for each in (self._of_all, waits):
            each.add(step, now, is_granted=is_granted)
        if len(self._of_tenant) > _MOST_TENANTS:
            del self._of_tenant[next(iter(self._of_tenant))]

    def of(self, tenant: str, ratio: float, now: float) -> float:
        """Return how likely a wait of the tenant ends by that r."""
        hazards = self._of_all.hazards(_UNKNOWN, now)
        waits = self._of_tenant.get(tenant)
        if waits is not None:
            hazards = waits.hazards(hazards, now)
        late = 1.0
        for hazard in hazards[: _step(ratio) + 1]:
            late *= 1 - hazard
        return 1 - late
