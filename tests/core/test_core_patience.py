"""A ticket is held back for the deployment that remembers its session: when, and for how long.

Both deployments have one slot, write ten tokens a second and read a thousand.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotgate.core.decision import Decision, Ending, Granted
from slotgate.core.deployment import DeploymentReport, State
from slotgate.core.limits import Limits
from slotgate.core.policies import Policies
from slotgate.core.ticket import Ticket
from slotgate.testing import Script, ready

POLICIES = Policies.named(kv="off", admission="expiry", concurrency="fixed", fairness="none")
LIMITS = Limits(affinity_patience=2.0, long_prefill_tokens=1 << 20)
# Where the session was before, until `busy` took the slot; the other slot is free.  Of a session
# that was displaced half is expected to be restored: 4 s of reading.
REMEMBERED = """
    9  submit first tokens=8000 output=50 affinity=s -> granted first on left
    9  charge first input=8000 output=1
    9  leave first
    10 submit busy output=10                         -> granted busy on left
    10 charge busy output=1
"""


def script(limits: Limits = LIMITS, *, slots: int = 1) -> Script:
    made = Script(
        ready("left", slots=slots), ready("right", slots=slots), policies=POLICIES, limits=limits
    )
    for number in range(12):
        place = "left" if number % 2 else "right"
        other = "right" if number % 2 else "left"
        made.run(f"""
            0 drain {other}
            0 submit t{number} tokens=1000 output=50 -> granted t{number} on {place}
            0 charge t{number} input=1000 output=50
            0 timed t{number} prompt=1000 prompt_seconds=1 output=50 output_seconds=4.9
            0 leave t{number}
            0 enable {other}
        """)
    return made


def remembered(affinity_patience: float = 2.0, max_waiting: int = 512) -> Script:
    limits = replace(LIMITS, affinity_patience=affinity_patience, max_waiting=max_waiting)
    return script(limits).run(REMEMBERED)


def test_without_patience_it_goes_elsewhere_at_once() -> None:
    remembered(affinity_patience=0.0).run("""
        10 submit b tokens=8200 affinity=s -> granted b on right
    """)


def test_it_runs_where_its_session_is_when_that_comes_free_in_time() -> None:
    running = remembered().run("""
        10   submit b tokens=8200 affinity=s
        10.5 tick
        11   leave busy                      -> granted b on left
        12   leave b
    """)
    assert running.scheduler.next_deadline() is None


def test_it_goes_elsewhere_when_its_patience_ends() -> None:
    running = remembered().run("10 submit b tokens=8200 affinity=s")
    assert running.scheduler.next_deadline() == 12
    running.run("""
        11.9 tick
        12   tick                            -> granted b on right
    """)


def test_it_is_held_back_for_a_fifth_of_its_budget_at_most() -> None:
    remembered().run("""
        10   submit b tokens=8200 affinity=s within=5
        10.9 tick
        11   tick                            -> granted b on right
    """)


def test_it_is_held_back_for_half_of_what_it_saves_at_most() -> None:
    remembered(affinity_patience=30.0).run("""
        10   submit b tokens=8200 affinity=s within=1000
        11.9 tick
        12.1 tick                            -> granted b on right
    """)


def test_others_pass_meanwhile_and_its_place_in_the_queue_is_kept() -> None:
    remembered().run("""
        10   submit b tokens=8200 affinity=s
        10.1 submit c                        -> granted c on right
        10.2 submit d
        12.5 leave c                         -> granted b on right
        12.6 leave busy                      -> granted d on left
    """)


def test_those_of_one_session_linger_and_run_in_their_order() -> None:
    """Who lingers is a turn of its own: the second does not find the prompt where the first is."""
    script(slots=2).run(
        REMEMBERED
        + """
        10   submit more output=10           -> granted more on right
        10   submit most output=10           -> granted most on left
        10   charge most output=1
        10.1 submit b tokens=8200 affinity=s
        10.2 submit c tokens=8200 affinity=s
        10.5 leave busy                      -> granted b on left
        12.3 tick                            -> granted c on right
        """
    )


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("tokens=8200", "nothing is remembered of it"),
        ("tokens=8200 affinity=t", "nothing is remembered of its session"),
        ("tokens=700 affinity=s", "reading that takes less than the wait"),
    ],
)
def test_it_is_not_held_back_where_nothing_is_saved(what: str, why: str) -> None:
    assert remembered().run(f"10 submit b {what} -> granted b on right").decisions, why


def test_it_is_not_held_back_where_the_wait_takes_longer_than_it_saves() -> None:
    script().run("""
        9  submit first tokens=8000 output=50 affinity=s -> granted first on left
        9  charge first input=8000 output=1
        9  leave first
        10 submit busy output=900                        -> granted busy on left
        10 charge busy output=1
        10 submit b tokens=8200 affinity=s               -> granted b on right
    """)


@pytest.mark.parametrize("verb", ["drain left", "disable left", "remove left", "pause left"])
def test_it_goes_elsewhere_when_what_it_waits_for_goes(verb: str) -> None:
    remembered().run(f"""
        10   submit b tokens=8200 affinity=s
        10.1 {verb}                          -> granted b on right
    """)


def test_it_goes_elsewhere_when_its_patience_is_taken_from_it() -> None:
    running = remembered().run("10 submit b tokens=8200 affinity=s")
    decisions = running.scheduler.reconfigure(replace(LIMITS, affinity_patience=0.0), POLICIES)
    assert [each.deployment for each in decisions if isinstance(each, Granted)] == ["right"]
    assert running.scheduler.next_deadline() is None


def test_a_full_room_ends_all_patience() -> None:
    """Nobody is refused for want of a place that is kept by one who could run."""
    remembered(max_waiting=0).run("10 submit b tokens=8200 affinity=s -> granted b on right")
    remembered(max_waiting=1).run("""
        10   submit b tokens=8200 affinity=s
        10.1 submit c tokens=8200 affinity=s -> granted b on right
        10.2 submit d                        -> refused d queue_full
        11   leave busy                      -> granted c on left
    """)


def test_one_that_leaves_while_it_lingers_leaves_nothing() -> None:
    running = remembered().run("""
        10   submit b tokens=8200 affinity=s
        10.1 leave b abandoned
        10.2 submit c                        -> granted c on right
    """)
    assert running.scheduler.next_deadline() is None


def test_one_that_failed_is_not_held_back_for_where_it_failed() -> None:
    script(slots=2).run("""
        9  drain right
        9  submit a tokens=8000 output=50 affinity=s -> granted a on left
        9  submit b tokens=8200 output=50 affinity=s -> granted b on left
        9  charge a input=8000 output=1
        9  leave a
        10 submit busy output=10                     -> granted busy on left
        10 charge busy output=1
        10 enable right
        10 requeue b                                 -> granted b on right
    """)


# Whatever happens.

SESSIONS = [None, "s", "t", "u"]
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["submit", "submit", "submit", "leave", "wait", "tick", "report"]),
        st.integers(0, 1000),
        st.sampled_from(SESSIONS),
        st.sampled_from([0.0, 0.1, 0.4, 1.0, 3.0]),
    ),
    max_size=60,
)


class Watched:
    """A scheduler whose free slots are looked at after each event."""

    def __init__(self, fairness: str) -> None:
        policies = Policies.named(
            kv="off", admission="expiry", concurrency="fixed", fairness=fairness
        )
        made = script(replace(LIMITS, affinity_patience=1.0))
        made.scheduler.reconfigure(replace(LIMITS, affinity_patience=1.0), policies)
        self.clock, self.scheduler = made.clock, made.scheduler
        self.waiting: dict[str, Ticket] = {}
        self.running: list[str] = []
        self.lingered = 0

    def note(self, decisions: list[Decision]) -> None:
        for each in decisions:
            assert isinstance(each, Granted)
            del self.waiting[each.ticket.id]
            self.running.append(each.ticket.id)
            self.scheduler.charge(
                each.ticket.id, input_tokens=3000, cached_tokens=0, output_tokens=1
            )
        self.check()

    def check(self) -> None:
        now = self.clock.now()
        rooms = [d for d in self.scheduler.snapshot().deployments if d.headroom]
        for ticket in self.waiting.values():
            if not any(d.ctx_per_slot is None or d.ctx_per_slot > 3000 for d in rooms):
                continue
            self.lingered += 1
            assert ticket.affinity is not None, "nobody waits for what he has no use for"
            assert now < ticket.arrival + 1.0, "nobody waits longer than his patience"
            due = self.scheduler.next_deadline()
            assert due is not None
            assert due <= ticket.arrival + 1.0, "and the time is told when it ends"

    def run(self, events: list[tuple[str, int, str | None, float]]) -> None:
        for number, (event, place, session, seconds) in enumerate(events):
            if event == "submit":
                self.submit(f"n{number}", session)
            elif event == "leave" and self.running:
                name = self.running.pop(place % len(self.running))
                self.note(self.scheduler.leave(name, Ending.SERVED))
            elif event == "report":
                self.note(self.scheduler.deployment(report(place)))
            elif event == "wait":
                self.clock.advance(seconds)
                self.note(self.scheduler.tick())

    def submit(self, name: str, session: str | None) -> None:
        now = self.clock.now()
        ticket = Ticket(
            id=name,
            arrival=now,
            deadline=inf,
            tenant=f"tenant of {session}",
            model="m",
            input_tokens=3000,
            output_tokens=5,
            affinity=session,
        )
        self.waiting[name] = ticket
        self.note(self.scheduler.submit(ticket))


def report(place: int) -> DeploymentReport:
    return DeploymentReport(
        id="left" if place % 2 else "right",
        model="m",
        slots=1 + place % 3,
        state=State.READY,
        ctx_per_slot=None if place % 5 else 8000,
    )


@settings(max_examples=150, deadline=None)
@given(events=EVENTS, fairness=st.sampled_from(["none", "vtc"]))
def test_no_slot_idles_but_for_who_would_rather_wait_and_for_no_longer_than_that(
    events: list[tuple[str, int, str | None, float]], fairness: str
) -> None:
    Watched(fairness).run(events)


def test_somebody_lingers_in_the_lives_that_are_looked_at() -> None:
    """Else they would prove nothing."""
    watched = Watched("none")
    for name, session in (("a", "s"), ("b", "t")):
        watched.submit(name, session)
        watched.note(watched.scheduler.leave(watched.running.pop(), Ending.SERVED))
    watched.submit("c", None)
    watched.submit("d", "s")
    watched.submit("e", "t")
    assert watched.lingered
