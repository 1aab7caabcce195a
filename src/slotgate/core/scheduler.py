"""Admission: the only class that the shell talks to.  Events in, decisions out.

Rule 1: nothing here sleeps, awaits or does I/O.  Time comes from the injected clock, read once on
        entry to each public method, so that one call sees one time.
Rule 2: only events change state, and each returns the decisions that it caused, for whichever
        tickets, in the order in which the caller must carry them out.
Rule 3: a grant is state at the moment it is made, not when the waiter wakes up.
Rule 4: each submit gets at most one decision: Granted, Refused, or none if the ticket leaves
        first.  A requeue asks anew, and gets at most one more.
Rule 5: each event goes the same way: what time alone makes due, then the event itself, then slots
        to whom they fit.  So whatever is due has expired before anything is handed out.

The life of a ticket is told in docs/explanation/how-admission-works.md.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from slotgate.core.decision import KV_PRESSURE, Abort, Decision, Ending, Granted, Reason, Refused
from slotgate.core.deployment import State
from slotgate.core.fleet import Fleet
from slotgate.core.leases import Leases
from slotgate.core.limits import Limits
from slotgate.core.meter import Meter
from slotgate.core.model import Model
from slotgate.core.policies import Policies
from slotgate.core.refusals import Refusals
from slotgate.core.room import WaitingRoom
from slotgate.core.snapshot import Counts, Snapshot, WaitingView, view_pool, view_queue
from slotgate.core.tenants import Tenants
from slotgate.core.waiter import Waiter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from slotgate.core.clock import Clock, Dice
    from slotgate.core.deployment import DeploymentReport
    from slotgate.core.matcher import Match
    from slotgate.core.model import Misfit
    from slotgate.core.pool import Lease, SlotPool
    from slotgate.core.ticket import Ticket

# The part of a shared KV cache at which somebody must be stopped.
_NEARLY_FULL = 0.97
_SINCE = attrgetter("since")


class Scheduler:
    """Hands out the slots of all deployments, from one bounded queue per model.

    Each place in which a ticket can be is a named collection: the waiting room, the running
    leases.  A settling lease has no ticket any more.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        dice: Dice,
        limits: Limits | None = None,
        policies: Policies | None = None,
    ) -> None:
        self._clock = clock
        self._dice = dice
        self._limits = limits or Limits()
        self._policies = policies or Policies()
        self._tenants = Tenants(self._limits.tenants)
        self._refusals = Refusals(limits=self._limits, dice=dice, tenants=self._tenants)
        self._room = WaitingRoom(self._limits)
        self._leases = Leases(settle_bound_seconds=self._limits.settle_bound_seconds)
        self._fleet = Fleet(
            self._new_model,
            self._policies.concurrency,
            turn_seconds=self._limits.model_turn_seconds,
        )
        self._arrivals = 0
        self._is_draining = False

    # Events about tickets.

    def submit(self, ticket: Ticket) -> list[Decision]:
        """Ask for a slot.  Without a decision for the ticket, it waits.

        Illegal: a width below 1, or the id of a ticket that waits or runs.
        """
        if ticket.width < 1:
            raise ValueError(f"ticket {ticket.id!r} is {ticket.width} slots wide")
        if ticket.id in self._room or self._leases.of_ticket(ticket.id) is not None:
            raise ValueError(f"ticket {ticket.id!r} is here already")
        now = self._clock.now()
        decisions = self._catch_up(now)
        waiter = self._examine(ticket, now)
        if isinstance(waiter, Refused):
            return [*decisions, waiter, *self._dispatch(now)]
        model = self._fleet.models[ticket.model]
        match = self._match_at_once(waiter, model, now)
        if match is not None:
            model.queue.pass_by(waiter)
            return [*decisions, self._grant(match, now)]
        # Who is still in the queue after the dispatch must have a chance, and a place to wait.
        self._admit(waiter, model, now)
        if self._limits.affinity_patience and self._room.is_overfull(waiter):
            # Nobody is sent away while somebody keeps a place that has no need to.
            waiter.patience_ends = now
            self._fleet.hurry(now)
        decisions += self._dispatch(now)
        if ticket.id in self._room:
            decisions += self._reconsider(waiter, model, now)
        return decisions

    def leave(
        self, ticket_id: str, ending: Ending, *, slot_free: bool | None = None
    ) -> list[Decision]:
        """Let a ticket go, whether it waits or runs.  The one way out; idempotent.

        The slots of a running ticket are free at once if `slot_free`, which is the default after
        SERVED; otherwise they settle: they are free after `settled`, or a bound.
        """
        now = self._clock.now()
        # Before anything else: nobody is there any more to be told that the deadline has come.
        self._withdraw(ticket_id)
        is_free = ending is Ending.SERVED if slot_free is None else slot_free
        lease = self._stop(ticket_id, now, is_free=is_free)
        if lease is not None and ending is Ending.SERVED:
            self._meter(lease, now).ended()
        return [*self._catch_up(now), *self._dispatch(now)]

    def settled(self, lease_id: str) -> list[Decision]:
        """Note that the slots of a settling lease are known free; idempotent."""
        now = self._clock.now()
        decisions = self._catch_up(now)
        self._settled(lease_id, now)
        return [*decisions, *self._dispatch(now)]

    def requeue(
        self, ticket_id: str, *, slot_free: bool = False, rest: Ticket | None = None
    ) -> list[Decision]:
        """Take a running ticket back into the queue, after a failure before the first byte.

        It keeps its arrival, hence its place, and its deadline; its wait counts from the first
        submit.  It is not refused for want of room.  Its old lease settles unless `slot_free`.
        Without a running ticket of that id, this does nothing.

        After a failure amid its answer, `rest` is what it asks for now: its prompt, which is not
        charged again, has grown by what was written, and its deadline is that of going on.
        Illegal: the rest of another ticket.
        """
        if rest is not None and rest.id != ticket_id:
            raise ValueError(f"{rest.id!r} is no rest of {ticket_id!r}")
        now = self._clock.now()
        decisions = self._catch_up(now)
        lease = self._stop(ticket_id, now, is_free=slot_free)
        if lease is not None:
            if rest is None:
                self._fleet.model(lease.waiter.ticket.model).billing.taken_back(lease)
            else:
                lease.waiter.go_on(rest, lease.written, now)
            self._fleet.stir(lease.waiter.ticket.model)
            decisions += self._take_back(lease.waiter, lease.pool, now)
        return [*decisions, *self._dispatch(now)]

    def charge(
        self, ticket_id: str, *, input_tokens: int, cached_tokens: int, output_tokens: int
    ) -> list[Decision]:
        """Note what a running ticket has used since the last call."""
        now = self._clock.now()
        decisions = self._catch_up(now)
        lease = self._leases.of_ticket(ticket_id)
        if lease is not None:
            had_begun = lease.first_token_at is not None
            self._meter(lease, now).streamed(input_tokens, cached_tokens, output_tokens)
            # A long prompt that is read lets the next one in, and one that was counted may leave
            # room, or refund its tenant; a limit may rise; and another may be first now.
            is_read = input_tokens or (output_tokens and not had_begun)
            model = self._fleet.models.get(lease.waiter.ticket.model)
            matcher = None if model is None else model.matcher
            is_idle = matcher is not None and matcher.has_idle and matcher.is_worth_a_look(now)
            if lease.pool.relimit(now) or is_read or is_idle:
                self._fleet.stir(lease.pool.model)
                self._fleet.stir(lease.waiter.ticket.model)
            decisions += self._relieve(lease.pool)
        return [*decisions, *self._dispatch(now)]

    def timed(
        self,
        ticket_id: str,
        *,
        prompt_tokens: int,
        prompt_seconds: float,
        output_tokens: int,
        output_seconds: float,
    ) -> list[Decision]:
        """Note how long the backend says that a running ticket's work took, before it leaves.

        `prompt_tokens` without what came from the cache.
        """
        now = self._clock.now()
        decisions = self._catch_up(now)
        lease = self._leases.of_ticket(ticket_id)
        if lease is not None:
            meter = self._meter(lease, now)
            meter.timed(prompt_tokens, prompt_seconds, output_tokens, output_seconds)
        return [*decisions, *self._dispatch(now)]

    # Events about deployments.

    def deployment(self, report: DeploymentReport) -> list[Decision]:
        """Add a deployment, or take over what was learned about one."""
        now = self._clock.now()
        decisions = self._catch_up(now)
        decisions += self._dismiss(self._fleet.update(report, now), now)
        return [*decisions, *self._dispatch(now)]

    def remove_deployment(self, deployment_id: str) -> list[Decision]:
        """Forget a deployment once its last lease has ended; KeyError if there is none."""
        now = self._clock.now()
        decisions = self._catch_up(now)
        decisions += self._dismiss(self._fleet.remove(deployment_id), now)
        return [*decisions, *self._dispatch(now)]

    def pause(self, deployment_id: str) -> list[Decision]:
        """Start nothing new there; tickets wait for it."""
        return self._hold(deployment_id, State.PAUSED)

    def drain(self, deployment_id: str) -> list[Decision]:
        """Start nothing new there, for good; what runs may end."""
        return self._hold(deployment_id, State.DRAINING)

    def disable(self, deployment_id: str) -> list[Decision]:
        """Treat it as down, whatever it says; what runs may end."""
        return self._hold(deployment_id, State.DOWN)

    def resume(self, deployment_id: str) -> list[Decision]:
        """Undo `pause` and `drain`; a disabled deployment stays so."""
        is_disabled = self._fleet.pools[deployment_id].hold is State.DOWN
        return self._hold(deployment_id, State.DOWN if is_disabled else None)

    def enable(self, deployment_id: str) -> list[Decision]:
        """Undo whatever the operator has done to it."""
        return self._hold(deployment_id, None)

    # Events about everything.

    def reconfigure(self, limits: Limits, policies: Policies) -> list[Decision]:
        """Go by other numbers and rules from now on.

        Nobody is sent away for it, and what was learned stays: who waits does so by the new
        weights, what runs ends by itself, and where a bound is lower than what is there, newcomers
        find no room until it is.  Deadlines stay, as they are the tickets' own.
        """
        now = self._clock.now()
        decisions = self._catch_up(now)
        self._limits = self._refusals.limits = limits
        self._policies = policies
        self._leases.settle_bound_seconds = limits.settle_bound_seconds
        self._room.relimit(limits)
        full, below = self._tenants.recap(limits.tenants)
        for tenant in sorted(full):
            self._fleet.close(tenant)
        for tenant in sorted(below):
            self._fleet.reopen(tenant)
        self._fleet.reconfigure(limits, policies, now)
        return [*decisions, *self._dispatch(now)]

    def begin_draining(self) -> list[Decision]:
        """Refuse newcomers from now on; who waits is served, what runs may end.

        Whom nothing can serve that is there or coming is refused too, now and later: else the
        drain would last to the last deadline, for a backend that nobody brings back.
        """
        self._is_draining = True
        self._fleet.stir_all()
        return self.tick()

    def tick(self) -> list[Decision]:
        """Do what time alone makes due.  Call it at `next_deadline`, or whenever."""
        now = self._clock.now()
        return [*self._catch_up(now), *self._dispatch(now)]

    # Questions.

    def next_deadline(self) -> float | None:
        """Return when `tick` will have something to do; None if never."""
        dates = (
            self._room.next_deadline(),
            self._leases.next_due(),
            self._fleet.next_release(),
            self._fleet.next_lingered(),
            self._fleet.residency.next_due(),
        )
        return min((date for date in dates if date is not None), default=None)

    def is_waiting(self, ticket_id: str) -> bool:
        """Whether the ticket waits."""
        return ticket_id in self._room

    def has_lease(self, ticket_id: str) -> bool:
        """Whether the ticket runs."""
        return self._leases.of_ticket(ticket_id) is not None

    def may_run_elsewhere(self, ticket_id: str) -> bool:
        """Whether a running ticket would fit on another deployment; O(deployments)."""
        lease = self._leases.of_ticket(ticket_id)
        model = None if lease is None else self._fleet.models.get(lease.waiter.ticket.model)
        if lease is None or model is None:
            return False
        return model.matcher.has_other(lease.waiter.shape, lease.pool)

    def states(self) -> dict[str, State]:
        """Return what each deployment can be used for now; O(deployments)."""
        pools = self._fleet.pools.values()
        return {pool.id: pool.state for pool in pools if not pool.is_removed}

    def is_settling(self, lease_id: str) -> bool:
        """Whether the lease is over, but its slots are not known free."""
        return self._leases.is_settling(lease_id)

    @property
    def is_draining(self) -> bool:
        """Whether newcomers are refused because the gateway stops."""
        return self._is_draining

    def held(self) -> frozenset[str]:
        """Return the deployments that the operator holds: paused, drained or disabled."""
        return frozenset(p.id for p in self._fleet.pools.values() if p.hold is not None)

    def speeds(self, deployment_id: str) -> tuple[float | None, float | None]:
        """Return prompt tokens a second, and seconds a token of one stream of as many as write now.

        As they were measured, None while they were not; KeyError if there is no such deployment.
        """
        pool = self._fleet.pools[deployment_id]
        return pool.speeds.prefill, pool.speeds.gaps.gap(max(1, pool.writing))

    def counts(self) -> Counts:
        """Count slots and the waiting; O(number of deployments)."""
        pools = [pool for pool in self._fleet.pools.values() if not pool.is_removed]
        return Counts(
            slots=sum(pool.slots for pool in pools),
            idle=sum(pool.headroom for pool in pools),
            processing=sum(pool.busy for pool in pools),
            waiting=len(self._room),
            waiting_bytes=self._room.bytes,
        )

    def snapshot(self) -> Snapshot:
        """Return a picture of everything; O(n log n), not for the hot path."""
        now = self._clock.now()
        models = self._fleet.models.values()
        holds = [hold for m in models if (hold := m.matcher.held(now)) is not None]
        held_for = {pool.id: waiter.ticket.id for waiter, pool in holds}
        return Snapshot(
            now=now,
            is_draining=self._is_draining,
            deployments=tuple(view_pool(p, held_for.get(p.id)) for p in self._fleet.pools.values()),
            waiting=tuple(
                view for m in self._fleet.models.values() for view in view_queue(m.queue)
            ),
            waiting_bytes=self._room.bytes,
        )

    def waiting_of(self, tenant: str) -> tuple[WaitingView, ...]:
        """Return the tickets of one tenant that wait, by model and order; O(its own)."""
        now = self._clock.now()
        own, cap = self._tenants.leases(tenant), self._tenants.cap(tenant)
        return tuple(
            WaitingView(
                ticket=waiter.ticket,
                position=position,
                first_position=waiter.position,
                since=waiter.since,
                bypassed=waiter.bypassed,
                predicted_wait=None if wait is None else wait + self._fleet.turn_wait(name, now),
            )
            for name, model in self._fleet.models.items()
            for waiter, position, wait in model.forecast.each_of(tenant, now, own=own, cap=cap)
        )

    def hangs_on_length(self, ticket: Ticket, low: int, high: int) -> bool:
        """Whether a ticket would be refused or not according to its prompt's length.

        Between these two, in tokens.  If so, it is worth counting the prompt before `submit`.
        """
        model = self._fleet.models.get(ticket.model)
        now = self._clock.now()
        return model is not None and model.hangs_on_length(ticket, low, high, now)

    # What each event is made of.

    def _catch_up(self, now: float) -> list[Decision]:
        """Do what time alone makes due, except handing out what it frees."""
        decisions: list[Decision] = []
        while (waiter := self._room.due(now)) is not None:
            model = self._fleet.models[waiter.ticket.model]
            self._withdraw(waiter.ticket.id)
            model.has_waited(waiter, now, is_granted=False)
            decisions.append(self._refusals.timed_out(waiter, model, now))
        while (lease_id := self._leases.due(now)) is not None:
            self._settled(lease_id, now)
        self._fleet.release_held_back(now)
        self._fleet.end_lingering(now)
        self._fleet.turn_over(now)
        return decisions

    def _dispatch(self, now: float) -> Iterable[Decision]:
        """Hand out slots in the models that were stirred, until nobody fits any more."""
        return self._hand_out(now) if self._fleet.is_stirred else ()

    def _hand_out(self, now: float) -> Iterator[Decision]:
        yield from self._serve_stirred(now)
        while self._fleet.rearrange(now):
            yield from self._serve_stirred(now)

    def _serve_stirred(self, now: float) -> Iterator[Decision]:
        for model in self._fleet.take_stirred():
            while (match := model.matcher.next_match(now)) is not None:
                self._room.leave(match.waiter.ticket.id)
                model.queue.leave(match.waiter)
                model.has_waited(match.waiter, now, is_granted=True)
                yield self._grant(match, now)
            if self._is_draining and model.queue:
                yield from self._give_up(model, now)
            model.drain_rate.observe(now, is_backlogged=len(model.queue) > 0)

    def _give_up(self, model: Model, now: float) -> Iterator[Decision]:
        for waiter, reason in model.stranded():
            self._room.leave(waiter.ticket.id)
            model.queue.leave(waiter)
            waited = now - waiter.since
            yield self._refusals.unavailable(waiter.ticket, reason, waited=waited)

    def _match_at_once(self, waiter: Waiter, model: Model, now: float) -> Match | None:
        """Return where a newcomer may run without having waited; None if it must queue.

        Only where the queue would give the same: nobody waits before it, its tenant is below its
        cap, and there is nothing left to dispatch that could need the slot or the tenant's place.
        Most requests of a gateway that is not overloaded go this way, at half the price.
        """
        if self._fleet.is_stirred or model.queue or not self._tenants.is_open(waiter.ticket.tenant):
            return None
        match = model.matcher.match_of(waiter, now)
        return None if match is None or model.matcher.lingers(match, now) else match

    def _grant(self, match: Match, now: float) -> Granted:
        waiter = match.waiter
        lease = self._leases.begin(match, now)
        if self._tenants.begin(lease):
            self._fleet.close(waiter.ticket.tenant)
        model = self._fleet.models[waiter.ticket.model]
        model.queue.grant(waiter)
        model.free.served(waiter.ticket.affinity, match.pool)
        model.billing.granted(lease, now)
        model.forecast.turns_over += 1
        return Granted(
            ticket=waiter.ticket,
            lease=lease.id,
            deployment=match.pool.id,
            waited=now - waiter.since,
            output_clamp=match.room.output_clamp,
            predicted_wait=waiter.predicted_wait,
            position=waiter.position,
            expected_cached=lease.stay.expected,
        )

    # Ways in and out of the queue.

    def _examine(self, ticket: Ticket, now: float) -> Waiter | Refused:
        """Return a newcomer as a waiter, or refuse one for whom waiting would be in vain."""
        if self._is_draining:
            return self._refusals.stopping(ticket)
        model = self._fleet.models.get(ticket.model)
        if model is None or not model.pools:
            return self._refusals.unknown_model(ticket)
        shape = model.shape_of(ticket)
        misfit = model.misfit(shape)
        if misfit is not None:
            return self._refusals.misfit(ticket, misfit)
        absence = model.absence()
        is_coming = absence is None or absence is Reason.LOADING or model.is_expected(now)
        if absence is not None and not is_coming:
            return self._refusals.unavailable(ticket, absence)
        self._arrivals += 1
        waiter = model.receive(ticket, shape, self._arrivals, now)
        if ticket.deadline <= now:
            return self._refusals.timed_out(waiter, model, now)
        return waiter

    def _admit(self, waiter: Waiter, model: Model, now: float) -> None:
        self._room.enter(waiter)
        model.join(waiter)
        # If slots were free in vain, they still are, unless it is the first of its shape.
        if not model.matcher.has_idle or model.matcher.is_worth_a_look(now):
            self._fleet.stir(waiter.ticket.model)
        self._fleet.mind_holdback(waiter.ticket.model, now)

    def _reconsider(self, newcomer: Waiter, model: Model, now: float) -> Iterator[Decision]:
        """Refuse a newcomer that would wait in vain, and whoever must go as the room is full."""
        model.foretell(newcomer, now, turn=self._fleet.turn_wait(newcomer.ticket.model, now))
        if model.admission.is_in_vain(newcomer, now):
            self._withdraw(newcomer.ticket.id)
            yield self._refusals.in_vain(newcomer, model, now)
        else:
            for waiter, overflow in self._room.who_must_go(newcomer):
                self._withdraw(waiter.ticket.id)
                its_model = self._fleet.models[waiter.ticket.model]
                yield self._refusals.overflow(waiter, overflow, its_model, now)
        # Slots may have been held for those that went.
        yield from self._dispatch(now)

    def _withdraw(self, ticket_id: str) -> None:
        waiter = self._room.leave(ticket_id)
        if waiter is not None:
            model = self._fleet.models[waiter.ticket.model]
            model.queue.leave(waiter)
            # Slots may have been held for it, if it was the first of its shape.
            if not (model.matcher.has_idle and model.queue) or model.matcher.saw(waiter):
                self._fleet.stir(waiter.ticket.model)

    def _take_back(self, waiter: Waiter, pool: SlotPool, now: float) -> list[Decision]:
        ticket = waiter.ticket
        model = self._fleet.model(ticket.model)
        waiter.wait = None  # what was foretold was the wait for the first grant
        waiter.bypassed = 0
        model.adopt(waiter, failed_on=(pool.id, pool.revivals))
        misfit = model.misfit(waiter.shape)
        if misfit is not None:
            return [self._refusals.misfit(ticket, misfit, waited=now - waiter.since)]
        if ticket.deadline <= now:
            return [self._refusals.timed_out(waiter, model, now)]
        self._admit(waiter, model, now)
        return []

    # Ways out of a lease.

    def _stop(self, ticket_id: str, now: float, *, is_free: bool) -> Lease | None:
        lease = self._leases.stop(ticket_id, now, is_free=is_free)
        if lease is None:
            return None
        model = self._fleet.models.get(lease.waiter.ticket.model)
        if model is not None:
            model.queue.end(lease.waiter)
        if is_free:
            self._freed(lease, now)
        elif lease.is_long_read:
            # Another long prompt may be read in a slot that is free already.
            self._fleet.stir(lease.pool.model)
        return lease

    def _settled(self, lease_id: str, now: float) -> None:
        lease = self._leases.settled(lease_id, now)
        if lease is not None:
            self._freed(lease, now)

    def _freed(self, lease: Lease, now: float) -> None:
        """Use that the slots of a lease are free, and its tenant has one lease fewer."""
        model = self._fleet.models.get(lease.pool.model)
        if model is not None:
            model.drain_rate.completed(now, held_seconds=now - lease.since)
            model.forecast.turns_over += 1
        self._fleet.release(lease.pool)
        if self._tenants.end(lease):
            self._fleet.reopen(lease.waiter.ticket.tenant)

    def _relieve(self, pool: SlotPool) -> list[Decision]:
        """Stop the youngest on a shared KV cache that turned out smaller and is nearly full.

        Grants keep to what the cache holds; but what is known of it may change while they run.
        """
        holds = pool.kv_pool_tokens
        if holds is None or pool.kv_reserved <= holds or pool.kv_used <= _NEARLY_FULL * holds:
            return []
        running = [lease for lease in pool.running.values() if not lease.is_stopped]
        if not running or len(running) < len(pool.running):
            return []  # one at a time: it may be enough
        victim = max(running, key=_SINCE)
        victim.is_stopped = True
        return [Abort(ticket_id=victim.waiter.ticket.id, reason=KV_PRESSURE)]

    def _meter(self, lease: Lease, now: float) -> Meter:
        # The ticket's model, whatever its deployment serves by now.  It may be gone while a lease
        # of it ends: what it would learn is then learned anew.
        model = self._fleet.models.get(lease.waiter.ticket.model) or self._new_model()
        return Meter(model, lease, now)

    # Deployments and models.

    def _hold(self, deployment_id: str, hold: State | None) -> list[Decision]:
        now = self._clock.now()
        decisions = self._catch_up(now)
        self._fleet.hold(deployment_id, hold)
        return [*decisions, *self._dispatch(now)]

    def _dismiss(self, unfit: list[tuple[Waiter, Misfit]], now: float) -> list[Decision]:
        """Refuse those that can never fit any more."""
        refused: list[Decision] = []
        for waiter, misfit in unfit:
            self._withdraw(waiter.ticket.id)
            waited = now - waiter.since
            refused.append(self._refusals.misfit(waiter.ticket, misfit, waited=waited))
        return refused

    def _new_model(self) -> Model:
        return Model(
            limits=self._limits,
            policies=self._policies,
            dice=self._dice,
            tenants=self._tenants,
        )
