"""How long a newcomer will wait: what runs must end, and what goes before it must run.

    F_j(t)  = how likely slot j has come free by t: the rest of its prompt over the reading speed,
              then the rest of its answer times the gap between tokens
    N(t)    = sum_j F_j(t) + sum_j max(0, t - m_j) / s: slots that came free by t, again and again
    wait    = the t at which N(t) is what goes before, and one more

with m_j the mean of F_j and s the mean service of what goes before.  Taking the smallest m_j for
the wait until the first slot is free would be wrong by several times: the first of eight to end is
mostly one that nobody expected to.  Nor is the mean over what runs the mean of what comes: long
answers are over-represented among those that run.

What goes before, under fair queueing, is all of a tenant whose last turn comes before the
newcomer's own, and a part of the others'; sums over the tenants, sorted by the turn of their last,
answer that in O(log tenants).  They are made anew when enough has changed.

The result is stretched by what was needed of late for three waits of four to be within it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from itertools import accumulate
from math import exp, gamma, inf, isfinite
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from slotgate.core.lengths import Lengths
    from slotgate.core.pool import Lease, SlotPool
    from slotgate.core.queue import FairQueue
    from slotgate.core.waiter import Waiter

# Answers that must have been seen before anything is foretold.
_FEW = 5
# Leases whose ends are looked at; of more, every second or third is.
_MANY_SLOTS = 64
# For so long the ends of what runs are taken to come nearer by the clock alone.
_FRESH_SECONDS = 0.25
# Sums, and the ends of what runs, are made anew after as many changes as this part of them.
_STALE_PART = 8
# A closed upstream is noticed within about a second.
_SETTLING_SECONDS = 1.0
_SAMPLES = 200
# A little above the 75 % that are promised: what was learned is a step behind what comes.
_PART_WITHIN = 0.77
# Of ten prompts, nine are read with no more delay than is reckoned with.
_PART_BEGUN = 0.9
_LEAST_FACTOR, _MOST_FACTOR = 0.25, 4.0
# The shortest mean and the least time from one free slot to the next.
_LEAST_SECONDS = 0.001
# Groups of slots that are taken to be alike.
_GROUPS = 4
# The median of the first of many events comes when 0.69 are expected.
_FIRST = 0.69
_STEPS = 12
_CLOSE = 0.03
_LAST = attrgetter("last")


class Ahead(NamedTuple):
    """What will be granted before a ticket: how many, and their slot-seconds."""

    number: float
    service: float


class _Recent:
    """The last values of something, and their quantiles."""

    def __init__(self) -> None:
        # As they came, and sorted.
        self._values: deque[float] = deque()
        self._sorted: list[float] = []

    def add(self, value: float) -> None:
        self._values.append(value)
        insort(self._sorted, value)
        if len(self._values) > _SAMPLES:
            del self._sorted[bisect_right(self._sorted, self._values.popleft()) - 1]

    def quantile(self, part: float) -> float | None:
        """Return what this part does not exceed; None until enough has been seen."""
        if len(self._sorted) < _SAMPLES // 10:
            return None
        return self._sorted[int(part * len(self._sorted))]


class WaitCalibration:
    """How waits compare with what was foretold: what makes 75 % of them shorter.

    told = (predicted + c) factor - c, where c is the mean time from one free slot to the next: an
    error by half a second means much for a wait of a second and nothing for one of a minute.
    """

    def __init__(self) -> None:
        # (actual + c) / (predicted + c)
        self._ratios = _Recent()

    def observe(self, predicted: float, actual: float, turnover: float) -> None:
        """Note a wait that has ended by a grant."""
        self._ratios.add((actual + turnover) / (predicted + turnover))

    def told(self, predicted: float, turnover: float) -> float:
        """Return the wait that three of four will not exceed."""
        return max(0.0, (predicted + turnover) * self.factor(_PART_WITHIN) - turnover)

    def factor(self, part: float) -> float:
        """Return what this part of the waits needed at most; 1 until enough have been seen."""
        ratio = self._ratios.quantile(part)
        return 1.0 if ratio is None else min(_MOST_FACTOR, max(_LEAST_FACTOR, ratio))


class _Row(NamedTuple):
    """A tenant that waits: the turns of its first and after its last, and what waits of it."""

    first: float
    last: float
    tickets: float
    service: float

    def before(self, turn: float) -> float:
        """Return how many of its tickets are granted before that turn.

        Turns come one ticket at a time: to what is through by then comes one more, half of the
        time, and surely if it is the first, which came before.
        """
        if self.first > turn or self.last <= turn:
            return self.tickets if self.last <= turn else 0.0
        span = self.last - self.first
        through = self.tickets * (turn - self.first) / span if isfinite(span) else 0.0
        return through + (1.0 if turn == self.first else 0.5)


class _Turns:
    """The tenants that wait, and sums over them: by the turn of their first, and of their last.

    Those whose last has its turn before a given one are through; those whose first has, and whose
    last has not, are in part.
    """

    def __init__(self, queue: FairQueue, now: float) -> None:
        self.built_at = now
        self.changes = queue.changes
        self._of_tenant = {
            tenant: _Row(
                queue.key(tenant),
                queue.key_after(tenant, backlog.cost),
                float(backlog.count),
                backlog.service,
            )
            for tenant, backlog in queue.backlogs.items()
        }
        firsts = sorted(self._of_tenant.values())
        lasts = sorted(firsts, key=_LAST)
        self._firsts = [row.first for row in firsts]
        self._lasts = [row.last for row in lasts]
        self._counts = [0.0, *accumulate(row.tickets for row in lasts)]
        self._services = [0.0, *accumulate(row.service for row in lasts)]
        # What those have in part that have begun, and of it, what those have that are through.
        self._begun = _sums(firsts)
        self._ended = _sums(lasts)

    def before(self, turn: float, tenant: str) -> Ahead:
        """Return what is granted to others before the tenant's turn, as of when this was made."""
        number, service = self._before(turn)
        own = self._of_tenant.get(tenant)
        if own is not None:
            mine = own.before(turn)
            number, service = number - mine, service - mine * own.service / own.tickets
        return Ahead(max(0.0, number), max(0.0, service))

    def _before(self, turn: float) -> Ahead:
        ended, begun = bisect_right(self._lasts, turn), bisect_right(self._firsts, turn)
        level = bisect_left(self._firsts, turn)
        # Half a ticket each of those that are in part, and another half if it is the first.
        halves, services, rates, starts, service_rates, service_starts = (
            begun_sums[begun] - ended_sums[ended]
            for begun_sums, ended_sums in zip(self._begun, self._ended, strict=True)
        )
        halves += self._begun[0][begun] - self._begun[0][level]
        services += self._begun[1][begun] - self._begun[1][level]
        if isfinite(turn):
            halves += turn * rates - starts
            services += turn * service_rates - service_starts
        return Ahead(self._counts[ended] + halves, self._services[ended] + services)


def _sums(rows: Sequence[_Row]) -> list[list[float]]:
    """Return the sums over so many rows from the first on, of each of their parts."""
    columns = zip(*map(_parts, rows), strict=True) if rows else [()] * 6
    return [[0.0, *accumulate(column)] for column in columns]


def _parts(row: _Row) -> tuple[float, float, float, float, float, float]:
    """Return half a ticket, its service, and both by unit of turn, and that times the first."""
    span = row.last - row.first
    if span <= 0:
        # It has no part: it is through at once.
        return 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    half = 0.5 * row.service / row.tickets
    if not isfinite(span):
        return 0.5, half, 0.0, 0.0, 0.0, 0.0
    count, service = row.tickets / span, row.service / span
    return 0.5, half, count, count * row.first, service, service * row.first


class Forecast:
    """Foretells waits for one model."""

    def __init__(self, queue: FairQueue, pools: dict[str, SlotPool], lengths: Lengths) -> None:
        self.calibration = WaitCalibration()
        self._queue = queue
        self._pools = pools
        self._lengths = lengths
        self._turns: _Turns | None = None
        # When slots are expected to be free, from which time on; for which shape.
        self._free: list[_End] = []
        self._slots = 0
        self._free_of: tuple[int, int] | None = None
        self._free_at = -inf
        # Grants and ends so far, and how many when that was last looked at.
        self.turns_over = self._free_turns = 0
        # The fastest prompt tokens a second, and when that was looked for.
        self._prefill_rate, self._prefill_at = 0.0, -inf
        # How much later than reading takes first tokens came, in seconds.
        self._delays = _Recent()

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

    def prefill(self, input_tokens: int, now: float) -> float:
        """Return how long it takes to read a prompt, where it goes fastest; 0 while unknown."""
        if now - self._prefill_at > _FRESH_SECONDS:
            rates = (pool.speeds.prefill or 0.0 for pool in self._pools.values())
            self._prefill_at, self._prefill_rate = now, max(rates, default=0.0)
        return input_tokens / self._prefill_rate if self._prefill_rate else 0.0

    def begun(self, input_tokens: int, seconds: float, now: float) -> None:
        """Note how long after its grant a request's first token came."""
        reading = self.prefill(input_tokens, now)
        if reading:
            self._delays.add(seconds - reading)

    def start(self, input_tokens: int, now: float) -> float:
        """Return how long after its grant a request's first token is nearly sure to have come."""
        delay = self._delays.quantile(_PART_BEGUN) or 0.0
        return max(0.0, self.prefill(input_tokens, now) + delay)

    def kv_need(self, waiter: Waiter, pool: SlotPool) -> float:
        """Return the tokens of a shared KV cache that the ticket is expected to take; 0 of none."""
        if pool.kv_pool_tokens is None:
            return 0.0
        return waiter.ticket.input_tokens + waiter.shape.width * self._lengths.mean(waiter.ticket)

    def _is_known(self) -> bool:
        """Whether enough answers were seen, and how fast any deployment writes."""
        pools = self._pools.values()
        return self._lengths.seen >= _FEW and any(p.speeds.gaps.gap(1) is not None for p in pools)

    # Waits.

    def wait(
        self, waiter: Waiter, now: float, *, own: Collection[Lease], cap: int | None
    ) -> float | None:
        """Return the wait of the last of its tenant's queue, not calibrated; None: unknown.

        `own` are its tenant's leases, of which it may have `cap`.
        """
        if not self._is_known():
            return None
        tenant = waiter.ticket.tenant
        backlog = self._queue.backlogs[tenant]
        turn = self._queue.key_after(tenant, backlog.cost - waiter.cost)
        mine = Ahead(backlog.count - 1, backlog.service - waiter.service)
        waiter.ahead = self.ahead(tenant, turn, mine, now).number
        return self._wait(waiter, now, turn, mine, own=own, cap=cap)

    def wait_of_next(self, waiter: Waiter, now: float) -> float | None:
        """Return the wait of one that has not joined the queue, its tenant's cap aside."""
        if not self._is_known():
            return None
        tenant = waiter.ticket.tenant
        backlog = self._queue.backlogs.get(tenant)
        turn = self._queue.entry_key(tenant)
        mine = Ahead(0, 0.0)
        if backlog is not None:
            turn = self._queue.key_after(tenant, backlog.cost)
            mine = Ahead(backlog.count, backlog.service)
        return self._wait(waiter, now, turn, mine, own=(), cap=None)

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
        if not free or cap == 0:
            return None
        ahead = self.ahead(waiter.ticket.tenant, turn, mine, now)
        wait = _time_of(free, ahead, waiter)
        if waiter.shape.size:
            wait = max(wait, self._gate(waiter))
        if cap is not None:
            ends = [_End.of(*self._rest_of(lease, now), 1) for lease in own]
            ends += [_End(_LEAST_SECONDS, _LEAST_SECONDS, 1.0, 1)] * (cap - len(ends))
            wait = max(wait, _time_of(ends, mine, waiter))
        return wait

    def each_of(
        self, tenant: str, now: float, *, own: Collection[Lease], cap: int | None
    ) -> Iterable[tuple[Waiter, int, float | None]]:
        """Yield the tenant's waiters with their position, from 1, and the wait still to come."""
        mine = Ahead(0, 0.0)
        knows = self._is_known()
        for turn, waiter in self._queue.places(tenant):
            ahead = self.ahead(tenant, turn, mine, now)
            wait = self._wait(waiter, now, turn, mine, own=own, cap=cap) if knows else None
            told = None if wait is None else self.calibration.told(wait, self.turnover)
            yield waiter, 1 + int(ahead.number), told
            mine = Ahead(mine.number + 1, mine.service + waiter.service)

    def ahead(self, tenant: str, turn: float, mine: Ahead, now: float) -> Ahead:
        """Return what goes before a tenant's turn: `mine` of its own, and others'."""
        turns, changes = self._turns, self._queue.changes
        if (
            turns is None
            or changes - turns.changes > len(self._queue) // _STALE_PART
            or now - turns.built_at > _FRESH_SECONDS
        ):
            turns = self._turns = _Turns(self._queue, now)
        others = turns.before(turn, tenant)
        return Ahead(mine.number + others.number, mine.service + others.service)

    def _gate(self, waiter: Waiter) -> float:
        """Return until when long prompts are read everywhere, of which one is read at a time."""
        gate = inf
        for pool in self._pools.values():
            if pool.could_fit(waiter.shape):
                rate = pool.speeds.prefill
                gate = min(gate, pool.long_reading / rate if rate else 0.0)
            if not gate:
                break
        return gate

    # When slots come free.

    @property
    def turnover(self) -> float:
        """The mean time from one free slot to the next, as of the last forecast, in seconds."""
        rate = sum(each.slots / each.mean for each in self._free)
        return 1 / rate if rate else _LEAST_SECONDS

    def _free_slots(self, waiter: Waiter, now: float) -> list[_End]:
        shape = waiter.shape
        key = (shape.width, shape.context)
        is_fresh = (
            key == self._free_of
            and now - self._free_at <= _FRESH_SECONDS
            and self.turns_over - self._free_turns <= self._slots // _STALE_PART
        )
        if not is_fresh:
            pools = [pool for pool in self._pools.values() if pool.could_fit(shape)]
            self._free_of, self._free_at, self._free_turns = key, now, self.turns_over
            self._slots = sum(min(pool.usable, pool.limit) for pool in pools)
            self._free = self._ends(pools, now)
        return self._free

    def _ends(self, pools: Sequence[SlotPool], now: float) -> list[_End]:
        slots = self._slots
        leases = [lease for pool in pools for lease in pool.leases()]
        # Of many, some are enough.
        every = 1 + len(leases) // _MANY_SLOTS
        some = leases[::every]
        rests = sorted((*self._rest_of(lease, now), lease.width * every) for lease in some)
        taken = sum(width for _, _, width in rests)
        rests[:0] = [(0.0, 0.0, slots - taken)] if taken < slots else []
        if not rests:
            return []
        size = 1 + (len(rests) - 1) // _GROUPS
        return [_merge(rests[place : place + size]) for place in range(0, len(rests), size)]

    def rest(self, lease: Lease, now: float) -> float:
        """Return in how many seconds the lease's slots are expected to be free."""
        return self._rest_of(lease, now)[0]

    def _rest_of(self, lease: Lease, now: float) -> tuple[float, float]:
        """Return the mean and the standard deviation of how long the lease will still last."""
        if now - lease.rest_seen_at > _FRESH_SECONDS:
            lease.rest_seen_at, lease.rest = now, self._rest(lease, now)
        return lease.rest

    def _rest(self, lease: Lease, now: float) -> tuple[float, float]:
        if lease.settles_by is not None:
            return min(_SETTLING_SECONDS, max(0.0, lease.settles_by - now)), 0.0
        pool, ticket = lease.pool, lease.waiter.ticket
        gap = pool.speeds.gaps.gap(max(1, pool.writing)) or 0.0
        left = self._lengths.residual(ticket, lease.written, lease.output_bound)
        seconds = left.mean * gap
        if lease.first_token_at is None:
            rate = pool.speeds.prefill
            reading = ticket.input_tokens / rate if rate else 0.0
            seconds += max(0.0, reading - (now - lease.since))
        return seconds, left.spread * gap


class _End(NamedTuple):
    """When some slots come free: Weibull, with that mean."""

    mean: float
    scale: float
    shape: float
    slots: int

    @classmethod
    def of(cls, mean: float, spread: float, slots: int) -> _End:
        """Fit mean and spread; the shape is Justus' approximation, spread / mean ^ -1.086."""
        mean = max(mean, _LEAST_SECONDS)
        part = min(1.6, max(0.15, spread / mean))
        shape = part**-1.086
        return cls(mean, mean / gamma(1 + 1 / shape), shape, slots)


def _merge(rests: Sequence[tuple[float, float, int]]) -> _End:
    slots = sum(width for _, _, width in rests)
    mean = sum(mean * width for mean, _, width in rests) / slots
    spread = sum(spread * width for _, spread, width in rests) / slots
    return _End.of(mean, spread, slots)


def _time_of(ends: Sequence[_End], ahead: Ahead, waiter: Waiter) -> float:
    """Return when so many slots will have come free that it is the waiter's turn."""
    slots = sum([end.slots for end in ends])
    service = ahead.service / ahead.number if ahead.number > _CLOSE else waiter.service
    service = max(service, _LEAST_SECONDS)
    wanted = ahead.number + min(waiter.shape.width, slots) - 1 + _FIRST
    # False position, from what would be enough if all slots were taken up to their means.
    low, high = 0.0, wanted * service / slots + 2 * max([end.mean for end in ends])
    below, above = -wanted, _freed(ends, high, service, ahead.number) - wanted
    for _ in range(_STEPS):
        time = low - below * (high - low) / (above - below)
        excess = _freed(ends, time, service, ahead.number) - wanted
        if abs(excess) <= _CLOSE * (ahead.number + _FIRST):
            return time
        if excess < 0:
            low, below, above = time, excess, above / 2
        else:
            high, above, below = time, excess, below / 2
    return (low + high) / 2


def _freed(ends: Sequence[_End], time: float, service: float, ahead: float) -> float:
    """Return how many slots will have come free by then: each once, and again after others."""
    once = again = 0.0
    for mean, scale, shape, count in ends:
        once += count * (1 - exp(-((time / scale) ** shape)))
        if time > mean:
            again += count * (time - mean) / service
    # No more than are granted before can end again: a slot that is free waits with a wide ticket.
    return once + min(again, ahead)
