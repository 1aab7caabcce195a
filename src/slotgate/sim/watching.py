"""Looks on while a rehearsal runs: how far one tenant's service gets ahead of another's.

What fair queueing promises is about *backlogged* tenants: over any stretch of time in which two of
them both have somebody waiting, the difference of what they are charged is bounded.  So it is
looked at with every charge, in the scheduler's own costs, which are calibrated as it runs: records
could tell neither afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from slotgate.core.fairness import FairPolicy


class _Span(NamedTuple):
    """A stretch in which two tenants both wait: their difference at its lowest and highest."""

    lowest: float
    highest: float
    began_with: float  # what both together had been charged


class Leads:
    """The widest lead of one tenant over another while both wait.

    `widest` is that lead, and `longest` what both were charged in the longest such stretch.
    """

    def __init__(self) -> None:
        self._charged: dict[str, float] = {}
        self._waiting: set[str] = set()
        # Pair of tenants that both wait, in alphabetical order -> their stretch.
        self._spans: dict[tuple[str, str], _Span] = {}
        self.widest = 0.0
        self.longest = 0.0

    def begin(self, tenant: str) -> None:
        for other in self._waiting - {tenant}:
            pair = (min(tenant, other), max(tenant, other))
            difference = self._difference(pair)
            self._spans[pair] = _Span(difference, difference, self._sum(pair))
        self._waiting.add(tenant)

    def end(self, tenant: str) -> None:
        self._waiting.discard(tenant)
        self._spans = {pair: span for pair, span in self._spans.items() if tenant not in pair}

    def charge(self, tenant: str, cost: float) -> None:
        self._charged[tenant] = self._charged.get(tenant, 0.0) + cost
        for pair, span in self._spans.items():
            if tenant in pair:
                difference = self._difference(pair)
                lowest, highest = min(span.lowest, difference), max(span.highest, difference)
                self._spans[pair] = _Span(lowest, highest, span.began_with)
                self.widest = max(self.widest, highest - lowest)
                self.longest = max(self.longest, self._sum(pair) - span.began_with)

    def _difference(self, pair: tuple[str, str]) -> float:
        return self._charged.get(pair[0], 0.0) - self._charged.get(pair[1], 0.0)

    def _sum(self, pair: tuple[str, str]) -> float:
        return self._charged.get(pair[0], 0.0) + self._charged.get(pair[1], 0.0)


class Watched:
    """A fairness policy that does as another one does, and is looked at."""

    def __init__(self, policy: FairPolicy, leads: Leads) -> None:
        self.minds_order, self.is_one_line = policy.minds_order, policy.is_one_line
        self.fades = policy.fades
        self._policy = policy
        self._leads = leads

    def key(self, tenant: str) -> float:
        return self._policy.key(tenant)

    def toll(self, cost: float, weight: float) -> float:
        return self._policy.toll(cost, weight)

    def key_after(self, tenant: str, toll: float) -> float:
        return self._policy.key_after(tenant, toll)

    def turn(self, tenant: str, toll: float, part: float) -> float:
        return self._policy.turn(tenant, toll, part)

    def entry_turn(self, tenant: str) -> float:
        return self._policy.entry_turn(tenant)

    def arrive(self, tenant: str) -> None:
        self._policy.arrive(tenant)
        self._leads.begin(tenant)

    def resume(self, tenant: str) -> None:
        self._policy.resume(tenant)
        self._leads.begin(tenant)

    def pass_by(self, tenant: str) -> None:
        self._policy.pass_by(tenant)

    def depart(self, tenant: str) -> None:
        self._policy.depart(tenant)
        self._leads.end(tenant)

    def grant(self, tenant: str, weight: float) -> None:
        self._policy.grant(tenant, weight)

    def end(self, tenant: str) -> None:
        self._policy.end(tenant)

    def charge(self, tenant: str, cost: float, at: float) -> None:
        self._policy.charge(tenant, cost, at)
        self._leads.charge(tenant, cost)


def watched(make: Callable[[], FairPolicy], leads: Leads) -> Callable[[], FairPolicy]:
    """Have what `make` makes looked at."""
    return lambda: Watched(make(), leads)
