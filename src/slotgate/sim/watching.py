"""Looks on while a rehearsal runs: how far one tenant's service gets ahead of another's.

What fair queueing promises is about *backlogged* tenants: over any stretch of time in which two of
them both have somebody waiting, the difference of what they are served is bounded.  It is looked
at with every token here, which no record could tell afterwards.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slotgate.load.arrival import Arrival
    from slotgate.load.run import Costs


class LeadWatch:
    """The widest lead of one tenant over another while both wait, in cost units."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._waiting: dict[str, int] = defaultdict(int)
        self._served: dict[str, float] = defaultdict(float)
        # Pair of tenants that both wait -> lowest and highest difference since they do.
        self._spans: dict[tuple[str, str], tuple[float, float]] = {}
        self.widest = 0.0
        # Whoever waited longest together did so for this many seconds.
        self.longest = 0.0
        self._since: dict[tuple[str, str], float] = {}

    def coming(self, ticket_id: str, arrival: Arrival) -> None:
        """What matters is what is served."""

    def queued(self, now: float, tenant: str, change: int) -> None:
        had_any = self._waiting[tenant] > 0
        self._waiting[tenant] += change
        has_any = self._waiting[tenant] > 0
        if had_any == has_any:
            return
        for other, waiting in self._waiting.items():
            if other != tenant and waiting > 0:
                pair = _pair(tenant, other)
                if has_any:
                    difference = self._difference(pair)
                    self._spans[pair] = (difference, difference)
                    self._since[pair] = now
                else:
                    del self._spans[pair]
                    self.longest = max(self.longest, now - self._since.pop(pair))

    def served(self, now: float, tenant: str, *, input_tokens: int, output_tokens: int) -> None:
        del now
        self._served[tenant] += self._costs.of(input_tokens, output_tokens)
        for pair, (lowest, highest) in self._spans.items():
            if tenant in pair:
                difference = self._difference(pair)
                low, high = min(lowest, difference), max(highest, difference)
                self._spans[pair] = (low, high)
                self.widest = max(self.widest, high - low)

    def _difference(self, pair: tuple[str, str]) -> float:
        return self._served[pair[0]] - self._served[pair[1]]


def _pair(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one < other else (other, one)
