"""How long a newcomer will wait: what runs must end, and what goes before it must run.

    wait = the time at which as many slots came free as what goes before it needs, and its own

How many come free by when is told in `ends`, what goes before it in `turns`.  Taking the smallest
mean of what runs for the wait until the first slot is free would be wrong by several times: the
first of eight to end is mostly one that nobody expected to.  Nor is the mean over what runs the
mean of what comes: long answers are over-represented among those that run.

The result is stretched by what was needed of late for three waits of four to be within it: see
`calibration`.
"""

from __future__ import annotations

from itertools import chain, islice
from math import inf
from typing import TYPE_CHECKING

from slotgate.core.calibration import Recent, WaitCalibration
from slotgate.core.ends import FRESH_SECONDS, LEAST_SECONDS, End, Ends, FreeSlots
from slotgate.core.turns import Ahead, Turns

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from slotgate.core.able import Able
    from slotgate.core.lengths import Lengths
    from slotgate.core.pool import Lease, SlotPool
    from slotgate.core.queue import FairQueue
    from slotgate.core.waiter import Waiter

# Answers that must have been seen before anything is foretold.
_FEW = 5
# Leases whose ends are looked at; of more, every second or third is.
_MANY_SLOTS = 64
# A closed upstream is noticed within about a second.
_SETTLING_SECONDS = 1.0
# Of ten prompts, nine are read with no more delay than is reckoned with.
_PART_BEGUN = 0.9


class Forecast:
    """Foretells waits for one model."""

    def __init__(
        self, queue: FairQueue, pools: dict[str, SlotPool], able: Able, lengths: Lengths
    ) -> None:
        self.calibration = WaitCalibration()
        self._queue = queue
        self._pools = pools
        self._able = able
        self._lengths = lengths
        self._turns = Turns(queue)
        # The mean time from one free slot to the next, as of the last forecast, in seconds.
        self.turnover = LEAST_SECONDS
        # Grants and ends so far.
        self.turns_over = 0
        # The fastest prompt tokens a second, and when that was looked for.
        self._prefill_rate, self._prefill_at = 0.0, -inf
        # How much later than reading takes first tokens came, in seconds.
        self._delays = Recent()

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
        if now - self._prefill_at > FRESH_SECONDS:
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
        if self._lengths.seen < _FEW:
            return False
        return not all(pool.speeds.gaps.is_empty for pool in self._pools.values())

    # Waits.

    def wait(
        self, waiter: Waiter, now: float, *, own: Collection[Lease], cap: int | None
    ) -> float | None:
        """Return the wait of one that has just joined the queue, not calibrated; None: unknown.

        `own` are its tenant's leases, of which it may have `cap`.
        """
        turn, *line = self._queue.place(waiter)
        mine = Ahead(*line)
        ahead = self.ahead(waiter.ticket.tenant, turn, mine, now)
        waiter.ahead = ahead.number
        if not self._is_known():
            return None
        return self._wait(waiter, now, ahead, mine, own=own, cap=cap)

    def wait_of_next(self, waiter: Waiter, now: float) -> float | None:
        """Return the wait of one that has not joined the queue, its tenant's cap aside."""
        if not self._is_known():
            return None
        turn, *line = self._queue.last_place(waiter.ticket.tenant)
        mine = Ahead(*line)
        ahead = self.ahead(waiter.ticket.tenant, turn, mine, now)
        return self._wait(waiter, now, ahead, mine, own=(), cap=None)

    def wait_at(self, pool: SlotPool, waiter: Waiter, ahead: int, now: float) -> float | None:
        """Return the wait for slots of one deployment after so many others; None: unknown."""
        if not self._is_known():
            return None
        ends = self._ends((pool,), min(pool.usable, pool.limit), now)
        others = Ahead(ahead, ahead * waiter.service)
        return ends.time_of(others, waiter.shape.width, waiter.service)

    def each_of(
        self, tenant: str, now: float, *, own: Collection[Lease], cap: int | None
    ) -> Iterable[tuple[Waiter, int, float | None]]:
        """Yield the tenant's waiters with their position, from 1, and the wait still to come."""
        knows = self._is_known()
        for waiter, (turn, *line) in self._queue.places(tenant):
            mine = Ahead(*line)
            ahead = self.ahead(tenant, turn, mine, now)
            wait = self._wait(waiter, now, ahead, mine, own=own, cap=cap) if knows else None
            told = None if wait is None else self.calibration.told(wait, self.turnover)
            yield waiter, 1 + int(ahead.number), told

    def ahead(self, tenant: str, turn: float, mine: Ahead, now: float) -> Ahead:
        """Return what goes before a tenant's turn: `mine` of its own, and others'."""
        slots = max(1, self._able.slots)
        number, service = self._turns.before(turn, tenant, now, slots=slots)
        return Ahead(mine.number + number, mine.service + service)

    def _wait(
        self,
        waiter: Waiter,
        now: float,
        ahead: Ahead,
        mine: Ahead,
        *,
        own: Collection[Lease],
        cap: int | None,
    ) -> float | None:
        shape = waiter.shape
        ends = self._free_slots(waiter, ahead, now)
        if not ends.slots or cap == 0:
            return None
        wait = ends.time_of(ahead, shape.width, waiter.service)
        if shape.size:
            wait = max(wait, self._gate(waiter))
        if cap is not None and mine.number + shape.width > cap - len(own):
            wait = max(wait, self._wait_of_own(waiter, now, own=own, cap=cap))
        return wait

    def _wait_of_own(
        self, waiter: Waiter, now: float, *, own: Collection[Lease], cap: int
    ) -> float:
        """Return the wait until the tenant, of whom too many are here, is below its cap."""
        ends = [End.of(*self._rest_of(lease, now), 1) for lease in own]
        if len(ends) < cap:
            ends.append(End.of(0.0, 0.0, cap - len(ends)))
        mine = Ahead(*self._queue.own_before(waiter))
        return Ends(ends).time_of(mine, waiter.shape.width, waiter.service)

    def _gate(self, waiter: Waiter) -> float:
        """Return until when long prompts are read everywhere, of which one is read at a time."""
        gate = inf
        for pool in self._able.of(waiter.shape).pools:
            rate = pool.speeds.prefill
            gate = min(gate, pool.long_reading / rate if rate else 0.0)
            if not gate:
                break
        return gate

    # When slots come free.

    def _free_slots(self, waiter: Waiter, ahead: Ahead, now: float) -> Ends:
        able = self._able.of(waiter.shape)
        free = able.free
        if free is not None:
            least = free.ends.least(ahead, waiter.shape.width, waiter.service)
            if not free.is_fresh(now, self.turns_over, least):
                free = None
        if free is None:
            slots = sum([min(pool.usable, pool.limit) for pool in able.pools])
            ends = self._ends(able.pools, slots, now)
            free = able.free = FreeSlots(ends, slots, now, self.turns_over)
        self.turnover = free.ends.turnover
        return free.ends

    def _ends(self, pools: Collection[SlotPool], slots: int, now: float) -> Ends:
        leases: Iterable[Lease] = chain.from_iterable([pool.leases() for pool in pools])
        # Of many, some are enough.
        every = 1 + sum([pool.count for pool in pools]) // _MANY_SLOTS
        if every > 1:
            leases = islice(leases, 0, None, every)
        rests = []
        taken = 0
        for lease in leases:
            mean, spread = self._rest_of(lease, now)
            width = lease.width * every
            taken += width
            rests.append((mean, spread, width))
        if taken < slots:
            rests.append((0.0, 0.0, slots - taken))
        return Ends.of(rests)

    def rest(self, lease: Lease, now: float) -> float:
        """Return in how many seconds the lease's slots are expected to be free."""
        return self._rest_of(lease, now)[0]

    def _rest_of(self, lease: Lease, now: float) -> tuple[float, float]:
        """Return the mean and the standard deviation of how long the lease will still last."""
        if now - lease.rest_seen_at > FRESH_SECONDS:
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
