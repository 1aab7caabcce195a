"""Rules that hold whatever happens to a simulated server."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotgate.slotsim import (
    Cancelled,
    Failed,
    Finished,
    Generated,
    Job,
    Pace,
    Prompt,
    ServerSpec,
    SimulatedServer,
)
from slotgate.slotsim.slot import Slot
from tests.slotsim.play import run

if TYPE_CHECKING:
    from slotgate.slotsim import Event


@dataclass(frozen=True)
class Request:
    """What one client does."""

    gap: float
    read: int
    write: int
    stream: bool
    n: int
    prompts: int
    progress: bool
    leaves_after: float | None
    ping: float
    slot: int | None


UNHURRIED = settings(deadline=None)
# Odd times and paces, so that nothing happens at the very moment of a batch boundary.
REQUESTS = st.lists(
    st.builds(
        Request,
        gap=st.sampled_from([0.0, 0.01137, 0.30513, 1.70939]),
        read=st.integers(0, 120),
        write=st.integers(0, 40),
        stream=st.booleans(),
        n=st.integers(1, 2),
        prompts=st.integers(1, 2),
        progress=st.booleans(),
        leaves_after=st.none() | st.sampled_from([0.0, 0.051731, 0.403719, 2.007137]),
        ping=st.sampled_from([0.0, 1.0]),
        slot=st.none() | st.integers(0, 3),
    ),
    max_size=12,
)
SPECS = st.builds(
    ServerSpec,
    slots=st.integers(2, 3),
    ctx=st.just(100),
    pool=st.none() | st.just(150),
    batch=st.sampled_from([16, 64, 512]),
    pace=st.sampled_from(
        [
            Pace.constant(20.7313, slots=3, prefill=197.117),
            Pace.linear(0.010137, 0.030191, slots=3, prefill=1009.31),
            Pace.constant(0.7193, slots=3, prefill=50.0713),
            Pace.instant(3),
        ]
    ),
)


def play(
    spec: ServerSpec, requests: list[Request], *, report_every: int, looks: bool
) -> tuple[SimulatedServer, list[Event]]:
    """Let the clients do what they do; `looks` asks for the slots in between, too."""
    sim = SimulatedServer(spec)
    doings: list[tuple[float, int, str, Request]] = []
    now = 0.0
    for number, request in enumerate(requests):
        now += request.gap
        doings.append((now, number, "arrive", request))
        if request.leaves_after is not None:
            doings.append((now + request.leaves_after, number, "leave", request))
        if looks:
            doings.append((now + 0.123, number, "look", request))
    events: list[Event] = []
    for at, number, what, request in sorted(doings, key=lambda doing: doing[:2]):
        events += run(sim, at)
        if what == "arrive":
            sim.submit(_job(number, request, report_every=report_every), at)
        elif what == "leave":
            sim.disconnect(number, at)
        else:
            assert sum(slot.is_processing for slot in sim.slots(at)) <= spec.slots
    return sim, events + run(sim)


def _job(number: int, request: Request, *, report_every: int) -> Job:
    return Job(
        id=number,
        prompts=tuple(Prompt(request.read) for _ in range(request.prompts)),
        stream=request.stream,
        max_tokens=request.write,
        n=request.n if request.read else 1,  # several answers to nothing never come
        progress=request.progress,
        ping_interval=request.ping if report_every else 0.0,
        slot=request.slot,
        report_every=report_every,
    )


@UNHURRIED
@given(SPECS, REQUESTS)
def test_every_job_ends_once_and_every_slot_is_free_at_the_end(
    spec: ServerSpec, requests: list[Request]
) -> None:
    sim, events = play(spec, requests, report_every=1, looks=True)
    ends: Counter[object] = Counter()
    for event in events:
        if isinstance(event, Failed) or (isinstance(event, Finished) and event.is_last):
            ends[event.job] += 1
    cancelled = {event.job for event in events if isinstance(event, Cancelled)}
    for number, request in enumerate(requests):
        assert ends[number] <= 1
        assert ends[number] == 1 or number in cancelled
        assert number not in cancelled or request.leaves_after is not None
    assert not any(slot.is_processing for slot in sim.slots(1e9))
    assert sim.deferred == 0
    assert [event.at for event in events] == sorted(event.at for event in events)


@UNHURRIED
@given(SPECS, REQUESTS, st.integers(1, 20))
def test_a_stream_tells_each_of_its_tokens_once(
    spec: ServerSpec, requests: list[Request], every: int
) -> None:
    _, events = play(spec, requests, report_every=every, looks=True)
    written: Counter[tuple[object, int]] = Counter()
    for event in events:
        if isinstance(event, Generated):
            written[event.job, event.index] += event.count
            assert written[event.job, event.index] == event.total
        elif isinstance(event, Finished) and requests[_number(event)].stream:
            assert written[event.job, event.index] == event.result.output_tokens


@UNHURRIED
@given(SPECS, REQUESTS, st.sampled_from([0, 7, 16]))
def test_whether_somebody_watches_changes_nothing_but_what_is_told(
    spec: ServerSpec, requests: list[Request], every: int
) -> None:
    def ends(*, report_every: int, looks: bool) -> list[tuple[object, ...]]:
        _, events = play(spec, requests, report_every=report_every, looks=looks)
        return [
            (type(event), event.job, pytest.approx(event.at))
            for event in events
            if isinstance(event, Finished | Failed | Cancelled)
        ]

    assert ends(report_every=1, looks=True) == ends(report_every=every, looks=False)


def _number(event: Finished) -> int:
    assert isinstance(event.job, int)
    return event.job


def test_an_idle_slot_runs_nothing() -> None:
    with pytest.raises(ValueError, match="slot 3 is idle"):
        _ = Slot(3, 10).running
