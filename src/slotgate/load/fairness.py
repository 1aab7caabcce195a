"""Who got his share: max-min fair shares, Jain's index on them, and the widest lead in service.

Jain's index on plain shares in time punishes a scheduler for holding back a tenant that asks for
too much.  So what each got is first divided by what is fair for him: all that he asks for, or an
equal part of what is left over by those who ask for less (water-filling).

The lead is what a bound of fair queueing speaks of: over every stretch of time in which two
tenants both had somebody waiting, how much more service one of them got than the other.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations
from typing import TYPE_CHECKING, Final

from slotgate.load.run import Service

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from slotgate.load.record import Record
    from slotgate.load.run import Costs, Run

# The lead is looked for between each two of the tenants that ask for most.
MOST_TENANTS: Final = 16
# Records tell when an answer began and ended: its tokens are spread over so many steps.
_STEPS: Final = 8

Span = tuple[float, float]


def fair_shares(
    demands: Mapping[str, float], capacity: float, weights: Mapping[str, float]
) -> dict[str, float]:
    """Divide the capacity: nobody gets more than he asks for, and what he leaves is shared on."""
    shares: dict[str, float] = {}
    left = capacity
    # By what they ask for in relation to their weight: whoever asks less than an even part of
    # what is left is satisfied, and the even part of the others grows.
    tenants = sorted(demands, key=lambda tenant: demands[tenant] / weights.get(tenant, 1.0))
    weight_left = sum(weights.get(tenant, 1.0) for tenant in tenants)
    for tenant in tenants:
        weight = weights.get(tenant, 1.0)
        shares[tenant] = min(demands[tenant], left * weight / weight_left)
        left -= shares[tenant]
        weight_left -= weight
    return shares


def jain(values: Sequence[float]) -> float | None:
    """1 when all are equal, 1/n when one has everything."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else None


class Ledger:
    """What the tenants of one run asked for and got, in cost units."""

    def __init__(self, run: Run, costs: Costs) -> None:
        self._run = run
        self._costs = costs
        self.demands: dict[str, float] = defaultdict(float)
        self.services: dict[str, float] = defaultdict(float)
        for record in run.records:
            arrival = record.arrival
            wanted = arrival.wanted_tokens * arrival.width
            self.demands[arrival.tenant] += costs.of(arrival.input_tokens, wanted)
            self.services[arrival.tenant] += costs.of(record.input_done, record.output_done)
        self.shares = fair_shares(self.demands, sum(self.services.values()), run.weights)

    @property
    def heavy(self) -> frozenset[str]:
        """Those that ask for more than their fair share."""
        if self._run.heavy is not None:
            return self._run.heavy
        return frozenset(t for t, wanted in self.demands.items() if self.shares[t] < wanted * 0.999)

    def jain(self) -> float | None:
        """Jain's index on service divided by fair share."""
        return jain([self.services[t] / share for t, share in self.shares.items() if share > 0])

    def widest_lead(self) -> float | None:
        """The most service that one tenant got ahead of another while both had waiters."""
        tenants = sorted(self.demands, key=lambda t: (-self.demands[t], t))[:MOST_TENANTS]
        waiting = {tenant: _waiting(self._run.records, tenant) for tenant in tenants}
        services = self._run.services or _from_records(self._run.records, self._costs)
        samples: dict[str, list[Service]] = defaultdict(list)
        for service in services:
            samples[service.tenant].append(service)
        leads = [
            lead
            for left, right in combinations(tenants, 2)
            for span in _both(waiting[left], waiting[right])
            if (lead := self._lead(samples, (left, right), span)) is not None
        ]
        return max(leads, default=None)

    def _lead(
        self, samples: Mapping[str, list[Service]], pair: tuple[str, str], span: Span
    ) -> float | None:
        """The widest swing of the difference of two tenants within a stretch of time."""
        left, right = pair
        changes = [
            (service.at, sign * service.cost / self._run.weights.get(tenant, 1.0))
            for tenant, sign in ((left, 1), (right, -1))
            for service in samples.get(tenant, ())
            if span[0] <= service.at <= span[1]
        ]
        difference = lowest = highest = 0.0
        for _, change in sorted(changes):
            difference += change
            lowest, highest = min(lowest, difference), max(highest, difference)
        return highest - lowest if changes else None


def _waiting(records: Iterable[Record], tenant: str) -> list[Span]:
    """The stretches of time in which the tenant has somebody waiting, in order."""
    spans = sorted(
        (record.arrival.at, record.arrival.at + record.waited)
        for record in records
        if record.arrival.tenant == tenant and record.waited
    )
    merged: list[Span] = []
    for began, ended in spans:
        if merged and began <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], ended))
        else:
            merged.append((began, ended))
    return merged


def _both(left: Sequence[Span], right: Sequence[Span]) -> Iterator[Span]:
    i = j = 0
    while i < len(left) and j < len(right):
        began, ended = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if began < ended:
            yield began, ended
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1


def _from_records(records: Iterable[Record], costs: Costs) -> list[Service]:
    """What the records tell of the service: the prompt at the first token, the rest after it."""
    found = []
    for record in records:
        if record.ttft is None:
            continue
        tenant, began = record.arrival.tenant, record.arrival.at + record.ttft
        found.append(Service(began, tenant, costs.of(record.input_done, 0)))
        each = costs.of(0, record.output_done) / _STEPS
        step = (record.ended_at - began) / _STEPS
        found += [Service(began + step * (i + 1), tenant, each) for i in range(_STEPS)]
    return sorted(found, key=lambda service: service.at)
