"""A simulated server that misbehaves as it was told."""

from __future__ import annotations

from math import inf

import pytest

from slotgate.slotsim import Generated, Pace, ServerSpec, SimulatedServer
from tests.slotsim.play import busy, job, run, server, told


def test_a_wedged_server_writes_no_more_and_its_slots_stay_busy() -> None:
    sim = server(slots=2)
    sim.wedge_after(3, 0.0)
    sim.submit(job("a", write=10), 0.0)
    sim.submit(job("b", write=10), 0.15)
    events = run(sim)
    assert sum(event.count for event in events if isinstance(event, Generated)) == 4
    assert sim.is_wedged
    assert busy(sim, 100.0) == [True, True]
    assert sim.next_event_time() == inf


def test_a_wedge_counts_tokens_of_unwatched_streams_too() -> None:
    sim = server()
    sim.wedge_after(5, 0.0)
    sim.submit(job("a", write=10, report_every=0), 0.0)
    run(sim)
    assert sim.slots(99.0)[0].decoded == 5


def test_a_spec_may_have_the_wedge_in_it() -> None:
    spec = ServerSpec(slots=1, ctx=99, pace=Pace.instant(1), wedge_after=2)
    sim = SimulatedServer(spec)
    sim.submit(job("a", write=10), 0.0)
    run(sim)
    assert sim.is_wedged


def test_a_wedged_server_that_recovers_goes_on_where_it_was() -> None:
    sim = server(slots=2)
    sim.wedge_after(3, 0.0)
    sim.submit(job("a", write=5), 0.0)
    run(sim, 10.0)
    sim.submit(job("b", write=1), 10.0)
    sim.wedge_after(None, 50.0)
    assert not sim.is_wedged
    assert told(run(sim)) == ["50.00 started b", "50.20 finished b", "50.20 finished a"]


def test_a_server_wedged_at_rest_takes_what_came_when_it_recovers() -> None:
    sim = server()
    sim.wedge(0.0)
    sim.submit(job("a", write=1), 1.0)
    assert run(sim, 20.0) == []
    sim.wedge_after(None, 30.0)
    assert told(run(sim)) == ["30.00 started a", "30.10 finished a"]


def test_a_client_can_leave_a_wedged_server_and_is_let_go_when_it_recovers() -> None:
    sim = server()
    sim.wedge_after(1, 0.0)
    sim.submit(job("a", write=500), 0.0)
    run(sim, 5.0)
    sim.disconnect("a", 5.0)
    assert run(sim, 20.0) == []
    sim.wedge_after(None, 20.0)
    assert told(run(sim)) == ["20.00 cancelled a"]


@pytest.mark.parametrize("report_every", [0, 1, 3])
def test_a_slow_server_takes_longer_from_the_next_pass_on(report_every: int) -> None:
    sim = server()
    sim.submit(job("a", write=10, report_every=report_every), 0.0)
    run(sim, 0.55)
    sim.slow_down(5.0, 0.55)
    assert told(run(sim)) == ["2.60 finished a"]  # the sixth token at 0.6, then four of 0.5 s
