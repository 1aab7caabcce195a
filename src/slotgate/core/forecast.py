"""How long a newcomer will wait: what runs must end, and what goes before it must run.

    free  = for each slot, when it is expected to be free: the rest of the prompt over the reading
            speed, plus the mean residual life of the answer times the gap between tokens
    ahead = the service of all that will be granted before, in slot-seconds
    wait  = the soonest free slot, once `ahead` has been spread over them

The mean over what *runs* would be wrong for `free`: long answers are over-represented among those
that run.  What goes before, under fair queueing, is all of a tenant whose last turn comes before
the newcomer's own, and a part of the others'; sums over the tenants, sorted by the turn of their
last, answer that in O(log tenants).  They are made anew when enough has changed.

The result is multiplied by what was needed of late for three waits of four to be within it.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from heapq import heapify, heapreplace
from itertools import accumulate
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from slotgate.core.lengths import Lengths
    from slotgate.core.pool import Lease, SlotPool
    from slotgate.core.queue import FairQueue
    from slotgate.core.waiter import Waiter

# Answers that must have been seen before anything is foretold.
_FEW = 5
# So many ahead are put on slots one by one; more are spread over the slots like a fluid.
_ONE_BY_ONE = 16
# Slots whose ends are looked at one by one; of more, the mean is close enough.
_MANY_SLOTS = 64
# For so long the ends of what runs are taken to come nearer by the clock alone.
_FRESH_SECONDS = 0.25
# Sums, and the ends of what runs, are made anew after as many changes as this part of them.
_STALE_PART = 16
# A closed upstream is noticed within about a second.
_SETTLING_SECONDS = 1.0
_SAMPLES = 200
_PART_WITHIN = 0.75
_LEAST_FACTOR, _MOST_FACTOR = 0.25, 4.0
_SHORTEST_WAIT_SECONDS = 0.05


class Ahead(NamedTuple):
    """What will be granted before a ticket: how many, and their slot-seconds."""

    number: float
    service: float


class WaitCalibration:
    """How waits compare with what was foretold: the factor that makes 75 % of them shorter."""

    def __init__(self) -> None:
        # actual / predicted, as they came, and sorted.
        self._ratios: deque[float] = deque()
        self._sorted: list[float] = []

    def observe(self, predicted: float, actual: float) -> None:
        """Note a wait that has ended: by a grant, or at its deadline."""
        ratio = actual / max(predicted, _SHORTEST_WAIT_SECONDS)
        self._ratios.append(ratio)
        insort(self._sorted, ratio)
        if len(self._ratios) > _SAMPLES:
            del self._sorted[bisect_right(self._sorted, self._ratios.popleft()) - 1]

    @property
    def factor(self) -> float:
        """Return the factor; 1 until enough waits have been seen."""
        if len(self._sorted) < _SAMPLES // 10:
            return 1.0
        ratio = self._sorted[int(_PART_WITHIN * len(self._sorted))]
        return min(_MOST_FACTOR, max(_LEAST_FACTOR, ratio))


class _Turns:
    """The tenants that wait, by the turn of their last, and sums over them."""

    def __init__(self, queue: FairQueue) -> None:
        self.built_at = queue.changes
        rows = []
        for tenant, backlog in queue.backlogs.items():
            first, last = queue.key(tenant), queue.key_after(tenant, backlog.cost)
            rows.append((last, first, float(backlog.count), backlog.service))
        rows.sort()
        self._lasts = [row[0] for row in rows]
        self._counts = [0.0, *accumulate(row[2] for row in rows)]
        self._services = [0.0, *accumulate(row[3] for row in rows)]
        # Of those that are not through: per unit of turn, and that times the turn of their first.
        self._rates = [_rates(row) for row in rows]
        self._tails = [_sums(self._rates, place) for place in range(4)]

    def before(self, turn: float) -> Ahead:
        """Return what is granted before that turn, as of when the sums were made."""
        place = bisect_right(self._lasts, turn)
        counts, counts_first, services, services_first = (tail[place] for tail in self._tails)
        return Ahead(
            self._counts[place] + max(0.0, turn * counts - counts_first),
            self._services[place] + max(0.0, turn * services - services_first),
        )


def _rates(row: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
    last, first, count, service = row
    span = last - first
    if span <= 0 or not isfinite(span):
        return 0.0, 0.0, 0.0, 0.0
    return count / span, count / span * first, service / span, service / span * first


def _sums(rates: Sequence[tuple[float, ...]], place: int) -> list[float]:
    """Return, for each index, the sum of that column from there on."""
    return [*accumulate((row[place] for row in reversed(rates)), initial=0.0)][::-1]


class Forecast:
    """Foretells waits for one model."""

    def __init__(self, queue: FairQueue, pools: dict[str, SlotPool], lengths: Lengths) -> None:
        self.calibration = WaitCalibration()
        self._queue = queue
        self._pools = pools
        self._lengths = lengths
        self._turns: _Turns | None = None
        # When each slot is expected to be free, in seconds from a time; for which shape.
        self._free: list[float] = []
        self._free_of: tuple[int, int] | None = None
        self._free_at = self._free_grants = 0.0

    # What is expected of one ticket.

    def service(self, input_tokens: int, output_tokens: float) -> float:
        """Return how long such a request will hold its slots; 0 while nothing is known."""
        for pool in self._pools.values():
            seconds = pool.speeds.seconds(
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                sequences=max(1, min(pool.usable, pool.limit)),
            )
            if seconds is not None:
                return seconds
        return 0.0

    def prefill(self, input_tokens: int) -> float:
        """Return how long it takes to read a prompt, where it goes fastest; 0 while unknown."""
        rates = [rate for pool in self._pools.values() if (rate := pool.speeds.prefill) is not None]
        return input_tokens / max(rates) if rates else 0.0

    def kv_need(self, waiter: Waiter, pool: SlotPool) -> float:
        """Return the tokens of a shared KV cache that the ticket is expected to take; 0 of none."""
        if pool.kv_pool_tokens is None:
            return 0.0
        return waiter.ticket.input_tokens + waiter.shape.width * self._lengths.mean(waiter.ticket)

    # Waits.

    def wait(
        self, waiter: Waiter, now: float, *, own: Collection[Lease], cap: int | None
    ) -> float | None:
        """Return the wait of the last of its tenant's queue, not calibrated; None: unknown.

        `own` are its tenant's leases, of which it may have `cap`.
        """
        if self._lengths.seen < _FEW:
            return None
        tenant = waiter.ticket.tenant
        backlog = self._queue.backlogs[tenant]
        turn = self._queue.key_after(tenant, backlog.cost - waiter.cost)
        mine = Ahead(backlog.count - 1, backlog.service - waiter.service)
        return self._wait(waiter, now, turn, mine, own=own, cap=cap)

    def _wait(
        self,
        waiter: Waiter,
        now: float,
        turn: float,
        mine: Ahead,
        *,
        own: Collection[Lease],
        cap: int | None,
    ) -> float | None:
        free = self._free_slots(waiter, now)
        if not free:
            return None
        ahead = self.ahead(waiter, turn, mine)
        wait = _level(free, ahead, waiter.shape.width)
        if cap is not None:
            ends = [self.rest(lease, now) for lease in own]
            ends += [0.0] * (cap - len(ends))
            wait = max(wait, _level(ends, mine, 1))
        return wait

    def each_of(
        self, tenant: str, now: float, *, own: Collection[Lease], cap: int | None
    ) -> Iterable[tuple[Waiter, int, float | None]]:
        """Yield the tenant's waiters with their position, from 1, and the wait still to come."""
        mine = Ahead(0, 0.0)
        knows = self._lengths.seen >= _FEW
        for turn, waiter in self._queue.places(tenant):
            ahead = self.ahead(waiter, turn, mine)
            wait = self._wait(waiter, now, turn, mine, own=own, cap=cap) if knows else None
            yield waiter, 1 + int(ahead.number), wait and wait * self.calibration.factor
            mine = Ahead(mine.number + 1, mine.service + waiter.service)

    def ahead(self, waiter: Waiter, turn: float, mine: Ahead) -> Ahead:
        """Return what goes before the ticket: `mine` of its own tenant, and others'."""
        turns = self._turns
        changes = self._queue.changes
        if turns is None or changes - turns.built_at > len(self._queue) // _STALE_PART:
            turns = self._turns = _Turns(self._queue)
        others = turns.before(turn)
        # The tenant's own share of the sums, which is known better.
        tenant = waiter.ticket.tenant
        backlog = self._queue.backlogs[tenant]
        last = self._queue.key_after(tenant, backlog.cost)
        first = self._queue.key(tenant)
        part = 1.0
        if last > turn and last > first and isfinite(last - first):
            part = max(0.0, turn - first) / (last - first)
        return Ahead(
            mine.number + max(0.0, others.number - part * backlog.count),
            mine.service + max(0.0, others.service - part * backlog.service),
        )

    # When slots come free.

    def _free_slots(self, waiter: Waiter, now: float) -> list[float]:
        shape = waiter.shape
        pools = [pool for pool in self._pools.values() if pool.could_fit(shape)]
        grants = sum([pool.grants for pool in pools])
        key = (shape.width, shape.context)
        is_fresh = (
            key == self._free_of
            and now - self._free_at <= _FRESH_SECONDS
            and grants - self._free_grants <= len(self._free) // _STALE_PART
        )
        if not is_fresh:
            self._free_of, self._free_at, self._free_grants = key, now, grants
            self._free = self._ends(pools, now)
        return self._free

    def _ends(self, pools: Sequence[SlotPool], now: float) -> list[float]:
        slots = sum(min(pool.usable, pool.limit) for pool in pools)
        leases = [lease for pool in pools for lease in pool.leases()]
        if slots > _MANY_SLOTS:
            # Their ends are spread evenly over a mean rest: as good, and cheap.
            some = leases[:: max(1, len(leases) // _MANY_SLOTS)]
            rest = sum(self.rest(lease, now) for lease in some) / max(1, len(some))
            return [2 * rest * (place + 0.5) / slots for place in range(slots)]
        ends = [self.rest(lease, now) for lease in leases for _ in range(lease.width)]
        return ends + [0.0] * max(0, slots - len(ends))

    def rest(self, lease: Lease, now: float) -> float:
        """Return in how many seconds the lease's slots are expected to be free."""
        if now - lease.ends_seen_at > _FRESH_SECONDS or lease.ends_at < now:
            lease.ends_seen_at, lease.ends_at = now, now + self._rest(lease, now)
        return lease.ends_at - now

    def _rest(self, lease: Lease, now: float) -> float:
        if lease.settles_by is not None:
            return min(_SETTLING_SECONDS, max(0.0, lease.settles_by - now))
        pool, ticket = lease.pool, lease.waiter.ticket
        gap = pool.speeds.gaps.gap(max(1, pool.writing)) or 0.0
        left = self._lengths.residual(ticket, lease.written, lease.output_bound).mean * gap
        if lease.first_token_at is None:
            rate = pool.speeds.prefill
            reading = ticket.input_tokens / rate if rate else 0.0
            left += max(0.0, reading - (now - lease.since))
        return left


def _level(free: Sequence[float], ahead: Ahead, width: int) -> float:
    """Return when `width` slots are free, after what is ahead has been put on them."""
    count = round(ahead.number)
    place = min(width, len(free)) - 1
    if count <= _ONE_BY_ONE:
        ends = list(free)
        heapify(ends)
        each = ahead.service / count if count else 0.0
        for _ in range(count):
            heapreplace(ends, ends[0] + each)
        return ends[0] if place == 0 else sorted(ends)[place]
    # A fluid fills the slots from the one that is free first.
    ends = sorted(free)
    level = left = 0.0
    left = ahead.service
    for filled, end in enumerate(ends[1:], start=1):
        level = ends[filled - 1]
        if left <= (end - level) * filled:
            return level + left / filled
        left -= (end - level) * filled
    return ends[-1] + left / len(ends)
