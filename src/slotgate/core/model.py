"""One model: its deployments, the one queue in front of them, and what is known of its requests."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from slotgate.core.billing import Billing
from slotgate.core.calendar import DrainRate
from slotgate.core.decision import Reason
from slotgate.core.deployment import State
from slotgate.core.forecast import Forecast
from slotgate.core.matcher import HOLDBACK_SECONDS, Matcher
from slotgate.core.queue import FairQueue
from slotgate.core.waiter import BEYOND, SHORT_PROMPT_TOKENS, Shape, Waiter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slotgate.core.clock import Dice
    from slotgate.core.limits import Limits
    from slotgate.core.policies import Policies
    from slotgate.core.pool import SlotPool
    from slotgate.core.tenants import Tenants
    from slotgate.core.ticket import Ticket


# A difference in reading that decides nothing worth asking for.
_TELLING_SECONDS = 0.25
# Tuples: a set would take the hash of each state, which for an enumeration is slow.
_SERVING = (State.READY, State.PAUSED)
_COMING = (State.STARTING, State.LOADING)
_NUMBER = attrgetter("number")


class Misfit(NamedTuple):
    """Why a ticket would not fit even if nobody else ran: too wide, or too long a prompt."""

    reason: Reason
    limit: int


class Model:
    """What belongs to one model.  It changes only its own books; granting is the scheduler's."""

    def __init__(self, *, limits: Limits, policies: Policies, dice: Dice, tenants: Tenants) -> None:
        self._limits = limits
        self._tenants = tenants
        self._order = policies.order()
        self.admission = policies.admission()
        self.queue = FairQueue(policies.fairness(), tenants.closed)
        self.drain_rate = DrainRate(slowest_service_seconds=limits.slowest_service_seconds)
        self.calendar = policies.retry_after(dice=dice, cap_seconds=limits.retry_cap_seconds)
        self.lengths = policies.lengths()
        self.billing = Billing(self.queue)
        # Deployment id -> its pool, in the order in which they were added.
        self.pools: dict[str, SlotPool] = {}
        # Those of them that have slots to hand out.
        self.free: dict[str, SlotPool] = {}
        self.forecast = Forecast(self.queue, self.pools, self.lengths)
        self.matcher = Matcher(
            queue=self.queue,
            pools=self.pools,
            free=self.free,
            limits=limits,
            placement=policies.placement(),
            kv_budget=policies.kv_budget(),
            lengths=self.lengths,
            forecast=self.forecast,
        )
        # The distinct contexts of the deployments, ascending.
        self._contexts: list[int] = []

    # Tickets.

    def receive(self, ticket: Ticket, shape: Shape, number: int, now: float) -> Waiter:
        """Return a newcomer as a waiter, with when it must start and what it weighs."""
        chosen = self._limits.of_class(ticket.priority_class)
        reading = self.forecast.start(ticket.input_tokens, now)
        # A prompt that takes the whole budget to read can never be in time: half of it at most
        # counts, so that it is judged by its wait.
        reading = min(reading, (ticket.deadline - ticket.arrival) / 2)
        waiter = Waiter(
            ticket=ticket,
            number=number,
            since=now,
            shape=shape,
            start_by=ticket.deadline - reading,
            weight=self._limits.of_tenant(ticket.tenant).weight * chosen.weight,
        )
        if not chosen.holdback and ticket.deadline > now:
            self.matcher.holdback_until = now + HOLDBACK_SECONDS
        return waiter

    def hangs_on_length(self, ticket: Ticket, low: int, high: int, now: float) -> bool:
        """Whether a newcomer is in time with a prompt of `low` tokens, but not of `high`."""
        waiter = self.receive(ticket, self.shape_of(ticket), 0, now)
        shortest, longest = (self.forecast.start(tokens, now) for tokens in (low, high))
        if longest - shortest < _TELLING_SECONDS or self.matcher.match_of(waiter, now) is not None:
            return False
        wait = self.forecast.wait_of_next(waiter, now)
        if wait is None:
            return False
        likely = self.forecast.calibration.likely(wait, self.forecast.turnover)
        left = ticket.deadline - now - likely
        return shortest <= left < longest

    def join(self, waiter: Waiter) -> None:
        """Take a waiter into the queue, and measure first what it will take."""
        ticket = waiter.ticket
        output = self.lengths.mean(ticket)
        waiter.service = self.forecast.service(ticket.input_tokens, output)
        cost = ticket.input_tokens + self.billing.costs.output * ticket.width * output
        waiter.cost = cost / waiter.weight
        if waiter.rank[1] != waiter.number:
            waiter.rank = (self._order.rank(waiter), waiter.number)
        self.queue.join(waiter)

    def foretell(self, waiter: Waiter, now: float) -> None:
        """Write down how long the waiter, who has just joined, will wait."""
        tenant = waiter.ticket.tenant
        own, cap = self._tenants.leases(tenant), self._tenants.cap(tenant)
        waiter.wait = self.forecast.wait(waiter, now, own=own, cap=cap)
        if waiter.wait is not None:
            waiter.turnover = self.forecast.turnover
            calibration = self.forecast.calibration
            waiter.predicted_wait = calibration.told(waiter.wait, waiter.turnover)
            waiter.likely_wait = calibration.likely(waiter.wait, waiter.turnover)

    def has_waited(self, waiter: Waiter, now: float) -> None:
        """Learn from a wait that has ended by a grant."""
        if waiter.wait is not None:
            self.forecast.calibration.observe(waiter.wait, now - waiter.since, waiter.turnover)

    # What the deployments can do.

    def absence(self) -> Reason | None:
        """Say why nothing can be served now nor after an operator's `resume`; None if it can."""
        return _absence(self.pools.values())

    def stranded(self) -> list[tuple[Waiter, Reason]]:
        """Return who waits for nothing that is there or coming, and why; O(n) if anybody does."""
        reasons = {shape: reason for shape in self.queue.shapes() if (reason := self._lack(shape))}
        if not reasons:
            return []
        return [(w, reasons[w.shape]) for w in self._by_arrival() if w.shape in reasons]

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
        context = next((each for each in self._contexts if each >= needed), BEYOND)
        is_short = ticket.input_tokens <= SHORT_PROMPT_TOKENS
        size = 0 if is_short else ticket.input_tokens.bit_length()
        holdback = self._limits.of_class(ticket.priority_class).holdback
        return Shape(ticket.width, context, size, holdback)

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
                self.queue.move(waiter, self.shape_of(waiter.ticket))
        misfits = {s: misfit for s in self.queue.shapes() if (misfit := self.misfit(s)) is not None}
        if not misfits:
            return []
        return [(w, misfits[w.shape]) for w in self._by_arrival() if w.shape in misfits]

    def _by_arrival(self) -> list[Waiter]:
        return sorted(self.queue, key=_NUMBER)


def _absence(pools: Iterable[SlotPool]) -> Reason | None:
    states = []
    for pool in pools:
        if pool.state in _SERVING:
            return None
        states.append(pool.state)
    if any(state in _COMING for state in states):
        return Reason.LOADING
    return Reason.DRAINING if State.DRAINING in states else Reason.NO_BACKEND
