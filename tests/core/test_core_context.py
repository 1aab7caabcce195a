"""Prompts that fit some deployments, or none."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from slotgate.core.decision import Abort, Decision, Ending, Granted, Reason, Refused
from slotgate.core.deployment import DeploymentReport, State
from slotgate.core.limits import Limits
from slotgate.core.policies import PLACEMENT, Policies
from slotgate.core.scheduler import Scheduler
from slotgate.core.ticket import Ticket
from slotgate.testing import FakeClock, Script, ready


def test_a_long_prompt_goes_only_where_it_fits() -> None:
    Script(ready("small", slots=3, ctx_per_slot=1000), ready("big", ctx_per_slot=8000)).run("""
        0  submit a tokens=5000   -> granted a on big
        0  submit b tokens=5000
        0  submit c tokens=10     -> granted c on small
        1  leave a                -> granted b on big
    """)


def test_a_prompt_fits_if_there_is_room_for_one_token_more() -> None:
    Script(ready("left", slots=2, ctx_per_slot=1000)).run("""
        0  submit a tokens=999    -> granted a on left
        0  submit b tokens=1000   -> refused b context_length_exceeded by ctx_per_slot
    """)


def test_a_prompt_that_fits_nowhere_is_refused_for_good() -> None:
    script = Script(ready("left", ctx_per_slot=1000), ready("right", ctx_per_slot=2000)).run("""
        0  submit a tokens=2500   -> refused a context_length_exceeded
    """)
    refusal = script.decisions[0]
    assert isinstance(refusal, Refused)
    assert (refusal.limit, refusal.value, refusal.retry_after) == (2000, 2500, None)


def test_an_unknown_context_may_be_enough() -> None:
    Script(ready("left", ctx_per_slot=1000)).run("""
        0  submit z                                   -> granted z on left
        0  deployment right state=loading
        0  submit a tokens=2500
        0  submit b tokens=1500
        1  deployment right state=ready ctx=2000
           -> refused a context_length_exceeded, granted b on right
    """)


def test_a_ready_deployment_of_unknown_context_takes_any_prompt() -> None:
    Script(ready("left")).run("0 submit a tokens=1000000 -> granted a on left")


def test_a_context_that_grew_lets_waiting_prompts_in() -> None:
    Script(ready("big", ctx_per_slot=8000), ready("small", ctx_per_slot=1000)).run("""
        0  submit a tokens=5000          -> granted a on big
        0  submit b tokens=5000
        0  submit c tokens=10            -> granted c on small
        0  submit d tokens=10
        1  deployment small ctx=6000
        2  leave c                       -> granted b on small
        3  leave b                       -> granted d on small
    """)


def test_prompts_that_fit_nowhere_any_more_are_refused() -> None:
    Script(ready("big", ctx_per_slot=8000), ready("small", ctx_per_slot=1000)).run("""
        0  submit a tokens=5000   -> granted a on big
        0  submit b tokens=5000
        0  submit c tokens=10     -> granted c on small
        0  submit d tokens=10
        1  remove big             -> refused b context_length_exceeded by ctx_per_slot
        2  leave a
        3  leave c                -> granted d on small
    """)


def test_a_deployment_that_is_down_still_says_what_may_fit() -> None:
    Script(ready("big", ctx_per_slot=8000), ready("small", ctx_per_slot=1000)).run("""
        0  deployment big state=down
        0  submit a tokens=5000
        1  deployment big state=ready  -> granted a on big
    """)


def test_shapes_that_changed_are_dropped_from_the_queue() -> None:
    Script(ready("left", ctx_per_slot=1000)).run("""
        0  submit a tokens=10          -> granted a on left
        0  submit b tokens=10
        0  submit c tokens=500
        1  deployment left ctx=400     -> refused c context_length_exceeded
        2  deployment left ctx=2000
        3  leave b abandoned
        3  leave a
        3  submit d tokens=1500        -> granted d on left
    """)


def test_no_slots_are_held_for_a_prompt_that_is_too_long_for_them() -> None:
    deployments = ready("left", ctx_per_slot=1000), ready("right", ctx_per_slot=5000)
    Script(*deployments, limits=Limits(max_bypass=0)).run("""
        0  submit a tokens=2000   -> granted a on right
        0  submit b tokens=2000
        0  submit c tokens=10     -> granted c on left
    """)


# Whatever happens, wherever requests are placed: a window is never offered what it must refuse.

WINDOWS = st.sampled_from([None, 1000, 2000, 8000])
PROMPTS = st.sampled_from([1, 600, 999, 1000, 1001, 1999, 2000, 7999, 8000])
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), PROMPTS, st.sampled_from([None, "s", "t"])),
        st.tuples(st.just("leave"), st.integers(0, 100), st.none()),
        st.tuples(st.sampled_from(["left", "middle", "right"]), WINDOWS, st.none()),
    ),
    max_size=50,
)


class Windows:
    """Three deployments of two slots, whose windows change."""

    def __init__(self, placement: str, patience: float) -> None:
        self.clock = FakeClock()
        self.scheduler = Scheduler(
            clock=self.clock,
            dice=random.Random(1),
            limits=Limits(affinity_patience=patience, long_prefill_tokens=1 << 20),
            policies=Policies.named(placement=placement, admission="expiry", concurrency="fixed"),
        )
        self.windows: dict[str, int | None] = {}
        self.running: list[str] = []

    def resize(self, name: str, window: int | None) -> None:
        self.windows[name] = window
        self.note(
            self.scheduler.deployment(
                DeploymentReport(
                    id=name, model="m", slots=2, state=State.READY, ctx_per_slot=window
                )
            )
        )

    def note(self, decisions: list[Decision]) -> None:
        windows = [window for window in self.windows.values() if window is not None]
        for each in decisions:
            tokens = each.ticket.input_tokens if not isinstance(each, Abort) else 0
            if isinstance(each, Granted):
                window = self.windows[each.deployment]
                assert window is None or tokens < window
                self.running.append(each.ticket.id)
            elif isinstance(each, Refused) and each.reason is Reason.CONTEXT_LENGTH_EXCEEDED:
                assert len(windows) == len(self.windows)
                assert tokens >= max(windows)

    def stream(self) -> None:
        for name in self.running:
            usage = {"input_tokens": 600, "cached_tokens": 0, "output_tokens": 1}
            self.note(self.scheduler.charge(name, **usage))


@settings(max_examples=200, deadline=None)
@given(
    events=EVENTS,
    windows=st.tuples(WINDOWS, WINDOWS, WINDOWS),
    placement=st.sampled_from(sorted(PLACEMENT)),
    patience=st.sampled_from([0.0, 2.0]),
)
def test_a_window_is_never_offered_what_it_must_refuse(
    events: list[tuple[str, int | None, str | None]],
    windows: tuple[int | None, ...],
    placement: str,
    patience: float,
) -> None:
    life = Windows(placement, patience)
    for name, window in zip(("left", "middle", "right"), windows, strict=True):
        life.resize(name, window)
    for number, (event, value, session) in enumerate(events):
        life.clock.advance(0.3)
        if event == "submit":
            ticket = Ticket(
                id=f"t{number}",
                arrival=life.clock.now(),
                deadline=life.clock.now() + 30,
                model="m",
                input_tokens=value or 0,
                output_tokens=10,
                affinity=session,
            )
            life.note(life.scheduler.submit(ticket))
        elif event != "leave":
            life.resize(event, value)
        elif life.running:
            life.stream()
            name = life.running.pop((value or 0) % len(life.running))
            life.note(life.scheduler.leave(name, Ending.SERVED))
