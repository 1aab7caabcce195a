"""When a simulated server notices that a client left: measured on a real one, row by row."""

from __future__ import annotations

from math import inf

import pytest

from slotgate.slotsim import Cancelled, Finished, Generated, Pace, SimulatedServer
from tests.slotsim.play import busy, job, run, server, told

POLLS = [0.2 * count for count in range(1, 200)]


def make(slots: int = 2, batch: int = 2048) -> SimulatedServer:
    """Fifty tokens a second, prompts at a hundred."""
    pace = Pace.constant(50, slots=slots, prefill=100)
    return server(slots, batch=batch, pace=pace, ctx=10_000)


def freed_after_leaving(
    sim: SimulatedServer,
    victim: str,
    at: float,
    polls: list[float] = (),  # type: ignore[assignment]
) -> float:
    """Seconds from the victim's leaving to its slot's release; infinite: it was carried out."""
    events = run(sim, at)
    sim.disconnect(victim, at)
    for poll in polls:
        events += run(sim, at + poll)
        sim.poll(at + poll)
    events += run(sim)
    free = [e.at for e in events if isinstance(e, Cancelled) and e.job == victim]
    return round(free[0] - at, 2) if free else inf


def test_an_answer_at_once_is_cancelled_after_a_second_of_silence() -> None:
    sim = make()
    sim.submit(job("v", read=11, write=500, stream=False), 0.0)
    assert freed_after_leaving(sim, "v", 0.55) == 0.46  # at 1.0, and the pass that runs then


def test_polling_more_often_than_once_a_second_keeps_it_alive() -> None:
    sim = make()
    sim.submit(job("v", write=500, stream=False), 0.0)
    assert freed_after_leaving(sim, "v", 0.55, POLLS) == inf


def test_polling_less_often_does_not() -> None:
    sim = make()
    sim.submit(job("v", read=11, write=500, stream=False), 0.0)
    sim.poll(0.5)
    assert freed_after_leaving(sim, "v", 0.55, [0.91]) == 1.92  # a second after the poll


def test_another_stream_keeps_it_alive() -> None:
    sim = make()
    sim.submit(job("v", write=100, stream=False), 0.0)
    sim.submit(job("other", write=200), 0.0)
    assert freed_after_leaving(sim, "v", 0.55) == inf


def test_another_answer_at_once_does_not() -> None:
    sim = make()
    sim.submit(job("v", write=500, stream=False), 0.0)
    sim.submit(job("other", write=400, stream=False), 0.0)
    assert freed_after_leaving(sim, "v", 0.55) < 1.0


def test_a_deferred_answer_behind_a_stream_is_carried_out_in_full() -> None:
    sim = make(slots=1)
    sim.submit(job("stream", write=200), 0.0)
    sim.submit(job("v", write=30, stream=False), 0.1)
    run(sim, 1.0)
    sim.disconnect("v", 1.0)
    finished = [event for event in run(sim) if isinstance(event, Finished)]
    assert [event.job for event in finished] == ["stream", "v"]
    assert finished[1].result.output_tokens == 30


def test_a_deferred_stream_behind_a_stream_is_dropped_when_it_gets_its_slot() -> None:
    sim = make(slots=1)
    sim.submit(job("stream", write=200), 0.0)
    sim.submit(job("v", write=50), 0.1)
    run(sim, 1.0)
    sim.disconnect("v", 1.0)
    events = run(sim)
    assert told(events) == ["4.08 finished stream", "4.08 started v", "4.18 cancelled v"]


@pytest.mark.parametrize("is_stream", [True, False])
def test_a_deferred_one_behind_an_answer_at_once_is_erased(is_stream: bool) -> None:
    sim = make(slots=1)
    sim.submit(job("other", write=200, stream=False), 0.0)
    sim.submit(job("v", stream=is_stream), 0.5)
    run(sim, 0.8)
    assert sim.deferred == 1
    assert freed_after_leaving(sim, "v", 0.8) == 0.7  # its own wait began at 0.5
    assert sim.max_deferred == 1


@pytest.mark.parametrize("others", [0, 1])
def test_a_stream_that_writes_is_cancelled_at_once(others: int) -> None:
    sim = make()
    sim.submit(job("v", write=500), 0.0)
    for _ in range(others):
        sim.submit(job("other", write=300), 0.0)
    assert freed_after_leaving(sim, "v", 1.005) < 0.05


@pytest.mark.parametrize(
    ("batch", "freed"),
    [(2048, 6.5), (128, 2.06)],  # the look is at 1.0; a batch is 7 s, or 1.28 s
)
def test_a_stream_whose_prompt_is_read_is_freed_at_the_end_of_a_batch(
    batch: int, freed: float
) -> None:
    sim = make(batch=batch)
    sim.submit(job("v", read=700), 0.0)
    assert freed_after_leaving(sim, "v", 0.5) == freed - (1.28 if batch == 128 else 0)


def test_while_another_streams_it_is_noticed_with_its_own_first_token() -> None:
    sim = make(batch=50)
    sim.submit(job("other", write=500), 0.0)
    run(sim, 1.0)
    sim.submit(job("v", read=290), 1.0)
    events = run(sim, 1.5)
    sim.disconnect("v", 1.5)
    events += run(sim)
    (first,) = [e.at for e in events if isinstance(e, Generated) and e.job == "v"]
    (freed,) = [e.at for e in events if isinstance(e, Cancelled)]
    assert freed == pytest.approx(first + 0.02)


def test_progress_makes_it_fast() -> None:
    sim = make(batch=50)
    sim.submit(job("v", read=700, progress=True), 0.0)
    assert freed_after_leaving(sim, "v", 0.6) == 0.9  # the batch's end at 1.0, and one more


def test_a_job_of_several_tasks_is_freed_as_a_whole() -> None:
    sim = make(slots=3)
    sim.submit(job("v", n=3, write=500), 0.0)
    run(sim, 1.0)
    assert busy(sim, 1.0) == [True] * 3
    assert freed_after_leaving(sim, "v", 1.0) < 0.1
    assert busy(sim, 99.0) == [False] * 3


def test_leaving_twice_or_after_the_end_changes_nothing() -> None:
    sim = make()
    sim.submit(job("v", write=500), 0.0)
    run(sim, 1.005)
    for _ in range(2):
        sim.disconnect("v", 1.005)
    assert told(run(sim)) == ["1.04 cancelled v"]
    sim.disconnect("v", 50.0)
    assert run(sim) == []


def test_a_zombie_goes_on_until_its_natural_end() -> None:
    sim = make()
    sim.keep_cancelled(keeps=True)
    sim.submit(job("v", write=100), 0.0)
    assert freed_after_leaving(sim, "v", 0.5) == 1.58
    assert sim.metrics(9.0).output_tokens == 100


def test_a_zombie_whose_tokens_nobody_hears_of_keeps_nobody_from_noticing() -> None:
    sim = make()
    sim.keep_cancelled(keeps=True)
    sim.submit(job("v", write=300, report_every=0), 0.0)
    run(sim, 0.5)
    sim.disconnect("v", 0.5)
    run(sim, 0.6)
    sim.submit(job("w", write=300, stream=False), 0.6)
    run(sim, 1.0)
    sim.disconnect("w", 1.0)
    assert told(run(sim)) == ["6.18 cancelled v", "6.70 cancelled w"]
    assert sim.metrics(9.0).output_tokens == 600


def test_a_zombie_that_still_waited_is_erased_all_the_same() -> None:
    sim = make(slots=1)
    sim.keep_cancelled(keeps=True)
    sim.submit(job("other", write=200, stream=False), 0.0)
    sim.submit(job("v", stream=False), 0.5)
    run(sim, 0.8)
    assert freed_after_leaving(sim, "v", 0.8) == 0.7


@pytest.mark.parametrize(
    ("interval", "pings"), [(1.0, [2.0, 4.0, 6.0]), (3.0, [4.0]), (0.5, [1, 2, 3, 4, 5, 6])]
)
def test_a_silent_stream_is_pinged_at_the_first_look_after_its_interval(
    interval: float, pings: list[float]
) -> None:
    sim = make()
    sim.submit(job("a", read=700, write=1, ping_interval=interval), 0.0)
    assert told(run(sim)) == [
        "0.00 started a",
        *(f"{at:.2f} pinged a" for at in pings),
        "7.00 finished a",
    ]


def test_a_stream_that_has_not_begun_is_not_pinged() -> None:
    sim = make(slots=1)
    sim.submit(job("a", write=400, stream=False), 0.0)
    sim.submit(job("b", write=1, ping_interval=1.0), 0.0)
    assert told(run(sim))[:2] == ["8.08 finished a", "8.08 started b"]


def test_polls_suppress_pings() -> None:
    sim = make()
    sim.submit(job("a", read=300, write=1, ping_interval=1.0), 0.0)
    for tenth in range(1, 30):
        sim.poll(tenth / 10)
    assert told(run(sim)) == ["0.00 started a", "3.00 finished a"]


def test_what_was_done_in_vain_is_counted_once_the_slot_is_free() -> None:
    sim = server()
    sim.submit(job("a", read=20, write=100), 0.0)
    run(sim, 0.45)
    sim.disconnect("a", 0.45)
    (cancelled,) = (event for event in run(sim) if isinstance(event, Cancelled))
    # Twenty tokens were read in 0.2 s, and each tenth of a second since then wrote one.
    assert (cancelled.input_tokens, cancelled.output_tokens) == (20, round(cancelled.at * 10) - 1)


def test_a_stream_is_told_of_in_portions_and_of_the_rest_at_its_end() -> None:
    sim = server()
    sim.submit(job("a", read=10, write=10, report_every=4), 0.0)
    told = [(e.count, e.total) for e in run(sim) if isinstance(e, Generated)]
    assert told == [(1, 1), (4, 5), (4, 9), (1, 10)]
