"""One model: its deployments, the one queue in front of them, and what is known of its requests."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from slotgate.core.able import Able
from slotgate.core.billing import Billing
from slotgate.core.calendar import DrainRate
from slotgate.core.chances import Chances, chance_of_next
from slotgate.core.decision import Reason
from slotgate.core.deployment import State
from slotgate.core.forecast import Forecast
from slotgate.core.free_pools import FreePools
from slotgate.core.matcher import HOLDBACK_SECONDS, Matcher
from slotgate.core.policies import is_same
from slotgate.core.queue import FairQueue
from slotgate.core.waiter import BEYOND, SHORT_PROMPT_TOKENS, Shape, Waiter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slotgate.core.calendar import RetryPolicy
    from slotgate.core.clock import Dice
    from slotgate.core.limits import Limits
    from slotgate.core.policies import Policies
    from slotgate.core.pool import SlotPool
    from slotgate.core.tenants import Tenants
    from slotgate.core.ticket import Ticket


# A difference in reading that decides nothing worth asking for.
_TELLING_SECONDS = 0.25
# Tuples: a set would take the hash of each state, which for an enumeration is slow.
_SERVING = (State.READY, State.DEGRADED, State.PAUSED)
_COMING = (State.STARTING, State.LOADING)
_NUMBER = attrgetter("number")


class Misfit(NamedTuple):
    """Why a ticket would not fit even if nobody else ran: too wide, too long, or nothing there."""

    reason: Reason
    limit: int


class Model:
    """What belongs to one model.  It changes only its own books; granting is the scheduler's."""

    def __init__(self, *, limits: Limits, policies: Policies, dice: Dice, tenants: Tenants) -> None:
        self._limits = limits
        self._policies = policies
        self._dice = dice
        self._tenants = tenants
        self._order = policies.order()
        self.admission = policies.admission()
        self.queue = FairQueue(policies.fairness(), tenants.closed)
        self.drain_rate = DrainRate(slowest_service_seconds=limits.slowest_service_seconds)
        self.calendar = self._new_calendar()
        self.lengths = policies.lengths()
        self._chances = Chances()
        self.billing = Billing(self.queue)
        self.kv_budget = policies.kv_budget()
        # Deployment id -> its pool, in the order in which they were added.
        self.pools: dict[str, SlotPool] = {}
        # Those of them that have slots to hand out.
        self.free = FreePools()
        self.able = Able(self.pools)
        self.forecast = Forecast(self.queue, self.pools, self.able, self.lengths)
        self.matcher = Matcher(
            queue=self.queue,
            able=self.able,
            free=self.free,
            limits=limits,
            placement=policies.placement(),
            kv_budget=self.kv_budget,
            lengths=self.lengths,
            forecast=self.forecast,
        )
        # The distinct contexts of the deployments, ascending.
        self._contexts: list[int] = []

    def reconfigure(self, limits: Limits, policies: Policies) -> None:
        """Go by other numbers and rules; what was learned stays, and who waits keeps its place.

        A rule that is replaced begins afresh, with nothing noted: counters, calendars.
        """
        old, self._policies = self._policies, policies
        self._limits = limits
        self.kv_budget = policies.kv_budget()
        is_placed_as_before = is_same(old.placement, policies.placement)
        self.matcher.reconfigure(
            limits,
            placement=None if is_placed_as_before else policies.placement(),
            kv_budget=self.kv_budget,
        )
        self.admission = policies.admission()
        if not is_same(old.order, policies.order):
            self._order = policies.order()
        if not is_same(old.retry_after, policies.retry_after):
            self.calendar = self._new_calendar()
        is_fair_as_before = is_same(old.fairness, policies.fairness)
        self.queue.rearrange(self._measure, None if is_fair_as_before else policies.fairness())

    def _new_calendar(self) -> RetryPolicy:
        cap = self._limits.retry_cap_seconds
        return self._policies.retry_after(dice=self._dice, cap_seconds=cap)

    def _measure(self, waiter: Waiter) -> None:
        self.adopt(waiter)
        self._weigh(waiter)

    # Tickets.

    def adopt(self, waiter: Waiter, failed_on: tuple[str, int] | None = None) -> None:
        """Let a waiter that comes back, or stays, count by the numbers of now."""
        waiter.shape = self.shape_of(waiter.ticket, failed_on or waiter.shape.failed_on)
        waiter.weight = self._weight_of(waiter.ticket)

    def _weight_of(self, ticket: Ticket) -> float:
        its_class = self._limits.of_class(ticket.priority_class)
        return self._limits.of_tenant(ticket.tenant).weight * its_class.weight

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
            weight=self._weight_of(ticket),
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
        left = ticket.deadline - now
        # As if somebody were ahead: who is next is seldom refused, and not for its prompt.
        shorter, longer = (
            replace(waiter, ahead=1, chance=self._chance(ticket.tenant, wait, left - start, now))
            for start in (shortest, longest)
        )
        is_in_vain = self.admission.is_in_vain
        return is_in_vain(longer, now) and not is_in_vain(shorter, now)

    def join(self, waiter: Waiter) -> None:
        """Take a waiter into the queue, and measure first what it will take."""
        self._weigh(waiter)
        self.queue.join(waiter)

    def _weigh(self, waiter: Waiter) -> None:
        ticket = waiter.ticket
        output = self.lengths.mean(ticket)
        waiter.service = self.forecast.service(ticket.input_tokens, output)
        cost = ticket.input_tokens + self.billing.costs.output * ticket.width * output
        waiter.toll = self.queue.toll(cost, waiter.weight)
        if waiter.ranked_by is not self._order:
            waiter.rank = (self._order.rank(waiter), waiter.number)
            waiter.ranked_by = self._order

    def foretell(self, waiter: Waiter, now: float, *, turn: float) -> None:
        """Write down how long the waiter, who has just joined, will wait; also for its `turn`."""
        tenant = waiter.ticket.tenant
        own, cap = self._tenants.leases(tenant), self._tenants.cap(tenant)
        waiter.wait = self.forecast.wait(waiter, now, own=own, cap=cap)
        waiter.position = 1 + int(waiter.ahead)
        if waiter.wait is not None:
            # A turn comes only if somebody waits for it, so the first may, however long it takes.
            is_alone = len(self.queue) == 1
            waiter.wait += min(turn, (waiter.ticket.deadline - now) / 2) if is_alone else turn
            waiter.turnover = self.forecast.turnover
            told = self.forecast.calibration.told(waiter.wait, waiter.turnover)
            waiter.predicted_wait = told
            left = waiter.start_by - now
            if waiter.ahead < 1:
                waiter.chance = chance_of_next(waiter.wait, left)
            else:
                waiter.chance = self._chance(tenant, waiter.wait, left, now)

    def has_waited(self, waiter: Waiter, now: float, *, is_granted: bool) -> None:
        """Learn from a wait that has ended, by a grant or because its time was over."""
        wait, turnover, waited = waiter.wait, waiter.turnover, now - waiter.since
        if wait is None:
            return
        if is_granted:
            self.forecast.calibration.observe(wait, waited, turnover)
        ratio = (waited + turnover) / (wait + turnover)
        self._chances.observe(waiter.ticket.tenant, ratio, now, is_granted=is_granted)

    def _chance(self, tenant: str, wait: float, left: float, now: float) -> float:
        """Return how likely a wait so foretold is over in the time that is left."""
        turnover = self.forecast.turnover
        return self._chances.of(tenant, (left + turnover) / (wait + turnover), now)

    def keep_cache(self, pool: SlotPool) -> None:
        """Keep a shared KV cache, once it is known, for the leases that began without it."""
        if pool.kv_pool_tokens is not None:
            for lease in pool.leases():
                if not lease.kv_tokens:
                    pool.keep(lease, self.kv_budget.need(lease, self.lengths))

    # What the deployments can do.

    def keep_the_best(self) -> None:
        """Use those deployments to their limit that are the best there are, even if they fail.

        Where all of them fail, requests that fail on one of them are no worse off than requests
        that are refused, and one that is served shows that it can be trusted again.
        """
        standings = [pool.standing for pool in self.pools.values()]
        best = max(standings, default=-1)
        for pool, standing in zip(self.pools.values(), standings, strict=True):
            pool.set_best(is_best=standing == best)
        self.able.forget()
        # What somebody lingers for may not come any more.
        self.queue.end_lingering(inf)

    def absence(self) -> Reason | None:
        """Say why nothing can be served now nor after an operator's `resume`; None if it can."""
        return _absence(self.pools.values())

    def is_expected(self, now: float) -> bool:
        """Whether a deployment that is down was there a moment ago, and may be back in another."""
        return any(pool.is_expected(now) for pool in self.pools.values())

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
        return self.able.slots

    def shape_of(self, ticket: Ticket, failed_on: tuple[str, int] | None = None) -> Shape:
        """Return what the ticket needs; valid until `refit`."""
        tokens, contexts = ticket.input_tokens, self._contexts
        place = bisect_right(contexts, tokens)
        context = contexts[place] if place < len(contexts) else BEYOND
        size = 0 if tokens <= SHORT_PROMPT_TOKENS else tokens.bit_length()
        holdback = self._limits.of_class(ticket.priority_class).holdback
        return Shape(ticket.width, context, size, holdback, failed_on)

    def misfit(self, shape: Shape) -> Misfit | None:
        """Say why the shape would not fit even if nobody else ran; None if it might."""
        if not self.pools:
            return Misfit(Reason.MODEL_NOT_FOUND, 0)
        if self.able.of(shape).pools:
            return None
        if any(pool.is_made_for(shape) for pool in self.pools.values()):
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
        self.able.forget()
        contexts = sorted({c for p in self.pools.values() if (c := p.ctx_per_slot) is not None})
        if contexts != self._contexts:
            self._contexts = contexts
            for waiter in list(self.queue):
                self.queue.move(waiter, self.shape_of(waiter.ticket, waiter.shape.failed_on))
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
