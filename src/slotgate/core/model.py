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
from typing import TYPE_CHECKING, NamedTuple

from slotgate.core.calendar import DrainRate, ReturnCalendar
from slotgate.core.decision import Reason
from slotgate.core.deployment import State
from slotgate.core.kv_budget import KvBudget, NoBudget, Room
from slotgate.core.order import Fifo, Order
from slotgate.core.placement import MostHeadroom, Placement
from slotgate.core.waiter import BEYOND, Shape, Waiter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from slotgate.core.clock import Dice
    from slotgate.core.limits import Limits
    from slotgate.core.pool import SlotPool
    from slotgate.core.ticket import Ticket


_SERVING = frozenset({State.READY, State.PAUSED})
_COMING = frozenset({State.STARTING, State.LOADING})


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
        return _absence({pool.state for pool in self.pools.values()})

    def stranded(self) -> list[tuple[Waiter, Reason]]:
        """Return who waits for nothing that is there or coming, and why; O(n) if anybody does."""
        reasons = {shape: reason for shape in self.queue.shapes() if (reason := self._lack(shape))}
        if not reasons:
            return []
        return [(w, reasons[w.shape]) for w in self.queue if w.shape in reasons]

    def _lack(self, shape: Shape) -> Reason | None:
        pools = [pool for pool in self.pools.values() if pool.may_be_made_for(shape)]
        absence = _absence({pool.state for pool in pools})
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
        if not self.queue:
            return None
        free = [pool for pool in self.pools.values() if pool.headroom]
        if not free:
            return None
        head: Waiter | None = None
        for waiter in self.queue.front():
            if head is None:
                if not self._could_fit(waiter):
                    continue
                head = waiter
                if rooms := self._rooms(head, free):
                    return self._match(head, rooms)
                held = self._held_for(head, now)
                free = [pool for pool in free if pool is not held]
            elif rooms := self._rooms(waiter, free):
                return self._overtake(waiter, head, rooms, now)
        return None

    def match_of(self, waiter: Waiter) -> Match | None:
        """Return where the waiter fits now, whoever else waits."""
        rooms = self._rooms(waiter, self.pools.values())
        return self._match(waiter, rooms) if rooms else None

    def held(self, now: float) -> tuple[Waiter, SlotPool] | None:
        """Return the waiter for which free slots are held, and their deployment."""
        head = next(filter(self._could_fit, self.queue.front()), None)
        pool = None if head is None else self._held_for(head, now)
        return None if head is None or pool is None or not pool.headroom else (head, pool)

    def _could_fit(self, waiter: Waiter) -> bool:
        return any(pool.could_fit(waiter.shape) for pool in self.pools.values())

    def _rooms(self, waiter: Waiter, pools: Iterable[SlotPool]) -> dict[SlotPool, Room]:
        """Return the deployments that the waiter fits now, in slots, context and KV cache."""
        kv_budget = self._policies.kv_budget
        return {
            pool: room
            for pool in pools
            if pool.fits(waiter.shape) and (room := kv_budget.fits(waiter.ticket, pool)) is not None
        }

    def _match(self, waiter: Waiter, rooms: Mapping[SlotPool, Room]) -> Match:
        # What has just failed there is better tried elsewhere, if there is an elsewhere.
        others = [pool for pool in rooms if pool.id != waiter.failed_on]
        pool = self._policies.placement.choose(waiter.ticket, others or list(rooms))
        return Match(waiter, pool, rooms[pool].output_clamp)

    def _held_for(self, head: Waiter, now: float) -> SlotPool | None:
        """Return the deployment whose free slots are kept for the head, which does not fit."""
        limits = self._limits
        overtaken_for = now - head.bypassed_since if head.bypassed else 0.0
        if head.bypassed < limits.max_bypass and overtaken_for < limits.bypass_seconds:
            return None
        # The one that lacks the fewest slots.  Only others are handed out meanwhile, so the
        # choice moves only to one that is closer still.
        able = [pool for pool in self.pools.values() if pool.could_fit(head.shape)]
        return max(able, key=lambda pool: pool.headroom)

    def _overtake(
        self, waiter: Waiter, head: Waiter, rooms: Mapping[SlotPool, Room], now: float
    ) -> Match:
        match = self._match(waiter, rooms)
        # Who takes slots that the head could never use does not overtake it.
        if match.pool.could_fit(head.shape):
            if head.bypassed == 0:
                head.bypassed_since = now
            head.bypassed += 1
        return match


def _absence(states: set[State]) -> Reason | None:
    if states & _SERVING:
        return None
    if states & _COMING:
        return Reason.LOADING
    return Reason.DRAINING if State.DRAINING in states else Reason.NO_BACKEND
