"""When to come back: what stands behind `Retry-After`.

Telling everybody the same delay brings the crowd back together, and SDKs add no jitter to a delay
that a server gave.  So each refused client is given the next free date of a virtual calendar, which
fills at the speed at which the queue drains:

    booked   = dates given out and not yet due; it falls by phi mu a second
    t        = base + booked / (phi mu)
    delay    = t (1 + U(0, 0.1)), or cap U(0.7, 1) if that is beyond the cap

mu is the drain rate, phi = 0.7 leaves 30 % of it for fresh traffic, and base is when a newcomer
would next be served in time.  The cap is on the jittered delay: dates beyond it are spread over
its last third, and dates beyond twice the cap are not booked.  Dates are counted, not kept as
times: a rate that was only guessed when they were given must not be believed for ever.

Each tenant has a calendar of its own, which fills at its share of the rate, by weight: so a tenant
that asks for too much sends only itself far into the future.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from slotgate.core.clock import Dice

_SHARE_FOR_RETURNS = 0.7  # phi
_JITTER = 0.1
_LAST_PART = 0.3

# The drain rate is a mean over about this many completions.
_MEMORY = 32
# Completions in the same instant say little; no backend is faster than this.
_FASTEST_PER_SECOND = 1000.0


class DrainRate:
    """How many leases end a second, observed while somebody waits.

    An idle queue says nothing about how fast a full one drains, so time without a backlog does
    not count.  The rate is sum(completions) / sum(seconds), both fading by 1/32 a completion:
    unlike a mean of gaps it bears completions that come in bunches.

    Before the first completion of a backlog, slots / mean holding time must do; and before any
    request has ended, a guess of that time, or that nothing has ended for so long.
    """

    def __init__(
        self, *, slowest_service_seconds: float, typical_service_seconds: float = 10.0
    ) -> None:
        self._slowest_service_seconds = slowest_service_seconds
        # The mean holding time, fading as the rate does.
        self._held_seconds = typical_service_seconds
        self._has_held = False
        self._completions = 0.0
        self._seconds = 0.0
        # Since when somebody waits, or the last completion after that; None while nobody does.
        self._since: float | None = None

    def observe(self, now: float, *, is_backlogged: bool) -> None:
        """Note whether somebody waits from now on."""
        if not is_backlogged:
            self._since = None
        elif self._since is None:
            self._since = now

    def completed(self, now: float, *, held_seconds: float) -> None:
        """Note that a lease's slots came free, after having been held for so long."""
        keep = 1 - 1 / _MEMORY if self._has_held else 0.0
        self._held_seconds = self._held_seconds * keep + held_seconds * (1 - keep)
        self._has_held = True
        if self._since is None:
            return
        keep = 1 - 1 / _MEMORY
        self._completions = self._completions * keep + 1
        self._seconds = self._seconds * keep + now - self._since
        self._since = now

    def per_second(self, now: float, *, slots: int) -> float:
        """Return the rate, at least that of so many slots at their slowest."""
        floor = max(1, slots) / self._slowest_service_seconds
        # The gap that is still open counts, so that a pool that got stuck is seen to be slow.
        open_gap = 0.0 if self._since is None else now - self._since
        if not self._completions:
            seconds = max(self._held_seconds / max(1, slots), open_gap, 1 / _FASTEST_PER_SECOND)
            return max(floor, 1 / seconds)
        seconds = max(self._seconds + open_gap, self._completions / _FASTEST_PER_SECOND)
        return max(floor, self._completions / seconds)


class RetryPolicy(Protocol):
    """Says in how many seconds to come back: above 0, at most the cap."""

    def book(self, now: float, *, tenant: str, weight: float, base: float, rate: float) -> float:
        """Return the delay for one more that was refused.

        `base` is in how many seconds a newcomer would next be served in time, `rate` how many
        requests end a second.
        """


class TenantCalendars:
    """A return calendar for each tenant, which has its share of the rate."""

    def __init__(self, *, dice: Dice, cap_seconds: float) -> None:
        self._dice = dice
        self._cap_seconds = cap_seconds
        # Tenant -> (calendar, weight, when it last booked), who booked longest ago first.
        self._books: dict[str, tuple[ReturnCalendar, float, float]] = {}
        self._weights = 0.0

    def book(self, now: float, *, tenant: str, weight: float, base: float, rate: float) -> float:
        """Return the tenant's next date."""
        self._forget(now)
        calendar = self._take(tenant)
        if calendar is None:
            calendar = ReturnCalendar(dice=self._dice, cap_seconds=self._cap_seconds)
        self._books[tenant] = (calendar, weight, now)
        self._weights += weight
        return calendar.book(now, base=base, rate=rate * weight / self._weights)

    def _forget(self, now: float) -> None:
        # No date is further away than the cap, so by then all of them have come.
        while self._books:
            tenant, (_, _, at) = next(iter(self._books.items()))
            if now - at <= self._cap_seconds:
                return
            self._take(tenant)

    def _take(self, tenant: str) -> ReturnCalendar | None:
        entry = self._books.pop(tenant, None)
        if entry is None:
            return None
        self._weights = self._weights - entry[1] if self._books else 0.0
        return entry[0]


class AdaptiveRetry:
    """Doubles the delay while more than three a second are refused, lowers it when few are.

    After Kubernetes' priority and fairness: at most once in each delay, by a second for each that
    has passed; from 1 s to the cap.  Needs no estimate of any speed.
    """

    def __init__(self, *, dice: Dice, cap_seconds: float) -> None:
        self._dice = dice
        self._cap_seconds = cap_seconds
        # So that the jitter stays within the cap.
        self._most = cap_seconds / (1 + _JITTER)
        self._delay = 1.0
        self._refused = 0
        self._since = float("-inf")

    def book(self, now: float, *, tenant: str, weight: float, base: float, rate: float) -> float:
        """Return the present delay, with jitter."""
        self._refused += 1
        passed = (now - self._since) / self._delay
        if passed >= 1:
            if self._refused >= 3 * self._delay * passed:
                self._delay = min(self._most, 2 * self._delay)
            elif self._refused < self._delay * passed:
                self._delay = min(self._most, max(1.0, self._delay - passed))
            self._refused, self._since = 0, now
        return min(self._cap_seconds, self._delay * (1 + _JITTER * self._dice.random()))


class ConstantRetry:
    """The same for everybody, with jitter."""

    def __init__(self, *, dice: Dice, cap_seconds: float, delay_seconds: float = 5.0) -> None:
        self._dice = dice
        self._cap_seconds = cap_seconds
        self._delay = min(delay_seconds, cap_seconds / (1 + _JITTER))

    def book(self, now: float, *, tenant: str, weight: float, base: float, rate: float) -> float:
        """Return the delay."""
        return min(self._cap_seconds, self._delay * (1 + _JITTER * self._dice.random()))


class ReturnCalendar:
    """Gives each refused client its own time to come back."""

    def __init__(self, *, dice: Dice, cap_seconds: float) -> None:
        self._dice = dice
        self._cap_seconds = cap_seconds
        # Dates that are not yet due, and when that was.
        self._booked = 0.0
        self._booked_at = float("-inf")

    def book(self, now: float, *, base: float, rate: float) -> float:
        """Return the delay in seconds after which to come back: above 0, at most the cap."""
        cap = self._cap_seconds
        per_second = _SHARE_FOR_RETURNS * rate
        ahead = max(0.0, self._booked / per_second - (now - self._booked_at))
        self._booked = max(0.0, min(base + ahead, 2 * cap) - base) * per_second + 1
        self._booked_at = now
        delay = (base + ahead) * (1 + _JITTER * self._dice.random())
        if delay > cap:
            return cap * (1 - _LAST_PART * self._dice.random())
        return delay


def soon(dice: Dice) -> float:
    """Return 1 to 3 seconds: for what is not a matter of load, and may be over any moment."""
    return 1 + 2 * dice.random()
