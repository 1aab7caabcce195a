"""Random lives of a scheduler: against plain rules, and against what must hold whatever the rules.

Two judges look at every event.  The naive scheduler says what must be decided.  The books, which
know nothing but the events sent and the decisions made, say what must never happen: slots handed
out twice, a slot idle while somebody waits whom it fits, a ticket that overtakes its like, a queue
beyond its bounds, a second decision, a ticket that never ends.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from math import inf

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from typing_extensions import override

from slotgate.core.decision import Decision, Ending, Granted, Refused
from slotgate.core.deployment import DeploymentReport, State
from slotgate.core.limits import Limits, TenantCaps
from slotgate.core.policies import Policies
from slotgate.core.scheduler import Scheduler
from slotgate.core.ticket import Ticket
from slotgate.testing import FakeClock
from tests.core.naive import NaiveScheduler, Outcome

LIMITS = Limits(
    max_waiting=6,
    max_waiting_bytes=100,
    settle_bound_seconds=5,
    max_bypass=2,
    bypass_seconds=2,
    long_prefill_tokens=1_000_000,
    tenants={
        "hog": TenantCaps(max_in_flight=2, max_waiting=3),
        "agent": TenantCaps(weight=3),
    },
)
OTHER_LIMITS = Limits(
    max_waiting=3,
    max_waiting_bytes=40,
    settle_bound_seconds=2,
    max_bypass=1,
    bypass_seconds=1,
    long_prefill_tokens=1_000_000,
    tenants={"hog": TenantCaps(max_in_flight=1, max_waiting=2), "chat": TenantCaps(weight=5)},
)
MORE_LIMITS = replace(LIMITS, tenants={"agent": TenantCaps(max_waiting=1)})
# What is foretold, and what follows from it, has tests of its own.
POLICIES = Policies.named(admission="expiry", placement="headroom")
MODEL_OF = {"left": "m", "right": "m", "far": "n"}

slot_counts = st.sampled_from([1, 2, 3, 4, 4, 4, 4, 0])
states = st.sampled_from([State.READY] * 12 + list(State))
contexts = st.sampled_from([None, None, None, 1000, 2000])
index = st.integers(0, 1000)


@dataclass
class Held:
    """A lease in the books."""

    ticket: Ticket
    deployment: str
    settles_by: float | None = None


class SchedulerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock(100)
        self.scheduler = Scheduler(
            clock=self.clock, dice=random.Random(5), limits=LIMITS, policies=POLICIES
        )
        self.limits = LIMITS
        self.naive = NaiveScheduler(LIMITS)
        self.count = 0
        self.tickets: dict[str, Ticket] = {}
        # The books: ticket id -> ticket, lease id -> lease, deployment id -> its last report.
        self.waiting: dict[str, Ticket] = {}
        self.running: dict[str, str] = {}
        self.leases: dict[str, Held] = {}
        self.reports: dict[str, DeploymentReport] = {}
        self.requeued: set[str] = set()
        self.wrote: set[str] = set()
        self.gone: list[str] = []
        # How many newcomers waited after the last event, and how many bytes of theirs.
        self.before = (0, 0)

    # Events.

    @initialize(slots=st.tuples(slot_counts, slot_counts), ctx=st.tuples(contexts, contexts))
    def start(self, slots: tuple[int, int], ctx: tuple[int | None, int | None]) -> None:
        for place, name in enumerate(("left", "right")):
            self.report(name, slots[place], State.READY, ctx[place], 0, ejected=False)
        self.report("far", 1, State.READY, None, 0, ejected=False)

    @rule(widths=st.lists(st.sampled_from([1, 1, 1, 2, 3]), min_size=1, max_size=5))
    def submit_many(self, widths: list[int]) -> None:
        for width in widths:
            self.submit(width, "chat", 0, 1, 10, "m")

    @rule(width=st.sampled_from([1, 2, 4]), then=st.integers(1, 4))
    def submit_a_wide_one_and_more(self, width: int, then: int) -> None:
        self.submit(width, "agent", 0, 1, 10, "m")
        self.submit_many([1] * then)

    @rule(
        width=st.sampled_from([1, 1, 1, 2, 3, 4, 5]),
        tenant=st.sampled_from(["chat", "agent", "hog", "hog"]),
        tokens=st.sampled_from([0, 0, 0, 999, 1000, 1500, 2000]),
        size=st.sampled_from([0, 1, 20, 40, 101]),
        within=st.sampled_from([0.0, 1.0, 3.0, 10.0, 10.0]),
        model=st.sampled_from(["m"] * 8 + ["n", "nowhere"]),
    )
    def submit(
        self, width: int, tenant: str, tokens: int, size: int, within: float, model: str
    ) -> None:
        now = self.clock.now()
        self.count += 1
        ticket = Ticket(
            id=f"t{self.count}",
            arrival=now,
            deadline=now + within,
            tenant=tenant if model == "m" else "other",
            model=model,
            width=width,
            input_tokens=tokens,
            size_bytes=size,
        )
        self.tickets[ticket.id] = self.waiting[ticket.id] = ticket
        self.judge(self.scheduler.submit(ticket), self.naive.submit(ticket, now))

    @precondition(lambda self: self.running)
    @rule(index=index)
    def serve(self, index: int) -> None:
        self.stop_running(index, Ending.SERVED, None)

    @precondition(lambda self: self.running)
    @rule(indices=st.lists(index, min_size=1, max_size=4))
    def serve_many(self, indices: list[int]) -> None:
        for index in indices[: len(self.running)]:
            self.serve(index)
            self.submit(1, "chat", 0, 1, 10, "m")

    @precondition(lambda self: self.running)
    @rule(index=index, tokens=st.integers(1, 500))
    def stream(self, index: int, tokens: int) -> None:
        """The first tokens of an answer; further ones would tell how fast the deployment is."""
        ticket_id = sorted(self.running)[index % len(self.running)]
        if self.running[ticket_id] in self.wrote:
            return
        self.wrote.add(self.running[ticket_id])
        usage = {"input_tokens": 0, "cached_tokens": 0, "output_tokens": tokens}
        self.judge(
            self.scheduler.charge(ticket_id, **usage),
            self.naive.stream(ticket_id, tokens, self.clock.now()),
        )

    @precondition(lambda self: self.waiting)
    @rule(index=index)
    def leave_the_queue(self, index: int) -> None:
        ticket_id = sorted(self.waiting)[index % len(self.waiting)]
        del self.waiting[ticket_id]
        self.leave(ticket_id, Ending.ABANDONED, None, is_free=False)

    @precondition(lambda self: self.running)
    @rule(
        index=index, ending=st.sampled_from(Ending), slot_free=st.sampled_from([None, True, False])
    )
    def stop_running(self, index: int, ending: Ending, slot_free: bool | None) -> None:
        ticket_id = sorted(self.running)[index % len(self.running)]
        is_free = ending is Ending.SERVED if slot_free is None else slot_free
        self.stop(ticket_id, is_free=is_free)
        self.leave(ticket_id, ending, slot_free, is_free=is_free)

    @precondition(lambda self: self.gone)
    @rule(index=index)
    def leave_again(self, index: int) -> None:
        ticket_id = self.gone[index % len(self.gone)]
        self.leave(ticket_id, Ending.SERVED, slot_free=True, is_free=True)

    @precondition(lambda self: self.leases)
    @rule(index=index)
    def settle(self, index: int) -> None:
        lease_id = list(self.leases)[index % len(self.leases)]
        held, now = self.leases[lease_id], self.clock.now()
        if held.settles_by is None:
            outcomes = self.naive.tick(now)
        else:
            alike = [h for h in self.leases.values() if h.ticket == held.ticket and h.settles_by]
            outcomes = self.naive.settled(held.ticket.id, alike.index(held), now)
            del self.leases[lease_id]
        self.judge(self.scheduler.settled(lease_id), outcomes)
        assert not self.scheduler.is_settling(lease_id)

    @precondition(lambda self: self.running)
    @rule(index=index, slot_free=st.booleans())
    def requeue(self, index: int, slot_free: bool) -> None:
        ticket_id = sorted(self.running)[index % len(self.running)]
        ticket = self.leases[self.running[ticket_id]].ticket
        self.stop(ticket_id, is_free=slot_free)
        self.waiting[ticket_id] = ticket
        self.requeued.add(ticket_id)
        self.judge(
            self.scheduler.requeue(ticket_id, slot_free=slot_free),
            self.naive.requeue(ticket_id, self.clock.now(), is_free=slot_free),
        )

    @rule(
        name=st.sampled_from(["left", "left", "right", "far"]),
        slots=slot_counts,
        state=states,
        ctx=contexts,
        outside=st.sampled_from([0, 0, 1, 2]),
        ejected=st.booleans(),
    )
    def report(
        self,
        name: str,
        slots: int,
        state: State,
        ctx: int | None,
        outside: int,
        *,
        ejected: bool,
    ) -> None:
        report = DeploymentReport(
            id=name,
            model=MODEL_OF[name],
            slots=slots,
            state=state,
            ctx_per_slot=ctx,
            outside=outside,
            is_ejected=ejected and state is State.DOWN,
        )
        self.reports[name] = report
        now = self.clock.now()
        self.judge(self.scheduler.deployment(report), self.naive.deployment(report, now))

    @rule()
    def recover(self) -> None:
        for name in ("left", "right"):
            self.report(name, 4, State.READY, None, 0, ejected=False)
            self.hold(name, "enable")

    @rule(
        name=st.sampled_from(sorted(MODEL_OF)),
        verb=st.sampled_from(["pause", "drain", "disable", "resume", "enable", "remove"]),
    )
    def operate(self, name: str, verb: str) -> None:
        self.judge(self.scheduler.tick(), self.naive.tick(self.clock.now()))
        if name not in self.naive.places:
            return
        if verb == "remove":
            outcomes = self.naive.remove(name, self.clock.now())
            self.judge(self.scheduler.remove_deployment(name), outcomes)
        else:
            self.hold(name, verb)

    def hold(self, name: str, verb: str) -> None:
        hold = {"pause": State.PAUSED, "drain": State.DRAINING, "disable": State.DOWN}.get(verb)
        if verb == "resume" and self.naive.places[name].hold is State.DOWN:
            hold = State.DOWN
        event = getattr(self.scheduler, verb)
        self.judge(event(name), self.naive.hold(name, hold, self.clock.now()))

    @rule(limits=st.sampled_from([LIMITS, OTHER_LIMITS, MORE_LIMITS]))
    def reconfigure(self, limits: Limits) -> None:
        self.limits = limits
        decisions = self.scheduler.reconfigure(limits, POLICIES)
        self.judge(decisions, self.naive.reconfigure(limits, self.clock.now()))

    # Late and seldom: nothing new comes any more.
    @precondition(lambda self: self.count > 15)
    @rule(now=st.sampled_from([False, False, True]))
    def begin_draining(self, now: bool) -> None:
        if now:
            self.drain()

    def drain(self) -> None:
        self.judge(self.scheduler.begin_draining(), self.naive.begin_draining(self.clock.now()))
        assert self.scheduler.is_draining

    @rule(seconds=st.sampled_from([0.0, 0.1, 0.5, 1.0, 3.0, 1000.0]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def wait_until_something_is_due(self) -> None:
        due = self.scheduler.next_deadline()
        times = [t.deadline for t in self.waiting.values()]
        times += [h.settles_by for h in self.leases.values() if h.settles_by is not None]
        assert due == min(times, default=None)
        if due is not None:
            self.clock.advance_to(max(due, self.clock.now()))
            self.judge(self.scheduler.tick(), self.naive.tick(self.clock.now()))

    @override
    def teardown(self) -> None:
        """The gateway drains: every ticket ends, and every slot is free."""
        self.drain()
        self.submit(1, "chat", 0, 0, 10, "m")
        while self.running or self.waiting:
            if self.running:
                self.stop_running(0, Ending.ABANDONED, None)
            self.wait_until_something_is_due()
        self.wait(LIMITS.settle_bound_seconds)
        self.judge(self.scheduler.tick(), self.naive.tick(self.clock.now()))
        snapshot = self.scheduler.snapshot()
        assert all(not d.running and not d.settling for d in snapshot.deployments)
        assert self.scheduler.next_deadline() is None
        assert snapshot.waiting_bytes == 0
        assert self.scheduler._tenants._in_flight == {}

    # The books.

    def leave(
        self, ticket_id: str, ending: Ending, slot_free: bool | None, *, is_free: bool
    ) -> None:
        self.gone.append(ticket_id)
        self.judge(
            self.scheduler.leave(ticket_id, ending, slot_free=slot_free),
            self.naive.leave(ticket_id, self.clock.now(), is_free=is_free),
        )

    def stop(self, ticket_id: str, *, is_free: bool) -> None:
        lease_id = self.running.pop(ticket_id)
        if is_free:
            del self.leases[lease_id]
        else:
            bound = self.clock.now() + self.limits.settle_bound_seconds
            self.leases[lease_id].settles_by = bound
            self.leases[lease_id] = self.leases.pop(lease_id)

    def judge(self, decisions: list[Decision], outcomes: list[Outcome]) -> None:
        self.forget_settled()
        for decision in decisions:
            if isinstance(decision, Granted):
                self.check_grant(decision)
            else:
                assert isinstance(decision, Refused)
                self.check_refusal(decision)
        self.check_the_plain_rules(decisions, outcomes)
        self.check_the_room()
        self.check_the_snapshot()
        self.check_that_no_slot_idles()

    def forget_settled(self) -> None:
        now = self.clock.now()
        bounds = {lease_id: held.settles_by for lease_id, held in self.leases.items()}
        for lease_id, bound in bounds.items():
            if bound is not None and bound <= now:
                del self.leases[lease_id]

    def free_slots(self, name: str) -> int:
        report = self.reports[name]
        held = sum(h.ticket.width for h in self.leases.values() if h.deployment == name)
        return report.slots - report.outside - held

    def check_grant(self, granted: Granted) -> None:
        ticket, name = granted.ticket, granted.deployment
        assert self.waiting.pop(ticket.id) is ticket, "it waits: this is its one decision"
        assert self.clock.now() < ticket.deadline
        assert self.naive.places[name].state in {State.READY, State.DEGRADED}
        assert MODEL_OF[name] == ticket.model
        assert ticket.width <= self.free_slots(name), "no slot is handed out twice"
        assert granted.lease not in self.leases
        alike = (ticket.tenant, ticket.model, ticket.width, ticket.input_tokens)
        for other in self.waiting.values():
            if other.id in self.requeued:
                continue  # it may have failed here, and waits for a slot elsewhere
            its = (other.tenant, other.model, other.width, other.input_tokens)
            assert alike != its or int(ticket.id[1:]) < int(other.id[1:]), "no one overtakes alike"
        self.leases[granted.lease] = Held(ticket, name)
        self.running[ticket.id] = granted.lease
        assert ticket.tenant != "hog" or self.hogs <= self.most_hogs

    @property
    def hogs(self) -> int:
        return sum(h.ticket.tenant == "hog" for h in self.leases.values())

    @property
    def most_hogs(self) -> float:
        most = self.limits.of_tenant("hog").max_in_flight
        return inf if most is None else most

    def check_refusal(self, refused: Refused) -> None:
        assert self.waiting.pop(refused.ticket.id) is refused.ticket
        is_final = refused.reason in (
            "model_not_found",
            "invalid_request_error",
            "context_length_exceeded",
        )
        assert (refused.retry_after is None) == is_final
        assert refused.retry_after is None or 0 < refused.retry_after <= 50

    def check_the_plain_rules(self, decisions: list[Decision], outcomes: list[Outcome]) -> None:
        decided: dict[str, list[Outcome]] = {}
        wanted: dict[str, list[Outcome]] = {}
        for decision in decisions:
            assert isinstance(decision, Granted | Refused)
            where = decision.deployment if isinstance(decision, Granted) else str(decision.reason)
            # Each model on its own: the order of decisions about two models means nothing.
            outcome = (decision.ticket.id, where)
            decided.setdefault(decision.ticket.model, []).append(outcome)
        for outcome in outcomes:
            model = self.tickets[outcome[0]].model
            wanted.setdefault(model, []).append(outcome)
        assert decided == wanted

    def check_the_room(self) -> None:
        waiting = self.waiting.values()
        newcomers = [ticket for ticket in waiting if ticket.id not in self.requeued]
        size = sum(ticket.size_bytes for ticket in newcomers)
        # Who waits when the bounds are lowered stays.
        assert len(newcomers) <= max(self.limits.max_waiting, self.before[0])
        assert size <= max(self.limits.max_waiting_bytes, self.before[1])
        self.before = (len(newcomers), size)
        assert all(ticket.deadline > self.clock.now() for ticket in waiting)

    def check_the_snapshot(self) -> None:
        snapshot = self.scheduler.snapshot()
        assert {w.ticket.id for w in snapshot.waiting} == set(self.waiting)
        assert snapshot.waiting_bytes == sum(t.size_bytes for t in self.waiting.values())
        for deployment in snapshot.deployments:
            here = {i: h for i, h in self.leases.items() if h.deployment == deployment.id}
            running = [i for i, held in here.items() if held.settles_by is None]
            settling = [i for i, held in here.items() if held.settles_by is not None]
            assert sorted(lease.id for lease in deployment.running) == sorted(running)
            assert [lease.id for lease in deployment.settling] == settling
            if deployment.state is State.READY:
                assert deployment.headroom == max(0, self.free_slots(deployment.id))
        counts = self.scheduler.counts()
        assert counts.waiting == len(self.waiting)
        assert counts.idle + counts.processing <= counts.slots

    def check_that_no_slot_idles(self) -> None:
        """Whoever waits and is within its tenant's cap fits nowhere, unless slots are held."""
        for deployment in self.scheduler.snapshot().deployments:
            if deployment.state is not State.READY or deployment.held_for is not None:
                self.check_the_hold(deployment.held_for, deployment.headroom)
                continue
            for ticket in self.waiting.values():
                ctx = deployment.ctx_per_slot
                if deployment.id == self.naive.failed_on(ticket.id):
                    continue  # which its own rule decides
                assert (
                    ticket.model != deployment.model
                    or (ticket.tenant == "hog" and self.hogs >= self.most_hogs)
                    or (ctx is not None and ticket.input_tokens >= ctx)
                    or ticket.width > deployment.headroom
                )

    def check_the_hold(self, held_for: str | None, headroom: int) -> None:
        if held_for is not None:
            assert self.waiting[held_for].width > headroom > 0


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, print_blob=True
)
