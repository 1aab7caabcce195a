"""Rules that hold for whatever load, front and servers."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotgate.load.arrival import Arrival
from slotgate.load.backoff import ClientKind
from slotgate.load.record import Outcome
from slotgate.sim.agenda import Agenda
from slotgate.sim.clients import back_off_of
from slotgate.sim.clock import VirtualClock
from slotgate.sim.policies import POLICIES, make_policy
from slotgate.sim.requests import Request
from slotgate.slotsim import Fault
from tests.sim.scenes import play, spec

UNHURRIED = settings(deadline=None, max_examples=60)
ARRIVALS = st.lists(
    st.builds(
        Arrival,
        at=st.sampled_from([0.0, 0.31, 0.73, 1.9, 4.17]),
        tenant=st.sampled_from("ab"),
        priority_class=st.sampled_from(["interactive", "standard", "batch"]),
        input_tokens=st.integers(1, 120),
        output_tokens=st.integers(1, 60),
        max_tokens=st.none() | st.integers(1, 80),
        width=st.integers(1, 2),
        patience=st.sampled_from([0.5, 3.0, 1e9]),
        leaves_after=st.none() | st.sampled_from([0.0, 0.37, 2.11]),
        reading_rate=st.none() | st.just(5.0),
    ),
    max_size=14,
).map(lambda arrivals: sorted(arrivals, key=lambda arrival: arrival.at))


@UNHURRIED
@pytest.mark.parametrize("policy", POLICIES)
@given(ARRIVALS, st.integers(1, 2), st.booleans(), st.sampled_from(ClientKind))
def test_every_request_ends_once_and_a_gateway_leaves_no_queue_in_any_server(
    policy: str, arrivals: list[Arrival], backends: int, is_tight: bool, kind: ClientKind
) -> None:
    servers = [spec(pool=200 if is_tight else None)] * backends

    def go() -> object:
        rehearsal = play(
            make_policy(policy, random.Random(1), 5.0),
            *arrivals,
            servers=servers,
            back_off=back_off_of(kind, random.Random(2)),
        )
        assert [record.arrival for record in rehearsal.records] == arrivals
        assert rehearsal.deferred == 0 or policy == "bare"
        assert 0 <= rehearsal.busy_seconds <= rehearsal.slots * rehearsal.workload.seconds
        for record in rehearsal.records:
            arrival = record.arrival
            assert record.ended_at >= arrival.at
            if record.outcome is Outcome.SERVED:
                assert record.output_done >= arrival.width
                assert record.ttft is not None
                assert record.ttft <= arrival.patience or record.attempts > 1
            if record.outcome is Outcome.FAILED:
                assert record.reason in set(Fault)
            if record.attempts == 0:
                raise AssertionError("nobody ends before the first attempt")
        return rehearsal.records

    # The same dice give the same story.
    assert go() == go()


def test_time_never_goes_backwards() -> None:
    clock = VirtualClock()
    clock.advance_to(1.0)
    with pytest.raises(ValueError, match="is before"):
        clock.advance_to(0.5)


def test_what_is_noted_for_the_same_moment_happens_in_the_order_of_noting() -> None:
    clock = VirtualClock()
    agenda, seen = Agenda(clock), list[str]()
    agenda.note(2.0, seen.append, "b")
    agenda.note(2.0, seen.append, "c")
    agenda.note(1.0, seen.append, "a")
    agenda.note(float("inf"), seen.append, "never")
    agenda.run()
    assert (seen, clock.now(), agenda.done) == (["a", "b", "c"], 2.0, 3)


def test_a_request_that_has_not_ended_has_no_record() -> None:
    with pytest.raises(ValueError, match="has not ended"):
        Request(Arrival(at=0.0, input_tokens=1, output_tokens=1), 7).record()
