"""Random lives of a router's models, before a router that unloads as llama-server's does."""

from __future__ import annotations

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from typing_extensions import override

from slotgate.core.decision import Decision, Ending, Granted
from slotgate.core.deployment import DeploymentReport, Residence, State
from slotgate.core.limits import Limits
from slotgate.core.policies import Policies
from slotgate.core.scheduler import Scheduler
from slotgate.core.ticket import Ticket
from slotgate.testing import FakeClock

TURN_SECONDS = 4.0
MODELS = ("a", "b", "c", "d")
LIMITS = Limits(max_waiting=10_000, settle_bound_seconds=5, model_turn_seconds=TURN_SECONDS)
POLICIES = Policies.named(admission="expiry", placement="headroom")
FOR_EVER = 1e9


class Loaded:
    """The memory of a router: what it would unload, and whether anything runs there."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.models: dict[str, None] = {}  # the least recently used first
        self.loads = 0

    def asked(self, model: str, busy: set[str]) -> None:
        if model not in self.models:
            self.loads += 1
            if len(self.models) == self.room:
                idle = [each for each in self.models if each not in busy]
                assert idle, f"{model} is asked for while all that is loaded is busy"
                del self.models[idle[0]]
        self.models.pop(model, None)
        self.models[model] = None


class RouterMachine(RuleBasedStateMachine):
    @initialize(room=st.integers(1, 3), slots=st.integers(1, 2))
    def start(self, room: int, slots: int) -> None:
        self.clock = FakeClock(100)
        self.scheduler = Scheduler(
            clock=self.clock, dice=random.Random(5), limits=LIMITS, policies=POLICIES
        )
        self.room, self.slots = room, slots
        self.router = Loaded(room)
        self.count = 0
        self.waiting: dict[str, str] = {}  # ticket -> model
        self.running: dict[str, tuple[str, str]] = {}  # ticket -> lease, deployment
        self.settling: dict[str, str] = {}  # lease -> deployment
        self.there: set[str] = set()
        for model in MODELS:
            self.add(model)

    def tell(self, model: str, state: State = State.READY) -> None:
        residence = Residence(router="r", room=self.room, is_loaded=model in self.router.models)
        self.judge(
            self.scheduler.deployment(
                DeploymentReport(
                    id=model, model=model, slots=self.slots, state=state, residence=residence
                )
            )
        )

    def add(self, model: str) -> None:
        self.there.add(model)
        self.tell(model)

    @rule(model=st.sampled_from(MODELS), number=st.integers(1, 3))
    def submit(self, model: str, number: int) -> None:
        for _ in range(number):
            self.count += 1
            now = self.clock.now()
            ticket = Ticket(
                id=f"t{self.count}",
                arrival=now,
                deadline=now + FOR_EVER,
                tenant="t",
                priority_class="standard",
                model=model,
            )
            if model in self.there:
                self.waiting[ticket.id] = model
            self.judge(self.scheduler.submit(ticket))

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 99), ending=st.sampled_from([*Ending]))
    def leave(self, which: int, ending: Ending) -> None:
        ticket = list(self.running)[which % len(self.running)]
        lease, deployment = self.running.pop(ticket)
        if ending is not Ending.SERVED:
            self.settling[lease] = deployment
        self.judge(self.scheduler.leave(ticket, ending))

    @precondition(lambda self: self.waiting)
    @rule(which=st.integers(0, 99))
    def give_up(self, which: int) -> None:
        ticket = list(self.waiting)[which % len(self.waiting)]
        del self.waiting[ticket]
        self.judge(self.scheduler.leave(ticket, Ending.ABANDONED))

    @precondition(lambda self: self.settling)
    @rule(which=st.integers(0, 99))
    def settle(self, which: int) -> None:
        lease = list(self.settling)[which % len(self.settling)]
        del self.settling[lease]
        self.judge(self.scheduler.settled(lease))

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 99))
    def write(self, which: int) -> None:
        ticket = list(self.running)[which % len(self.running)]
        self.judge(self.scheduler.charge(ticket, input_tokens=0, cached_tokens=0, output_tokens=1))

    @rule(seconds=st.sampled_from([0.01, 0.1, 1.0, 3.0]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        for lease in self.settling.copy():
            if not self.scheduler.is_settling(lease):
                del self.settling[lease]
        self.judge(self.scheduler.tick())

    @rule(model=st.sampled_from(MODELS), state=st.sampled_from([State.READY, State.DOWN]))
    def change(self, model: str, state: State) -> None:
        if model in self.there:
            self.tell(model, state)

    @rule(model=st.sampled_from(MODELS))
    def look(self, model: str) -> None:
        if model in self.there:
            self.tell(model)

    @rule(model=st.sampled_from(MODELS))
    def hold(self, model: str) -> None:
        if model in self.there:
            self.judge(self.scheduler.pause(model))
            self.judge(self.scheduler.resume(model))

    # Judging.

    def judge(self, decisions: list[Decision]) -> None:
        for lease in self.settling.copy():
            if not self.scheduler.is_settling(lease):
                del self.settling[lease]
        for decision in decisions:
            if isinstance(decision, Granted):
                model = decision.deployment
                busy = {where for _, where in self.running.values()} | {*self.settling.values()}
                self.router.asked(model, busy)
                assert len(busy | {model}) <= self.room
                self.running[decision.ticket.id] = decision.lease, model
                del self.waiting[decision.ticket.id]
            else:
                self.waiting.pop(
                    decision.ticket_id if hasattr(decision, "ticket_id") else decision.ticket.id,
                    None,
                )

    @override
    def teardown(self) -> None:
        if not hasattr(self, "clock"):
            return
        for model in sorted(self.there):
            self.tell(model)
        for _ in range(20 * (self.count + 5)):
            if not self.waiting:
                break
            for ticket in list(self.running):
                self.judge(
                    self.scheduler.charge(ticket, input_tokens=0, cached_tokens=0, output_tokens=1)
                )
                del self.running[ticket]
                self.judge(self.scheduler.leave(ticket, Ending.SERVED))
            self.wait(0.5)
        assert not self.waiting, "who waits gets a turn"


RouterMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestRouter = RouterMachine.TestCase


def _busy_router(room: int, busy: int) -> tuple[Loaded, dict[str, float], int]:
    """Keep some models busy all the time for a thousand seconds, and ask for the last now and then.

    Returns the router, the longest wait for each model, and how many were served.
    """
    clock = FakeClock(100)
    scheduler = Scheduler(clock=clock, dice=random.Random(5), limits=LIMITS, policies=POLICIES)
    router = Loaded(room)
    for model in MODELS:
        home = Residence(router="r", room=room, is_loaded=False)
        scheduler.deployment(
            DeploymentReport(id=model, model=model, slots=2, state=State.READY, residence=home)
        )
    running: dict[str, tuple[float, str]] = {}
    waits = dict.fromkeys(MODELS, 0.0)
    count = served = 0

    def take(decisions: list[Decision]) -> None:
        for each in decisions:
            assert isinstance(each, Granted)
            router.asked(each.deployment, {model for _, model in running.values()})
            running[each.ticket.id] = clock.now() + 1.5, each.deployment
            waits[each.deployment] = max(waits[each.deployment], each.waited)

    for step in range(2000):
        clock.advance(0.5)
        for model in (*MODELS[:busy], *(MODELS[-1:] if step % 50 == 0 else ())):
            if step % 3 == 0 or model == MODELS[-1]:
                count += 1
                now = clock.now()
                ticket = Ticket(
                    id=f"t{count}",
                    arrival=now,
                    deadline=now + FOR_EVER,
                    tenant="t",
                    priority_class="standard",
                    model=model,
                )
                take(scheduler.submit(ticket))
        for ticket_id, (until, _) in list(running.items()):
            take(scheduler.charge(ticket_id, input_tokens=0, cached_tokens=0, output_tokens=1))
            if until <= clock.now():
                del running[ticket_id]
                served += 1
                take(scheduler.leave(ticket_id, Ending.SERVED))
        take(scheduler.tick())
    return router, waits, served


def test_a_busy_model_does_not_starve_another_nor_are_they_loaded_for_each_request() -> None:
    router, waits, served = _busy_router(room=1, busy=1)
    # A turn, and what runs at its end.
    assert waits["d"] <= TURN_SECONDS + 2
    assert router.loads <= 2 * 40 + 2
    assert served > 600


def test_busy_models_share_a_router_in_turns() -> None:
    router, waits, _ = _busy_router(room=1, busy=2)
    assert router.loads < 1000 / (TURN_SECONDS / 2)
    assert waits["d"] <= 3 * (TURN_SECONDS + 2)
