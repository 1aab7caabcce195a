"""One model: its deployments, the one queue in front of them, and who of it runs next where.

The queue is bound to a deployment as late as possible, at the grant: a ticket that waits for one
deployment while another has a free slot would waste the slot (late binding).

Who waits, waits for room: nobody does while slots are free in which he fits.  So a narrow ticket
overtakes a wide one that does not fit yet.  Were that unbounded, a wide ticket would never run on
a busy deployment; so after `max_bypass` times, or `bypass_seconds` after the first, free slots of
one deployment are *held* for the wide one until it fits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from slotgate.core.calendar import DrainRate, ReturnCalendar
from slotgate.core.decision import Reason
from slotgate.core.deployment import State
from slotgate.core.kv_budget import KvBudget, NoBudget
from slotgate.core.order import Fifo, Order
from slotgate.core.placement import MostHeadroom, Placement
from slotgate.core.waiter import BEYOND, Shape, Waiter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from slotgate.core.clock import Dice
    from slotgate.core.limits import Limits
    from slotgate.core.pool import SlotPool
    from slotgate.core.ticket import Ticket


# Tuples: a set would take the hash of each state, which for an enumeration is slow.
_SERVING = (State.READY, State.PAUSED)
_COMING = (State.STARTING, State.LOADING)
_HEADROOM = attrgetter("headroom")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """The rules that may be exchanged: who is next, where it runs, and whether KV has room."""

    order: Callable[[Callable[[str], bool]], Order] = Fifo
    placement: Placement = field(default_factory=MostHeadroom)
    kv_budget: KvBudget = field(default_factory=NoBudget)


class Match(NamedTuple):
    """A waiter, and where it may run now."""

    waiter: Waiter
    pool: SlotPool
    output_clamp: int | None


class Misfit(NamedTuple):
    """Why a ticket would not fit even if nobody else ran: too wide, or too long a prompt."""

    reason: Reason
    limit: int


class Model:
    """Matches the waiters of one model with the slots of its deployments.

    It changes only its own queue and its waiters' bypass counts; granting is the scheduler's.
    """

    def __init__(
        self, *, limits: Limits, policies: Policies, dice: Dice, is_open: Callable[[str], bool]
    ) -> None:
        self._limits = limits
        self._policies = policies
        self.queue: Order = policies.order(is_open)
        self.drain_rate = DrainRate(slowest_service_seconds=limits.slowest_service_seconds)
        self.calendar = ReturnCalendar(dice=dice, cap_seconds=limits.retry_cap_seconds)
        # Deployment id -> its pool, in the order in which they were added.
        self.pools: dict[str, SlotPool] = {}
        # The distinct contexts of the deployments, ascending.
        self._contexts: list[int] = []

    # What the deployments can do.

    def absence(self) -> Reason | None:
        """Say why nothing can be served now nor after an operator's `resume`; None if it can."""
        return _absence(self.pools.values())

    def stranded(self) -> list[tuple[Waiter, Reason]]:
        """Return who waits for nothing that is there or coming, and why; O(n) if anybody does."""
        reasons = {shape: reason for shape in self.queue.shapes() if (reason := self._lack(shape))}
        if not reasons:
            return []
        return [(w, reasons[w.shape]) for w in self.queue if w.shape in reasons]

    def _lack(self, shape: Shape) -> Reason | None:
        pools = [pool for pool in self.pools.values() if pool.may_be_made_for(shape)]
        absence = _absence(pools)
        return None if absence is Reason.LOADING else absence

    @property
    def slots(self) -> int:
        """Slots that are ours to hand out, free or not."""
        return sum(pool.usable for pool in self.pools.values())

    def shape_of(self, ticket: Ticket) -> Shape:
        """Return what the ticket needs; valid until `refit`."""
        needed = ticket.input_tokens + 1
        for context in self._contexts:
            if context >= needed:
                return Shape(ticket.width, context)
        return Shape(ticket.width, BEYOND)

    def misfit(self, shape: Shape) -> Misfit | None:
        """Say why the shape would not fit even if nobody else ran; None if it might."""
        if not self.pools or any(pool.is_made_for(shape) for pool in self.pools.values()):
            return None
        spacious = [pool for pool in self.pools.values() if pool.holds(shape.context)]
        if not spacious:
            return Misfit(Reason.CONTEXT_LENGTH_EXCEEDED, self._contexts[-1])
        # A deployment that was never ready may have any number of slots.
        most = max((pool.slots for pool in spacious if pool.was_ready), default=0)
        if most > 0:
            return Misfit(Reason.INVALID_REQUEST, most)
        return None

    def refit(self) -> list[tuple[Waiter, Misfit]]:
        """Measure the waiters against changed deployments; return those that can never fit."""
        contexts = sorted({c for p in self.pools.values() if (c := p.ctx_per_slot) is not None})
        if contexts != self._contexts:
            self._contexts = contexts
            for waiter in list(self.queue):
                self.queue.leave(waiter)
                waiter.shape = self.shape_of(waiter.ticket)
                self.queue.join(waiter)
        misfits = {s: misfit for s in self.queue.shapes() if (misfit := self.misfit(s)) is not None}
        if not misfits:
            return []
        return [(w, misfits[w.shape]) for w in self.queue if w.shape in misfits]

    # Who runs next, and where.

    def next_match(self, now: float) -> Match | None:
        """Return the next waiter that fits now, and count whom it overtakes."""
        free = self._free() if self.queue else []
        if not free:
            return None
        front = iter(self.queue.front())
        head = next(filter(self._could_fit, front), None)
        if head is None:
            return None
        if match := self._match(head, free):
            return match
        held = self._held_for(head, free, now)
        free = [pool for pool in free if pool is not held]
        for waiter in front if free else ():
            if match := self._match(waiter, free):
                self._note_bypass(head, match, now)
                return match
        return None

    def match_of(self, waiter: Waiter) -> Match | None:
        """Return where the waiter fits now, whoever else waits."""
        return self._match(waiter, self.pools.values())

    def held(self, now: float) -> tuple[Waiter, SlotPool] | None:
        """Return the waiter for which free slots are held, and their deployment."""
        head = next(filter(self._could_fit, self.queue.front()), None)
        pool = None if head is None else self._held_for(head, self._free(), now)
        return None if head is None or pool is None else (head, pool)

    def _free(self) -> list[SlotPool]:
        return [pool for pool in self.pools.values() if pool.headroom]

    def _could_fit(self, waiter: Waiter) -> bool:
        return any(pool.could_fit(waiter.shape) for pool in self.pools.values())

    def _match(self, waiter: Waiter, pools: Iterable[SlotPool]) -> Match | None:
        """Return where of the pools the waiter fits now, in slots, context and KV cache."""
        width, context = waiter.shape
        # `SlotPool.holds` written out: a call for each of many deployments would be half the cost.
        fits = [
            pool
            for pool in pools
            if pool.headroom >= width
            and (pool.ctx_per_slot is None or context <= pool.ctx_per_slot)
        ]
        while fits:
            pool = self._choose(waiter, fits)
            room = self._policies.kv_budget.fits(waiter.ticket, pool)
            if room is not None:
                return Match(waiter, pool, room.output_clamp)
            fits.remove(pool)
        return None

    def _choose(self, waiter: Waiter, pools: list[SlotPool]) -> SlotPool:
        if waiter.failed_on is not None:
            # What has just failed there is better tried elsewhere, if there is an elsewhere.
            pools = [pool for pool in pools if pool.id != waiter.failed_on] or pools
        return self._policies.placement.choose(waiter.ticket, pools)

    def _held_for(self, head: Waiter, free: list[SlotPool], now: float) -> SlotPool | None:
        """Return the deployment whose free slots are kept for the head, which does not fit."""
        limits = self._limits
        overtaken_for = now - head.bypassed_since if head.bypassed else 0.0
        if head.bypassed < limits.max_bypass and overtaken_for < limits.bypass_seconds:
            return None
        # The one that lacks the fewest slots.  Only others are handed out meanwhile, so the
        # choice moves only to one that is closer still.
        width, context = head.shape
        able = [
            pool
            for pool in free
            if pool.usable >= width and (pool.ctx_per_slot is None or context <= pool.ctx_per_slot)
        ]
        return max(able, key=_HEADROOM, default=None)

    def _note_bypass(self, head: Waiter, match: Match, now: float) -> None:
        # Who takes slots that the head could never use does not overtake it.
        if match.pool.could_fit(head.shape):
            if head.bypassed == 0:
                head.bypassed_since = now
            head.bypassed += 1


def _absence(pools: Iterable[SlotPool]) -> Reason | None:
    states = []
    for pool in pools:
        if pool.state in _SERVING:
            return None
        states.append(pool.state)
    if any(state in _COMING for state in states):
        return Reason.LOADING
    return Reason.DRAINING if State.DRAINING in states else Reason.NO_BACKEND
