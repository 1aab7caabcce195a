"""Who of a model's waiters runs next, and where.

The queue is bound to a deployment as late as possible, at the grant: a ticket that waits for one
deployment while another has a free slot would waste the slot (late binding).

Who waits, waits for room: nobody does while slots are free in which he fits.  So a small ticket
overtakes one that does not fit yet, for want of slots or of KV cache.  It may (EASY backfill) if it
is expected to be gone when the first one's room comes free, or fits beside it then.  Expectations
fail, so besides, after `max_bypass` times, or `bypass_seconds` after the first, free slots of one
deployment are *held* for the first until it fits.

At most one long prompt is read at a time on a deployment, as reading stalls all who write.
"""

from __future__ import annotations

from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, NamedTuple

from slotgate.core.patience import hope_of
from slotgate.core.waiter import SHORT_PROMPT_TOKENS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from slotgate.core.able import Able
    from slotgate.core.forecast import Forecast
    from slotgate.core.free_pools import FreePools
    from slotgate.core.kv_budget import KvBudget, Room
    from slotgate.core.lengths import Lengths
    from slotgate.core.limits import Limits
    from slotgate.core.patience import Hope
    from slotgate.core.placement import Placement
    from slotgate.core.pool import Lease, SlotPool
    from slotgate.core.queue import FairQueue
    from slotgate.core.waiter import Shape, Waiter

_PREFERENCE = attrgetter("headroom", "seniority")
_SECONDS = itemgetter(0)
# For so long after more urgent tickets were seen, classes leave their part of the slots.
HOLDBACK_SECONDS = 60.0
# After so long a look in vain is repeated with the next event, whoever is first.
_LOOK_SECONDS = 0.05
# So few deployments are looked for among others, rather than the others looked through for them.
_FEW = 8


class Match(NamedTuple):
    """A waiter, and where it may run now."""

    waiter: Waiter
    pool: SlotPool
    room: Room
    # Who was to be next, but does not fit.
    overtaken: Waiter | None = None


class _Shadow(NamedTuple):
    """In how long there is room for who must wait, and what is left beside it then."""

    seconds: float
    slots: int
    kv_tokens: float


class Matcher:
    """Matches the waiters of one model with its slots.

    It changes nothing but the waiters' bypass counts, and who lingers; granting is the scheduler's.
    """

    def __init__(  # noqa: PLR0913 - the parts of one model, by name
        self,
        *,
        queue: FairQueue,
        able: Able,
        free: FreePools,
        limits: Limits,
        placement: Placement,
        kv_budget: KvBudget,
        lengths: Lengths,
        forecast: Forecast,
    ) -> None:
        self._queue = queue
        self._able = able
        self._free = free
        self._limits = limits
        self._placement = placement
        self._kv_budget = kv_budget
        self._lengths = lengths
        self._forecast = forecast
        # Whether slots were free the last time, and nobody fitted or they were held.
        self.has_idle = False
        # Who was first of each shape then, and when that was.
        self._front: list[Waiter] = []
        self._looked_at = float("-inf")
        # Until when classes leave a part of the slots to more urgent ones.
        self.holdback_until = float("-inf")

    def reconfigure(
        self, limits: Limits, *, placement: Placement | None, kv_budget: KvBudget
    ) -> None:
        """Go by other numbers and rules; None: the placement as it is."""
        self._limits, self._kv_budget = limits, kv_budget
        self._placement = placement or self._placement

    def next_match(self, now: float) -> Match | None:
        """Return the next waiter that fits now, and count whom it overtakes."""
        while (match := self._find(now)) is not None:
            hope = self._hope_of(match, now)
            if hope is not None:
                self._queue.hold_back(match.waiter, hope.pool.id, hope.until)
                continue
            if match.overtaken is not None:
                self._note_bypass(match.overtaken, match, now)
            break
        return match

    def _find(self, now: float) -> Match | None:
        free = self._free_pools() if self._queue else []
        self.has_idle = bool(free)
        if not free:
            return None
        self._front, self._looked_at = self._queue.front(), now
        front = iter(self._front)
        for head in front:
            if not self._is_eligible(head, now):
                continue
            if match := self._match(head, free, now):
                return match
            if head.shape.awaits is None:
                break
        else:
            return None
        held = self._held_for(head, free, now)
        if held is not None and not self._is_gated(head, held):
            free = [pool for pool in free if pool is not held]
        return self._pass_by(head, front, free, held, now) if free else None

    def _pass_by(
        self,
        head: Waiter,
        others: Iterable[Waiter],
        free: list[SlotPool],
        held: SlotPool | None,
        now: float,
    ) -> Match | None:
        """Return the first of the others that may overtake the head, which does not fit."""
        shadows: dict[str, _Shadow | None] = {}
        # Many of who waits are too wide for what is left, which is seen at a glance.
        widest = 1
        for waiter in others:
            width = waiter.shape.width
            if width > widest and (widest := max([pool.slack for pool in free])) < width:
                continue
            match = self._match(waiter, free, now)
            if match is not None and match.pool is held and not self._leaves_room(match, head):
                match = self._match(waiter, [pool for pool in free if pool is not held], now)
            if match is not None and self._may_pass(match, head, shadows, now):
                return match._replace(overtaken=head)
        return None

    def is_worth_a_look(self, now: float) -> bool:
        """Whether somebody may fit for whom slots were free before, but in vain, and still are.

        Others may be first now, for whom no slots are held; and as time goes by, room that was
        kept for the first may do for one that is shorter.
        """
        return now - self._looked_at > _LOOK_SECONDS or self._queue.front() != self._front

    def saw(self, waiter: Waiter) -> bool:
        """Whether the waiter was the first of its shape then."""
        return waiter in self._front

    def match_of(self, waiter: Waiter, now: float) -> Match | None:
        """Return where the waiter fits now, whoever else waits.

        Of many deployments only some are asked: who fits on none of these is asked about again in
        the queue, and there on all.
        """
        return self._match(waiter, self._free.some(waiter.ticket.affinity), now)

    def lingers(self, match: Match, now: float) -> bool:
        """Whether the waiter is held back for a better place than the match."""
        return self._hope_of(match, now) is not None

    def _hope_of(self, match: Match, now: float) -> Hope | None:
        shape, patience = match.waiter.shape, self._limits.affinity_patience
        if not patience or match.waiter.ticket.affinity is None:
            return None
        if shape.awaits is not None or shape.failed_on is not None:
            return None
        return hope_of(
            match,
            self._able.of(shape).pools,
            patience=patience,
            forecast=self._forecast,
            others=self._queue.lingering,
            now=now,
        )

    def held(self, now: float) -> tuple[Waiter, SlotPool] | None:
        """Return the waiter for which free slots are held, and their deployment."""
        front = [waiter for waiter in self._queue.front() if waiter.shape.awaits is None]
        head = next((waiter for waiter in front if self._is_eligible(waiter, now)), None)
        pool = None if head is None else self._held_for(head, self._free_pools(), now)
        return None if head is None or pool is None else (head, pool)

    def has_other(self, shape: Shape, pool: SlotPool) -> bool:
        """Whether the shape would fit elsewhere, if all our leases ended there."""
        return any(other is not pool for other in self._able.of(shape).pools)

    def _free_pools(self) -> list[SlotPool]:
        return list(self._free)

    def _is_eligible(self, waiter: Waiter, now: float) -> bool:
        """Whether it waits for room: some would do, and its class may take it.

        Else it is passed over like a tenant at its cap.  Were slots held for a class that must
        leave them to others, nobody would get them.
        """
        shape = waiter.shape
        pools = self._able.of(shape).pools
        if shape.holdback and now < self.holdback_until:
            return any(pool.leaves_free(shape) for pool in pools)
        return bool(pools)

    # Fitting.

    def _match(self, waiter: Waiter, pools: Collection[SlotPool], now: float) -> Match | None:
        """Return where of the pools the waiter fits now: slots, context, KV cache, prefill."""
        width, context, size, holdback, failed_on, awaits = waiter.shape
        if size:
            pools = self._readable(waiter, pools)
        # `SlotPool.holds` written out: a call for each of many deployments would be half the cost.
        fits = [
            pool
            for pool in pools
            if (pool.headroom >= width or (width > pool.limit and pool.slack >= width))
            and (pool.ctx_per_slot is None or context <= pool.ctx_per_slot)
        ]
        if holdback and now < self.holdback_until:
            fits = [pool for pool in fits if pool.leaves_free(waiter.shape)]
        if awaits is not None:
            fits = [pool for pool in fits if pool.id == awaits]
        if failed_on is not None:
            fits = [pool for pool in fits if not self._shuns(waiter.shape, pool)]
        while fits:
            pool = self._choose(waiter, fits)
            room = self._kv_budget.fits(waiter.ticket, pool, self._lengths)
            if room is not None:
                return Match(waiter, pool, room)
            fits.remove(pool)
        return None

    def _readable(self, waiter: Waiter, pools: Collection[SlotPool]) -> Collection[SlotPool]:
        """Return those of the free pools where its long prompt may be read now."""
        ticket, quiet = waiter.ticket, self._free.quiet
        if ticket.affinity is not None:
            return [pool for pool in pools if not pool.long_reading or self._may_read(waiter, pool)]
        room = self._limits.long_prefill_tokens - ticket.input_tokens
        if room > SHORT_PROMPT_TOKENS:
            return [pool for pool in pools if pool.long_reading <= room or not pool.long_reading]
        # No long prompt leaves so much room.
        if len(quiet) < _FEW:
            return [pool for pool in quiet.values() if pool in pools]
        return [pool for pool in pools if not pool.long_reading]

    def _may_read(self, waiter: Waiter, pool: SlotPool) -> bool:
        reading = pool.long_reading
        if not reading:
            return True
        tokens = pool.unread_of(waiter.ticket)
        most = self._limits.long_prefill_tokens
        return tokens <= SHORT_PROMPT_TOKENS or reading + tokens <= most

    def _choose(self, waiter: Waiter, pools: list[SlotPool]) -> SlotPool:
        trusted = [pool for pool in pools if not pool.is_on_trial]
        return self._placement.choose(waiter.ticket, trusted or pools, self._lengths)

    def _shuns(self, shape: Shape, pool: SlotPool) -> bool:
        """Whether such a ticket has just failed there, and waits for a slot elsewhere.

        What fails at once has free slots at once, and would get the request again.  One that was
        down since is another: it is trusted.
        """
        return shape.failed_on == (pool.id, pool.revivals) and self.has_other(shape, pool)

    # Overtaking.

    def _could_take(self, head: Waiter, pool: SlotPool) -> bool:
        """Whether the head would run there if all our leases ended."""
        return pool.could_fit(head.shape) and not self._shuns(head.shape, pool)

    def _held_for(self, head: Waiter, free: list[SlotPool], now: float) -> SlotPool | None:
        """Return the deployment whose free slots are kept for the head, which does not fit."""
        limits = self._limits
        overtaken_for = now - head.bypassed_since if head.bypassed else 0.0
        if head.bypassed < limits.max_bypass and overtaken_for < limits.bypass_seconds:
            return None
        # The one that lacks the fewest slots.  Only others are handed out meanwhile, so the
        # choice moves only to one that is closer still.
        able = [pool for pool in free if self._could_take(head, pool)]
        return max(able, key=_PREFERENCE, default=None)

    def _is_gated(self, head: Waiter, pool: SlotPool) -> bool:
        """Whether the head waits for another long prompt to be read there."""
        return head.shape.size > 0 and not self._may_read(head, pool)

    def _leaves_room(self, match: Match, head: Waiter) -> bool:
        """Whether the head would have its slots and tokens beside the match, at once."""
        pool = match.pool
        if pool.headroom < head.shape.width + match.waiter.shape.width:
            return False
        # As if it had been granted.
        pool.kv_reserved += match.room.tokens
        room = self._kv_budget.fits(head.ticket, pool, self._lengths)
        pool.kv_reserved -= match.room.tokens
        return room is not None

    def _may_pass(
        self, match: Match, head: Waiter, shadows: dict[str, _Shadow | None], now: float
    ) -> bool:
        """Whether the match leaves the head its room, as far as can be foreseen.

        `shadows` are those found so far for this head, by deployment: several ask for one.
        """
        pool, waiter = match.pool, match.waiter
        if not waiter.service or not self._could_take(head, pool):
            return True
        if pool.id not in shadows:
            shadows[pool.id] = self._shadow(head, pool, now)
        shadow = shadows[pool.id]
        if shadow is None:
            return True
        seconds, slots, kv_tokens = shadow
        is_beside = slots >= waiter.shape.width and kv_tokens >= match.room.tokens
        return is_beside or waiter.service <= seconds

    def _shadow(self, head: Waiter, pool: SlotPool, now: float) -> _Shadow | None:
        """Return in how long the head's room there comes free, and what is left beside it then.

        None if it has room already and waits for something else: a long prompt, or its class.
        """
        need = self._forecast.kv_need(head, pool)
        slots = pool.headroom - head.shape.width
        kv_tokens = pool.kv_left - need
        if slots >= 0 and kv_tokens >= 0:
            return None
        ends = iter(self._ends(pool, now))
        seconds = 0.0
        while slots < 0 or kv_tokens < 0:
            end = next(ends, None)
            if end is None:
                break
            seconds, lease = end
            slots += lease.width
            kv_tokens += lease.kv_tokens
        return _Shadow(seconds, slots, kv_tokens)

    def _ends(self, pool: SlotPool, now: float) -> Iterable[tuple[float, Lease]]:
        rest = self._forecast.rest
        return sorted([(rest(lease, now), lease) for lease in pool.leases()], key=_SECONDS)

    def _note_bypass(self, head: Waiter, match: Match, now: float) -> None:
        # Who takes slots that the head could never use does not overtake it.
        if self._could_take(head, match.pool):
            if head.bypassed == 0:
                head.bypassed_since = now
            head.bypassed += 1
