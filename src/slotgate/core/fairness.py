"""Whose turn it is: fairness among the tenants that wait for one model.

Virtual token counters (Sheng et al., OSDI 2024), weighted.  Each tenant has a counter of the
service that it has had, in cost divided by its weight; the tenant that waits with the smallest
counter is next.  A counter grows with what is streamed, so nothing need be known in advance.  A
tenant that comes back is lifted to the smallest counter among those that wait (or that of the last
one that waited), so that nobody saves up service while away.

Of two tenants that wait all the time, the service differs by at most 2U over any interval, where
U = cost of the longest prompt + cost of what all slots may write after a grant; hence the promise
is about a long run and not about each moment.  docs/explanation/fairness.md has the
definition, the bound and its proof in words.

The other policies share the counters, and differ in what they count or how finely they compare.
"""

from __future__ import annotations

from collections import Counter
from math import exp2, inf, log2, nextafter
from typing import Protocol

from typing_extensions import override

from slotgate.core.line import Line

# Counters beyond so many are looked through for some that may be forgotten.
_MANY = 1024
_LAS_HALF_LIFE_SECONDS = 60.0
_DRR_QUANTUM = 4000.0


class FairPolicy(Protocol):
    """Orders tenants.  A tenant *waits* from `arrive` or `resume` to `depart`.

    Only a refund, `arrive` or `resume` may lower a key: the queue finds the smallest key by looking
    again at those that were small.

    What is foretold needs a scale on which a tenant's tickets follow each other evenly.  On that, a
    ticket moves its tenant on by its *toll*, and its *turn* comes when those before it have.
    `minds_order` says that the order of tickets may decide between tenants too, `is_one_line` that
    nothing else does; `fades`, that this scale changes with time alone.
    """

    minds_order: bool
    is_one_line: bool
    fades: bool

    def key(self, tenant: str) -> float:
        """Return the tenant's place: the smallest is next."""

    def toll(self, cost: float, weight: float) -> float:
        """Return how far a request of that cost and weight is expected to move its tenant on."""

    def key_after(self, tenant: str, toll: float) -> float:
        """Return how far the tenant will be once it has moved on by that much."""

    def turn(self, tenant: str, toll: float, part: float) -> float:
        """Return when the turn comes of a ticket behind so much toll of its tenant's.

        `part` of all that wait are before it by the order of tickets, if that is minded.
        """

    def entry_turn(self, tenant: str) -> float:
        """Return when the tenant's turn would come if it began to wait now."""

    def arrive(self, tenant: str) -> None:
        """Note that the tenant begins to wait."""

    def depart(self, tenant: str) -> None:
        """Note that nothing of the tenant waits any more, or that it is at its cap."""

    def resume(self, tenant: str) -> None:
        """Note that the tenant, which departed at its cap, is below it again."""

    def pass_by(self, tenant: str) -> None:
        """Note that the tenant arrives and departs at once, while nobody waits."""

    def grant(self, tenant: str, weight: float) -> None:
        """Note that a request of the tenant, of that weight, begins to run."""

    def end(self, tenant: str) -> None:
        """Note that a request of the tenant does not run any more: it is charged no more."""

    def charge(self, tenant: str, cost: float, at: float) -> None:
        """Note service in cost divided by weight, which it had then.

        Below 0 it is a refund, of what was charged for that moment.
        """


class Vtc:
    """Weighted virtual token counters."""

    minds_order = is_one_line = fades = False
    _ZERO = 0.0

    def __init__(self) -> None:
        self._counters: dict[str, float] = {}
        # The tenants that wait, by a counter that may be too small by now.
        self._waiting: Line[str] = Line()
        # The tenant that waited last, once none does.
        self._last: str | None = None
        # Tenant -> its requests that run.
        self._running: Counter[str] = Counter()
        self._sweep_at = _MANY

    def key(self, tenant: str) -> float:
        """Return the tenant's counter."""
        return self._counters.get(tenant, self._ZERO)

    def toll(self, cost: float, weight: float) -> float:
        """Return what will be charged."""
        return cost / weight

    def key_after(self, tenant: str, toll: float) -> float:
        """Return the counter once that has been charged."""
        return self._counters.get(tenant, self._ZERO) + toll

    def turn(self, tenant: str, toll: float, part: float) -> float:
        """Return the counter with which the ticket is next."""
        return self.key_after(tenant, toll)

    def entry_turn(self, tenant: str) -> float:
        """Return the counter to which the tenant would be lifted."""
        return max(self._counters.get(tenant, self._ZERO), self._floor())

    def arrive(self, tenant: str) -> None:
        """Lift the tenant to those that wait, or else to the one that waited last."""
        self._lift(tenant, self._floor())
        self._waiting.join(tenant, self._counters[tenant], tenant)

    def depart(self, tenant: str) -> None:
        """Let the tenant go; its counter stays, and grows on while it is served."""
        self._waiting.leave(tenant)
        self._last = tenant

    def resume(self, tenant: str) -> None:
        """Lift the tenant to just before those that wait.

        Its cap took a turn from it that it could have used, so it goes first among equals; but
        what it did not use at its cap is gone.
        """
        self._lift(tenant, nextafter(self._floor(), -inf))
        self._waiting.join(tenant, self._counters[tenant], tenant)

    def pass_by(self, tenant: str) -> None:
        """Lift the tenant to the one before it; it is now the last that waited."""
        self._lift(tenant, self._floor())
        self._last = tenant

    def grant(self, tenant: str, weight: float) -> None:
        """Remember that the tenant will be charged; a grant itself costs nothing."""
        self._running[tenant] += 1

    def end(self, tenant: str) -> None:
        """Let the tenant be forgotten, once nothing of it runs."""
        self._running[tenant] -= 1
        if self._running[tenant] <= 0:
            del self._running[tenant]

    def charge(self, tenant: str, cost: float, at: float) -> None:
        """Add to the tenant's counter."""
        self._set(tenant, self._counters.get(tenant, self._ZERO) + cost, is_less=cost < 0)

    def _lift(self, tenant: str, floor: float) -> None:
        self._counters[tenant] = max(self._counters.get(tenant, self._ZERO), floor)
        if len(self._counters) > self._sweep_at:
            self._sweep(tenant)

    def _set(self, tenant: str, counter: float, *, is_less: bool) -> None:
        self._counters[tenant] = counter
        if is_less and tenant in self._waiting:
            self._waiting.join(tenant, counter, tenant)

    def _floor(self) -> float:
        """Return the smallest counter among those that wait, else that of the last that did."""
        while (entry := self._waiting.first_entry()) is not None:
            noted, tenant = entry
            counter = self._counters[tenant]
            if counter == noted:
                return counter
            self._waiting.delay_first(counter)
        return self._counters.get(self._last, self._ZERO) if self._last is not None else self._ZERO

    def _sweep(self, newcomer: str) -> None:
        # Whoever has had no more than those that wait would be lifted to them anyway; but not
        # without what it is still to be charged.
        floor = self._floor()
        kept = {newcomer, self._last, *self._running}
        self._counters = {
            tenant: counter
            for tenant, counter in self._counters.items()
            if counter > floor or tenant in self._waiting or tenant in kept
        }
        self._sweep_at = max(_MANY, 2 * len(self._counters))


class DeficitRoundRobin(Vtc):
    """Deficit round robin: turns of one quantum of cost, and within a turn by arrival.

    A tenant is served in each turn until it has used up its quantum, and what it takes beyond is
    owed in the next; so its turn is the number of whole quanta in its counter.
    """

    minds_order = True

    def __init__(self, quantum: float = _DRR_QUANTUM) -> None:
        super().__init__()
        self._quantum = quantum

    @override
    def key(self, tenant: str) -> float:
        return super().key(tenant) // self._quantum

    @override
    def turn(self, tenant: str, toll: float, part: float) -> float:
        return self._within(self.key_after(tenant, toll), part)

    @override
    def entry_turn(self, tenant: str) -> float:
        return self._within(super().entry_turn(tenant), 1.0)

    def _within(self, counter: float, part: float) -> float:
        # Others go first for their quanta of this turn, as far as they came first.
        return (counter // self._quantum + part) * self._quantum


class RoundRobin(Vtc):
    """One request each in turn, however large: fair in requests, not in service."""

    @override
    def toll(self, cost: float, weight: float) -> float:
        return 1 / weight

    @override
    def grant(self, tenant: str, weight: float) -> None:
        super().grant(tenant, weight)
        super().charge(tenant, 1 / weight, 0.0)

    @override
    def charge(self, tenant: str, cost: float, at: float) -> None:
        pass


class LeastRecentService(Vtc):
    """Least attained service, which is forgotten by half each minute.

    Instead of all counters fading, what comes later weighs more: the order is the same, and keys
    only grow.  Keys are logarithms, which no age makes too large.
    """

    fades = True
    _ZERO = -inf

    def __init__(self, half_life_seconds: float = _LAS_HALF_LIFE_SECONDS) -> None:
        super().__init__()
        self._half_life = half_life_seconds
        self._age = 0.0

    @override
    def key_after(self, tenant: str, toll: float) -> float:
        # Not a logarithm: in service of the present weight.
        return self._present(self.key(tenant)) + toll

    @override
    def entry_turn(self, tenant: str) -> float:
        return self._present(super().entry_turn(tenant))

    def _present(self, key: float) -> float:
        return exp2(key - self._age)

    @override
    def charge(self, tenant: str, cost: float, at: float) -> None:
        age = at / self._half_life
        self._age = max(self._age, age)
        self._set(tenant, _log_sum(self.key(tenant), cost, age), is_less=cost < 0)


def _log_sum(key: float, cost: float, age: float) -> float:
    """Return log2(2^key + cost 2^age), or -inf where a refund leaves nothing."""
    if not cost:
        return key
    added = log2(abs(cost)) + age
    if cost < 0:
        # Of numbers that are nearly equal, rounding may leave nothing.
        left = 1 - 2.0 ** min(0.0, added - key)
        return key + log2(left) if left else -inf
    return max(key, added) + log2(1 + 2.0 ** -abs(key - added))


class NoFairness:
    """Everybody is the same tenant: first come, first served, whoever asks for how much."""

    minds_order = is_one_line = True
    fades = False

    def key(self, tenant: str) -> float:
        """Return the same for all."""
        return 0.0

    def toll(self, cost: float, weight: float) -> float:
        """Nothing moves."""
        return 0.0

    def key_after(self, tenant: str, toll: float) -> float:
        """Return the same for all."""
        return 0.0

    def turn(self, tenant: str, toll: float, part: float) -> float:
        """Return what is before all: no tenant goes before another one."""
        return -inf

    def entry_turn(self, tenant: str) -> float:
        """Return what is before all."""
        return -inf

    def arrive(self, tenant: str) -> None:
        """Nothing to note."""

    def depart(self, tenant: str) -> None:
        """Nothing to note."""

    def resume(self, tenant: str) -> None:
        """Nothing to note."""

    def pass_by(self, tenant: str) -> None:
        """Nothing to note."""

    def grant(self, tenant: str, weight: float) -> None:
        """Nothing to note."""

    def end(self, tenant: str) -> None:
        """Nothing to note."""

    def charge(self, tenant: str, cost: float, at: float) -> None:
        """Nothing to note."""
