"""Slots, the deferred queue, and what can be seen of them."""

from __future__ import annotations

from typing import Any

import pytest

from slotgate.slotsim import Generated, Pace, Prompt
from tests.slotsim.play import busy, job, result_of, run, server, told


def test_a_stream_starts_at_once_and_writes_its_first_token_when_its_prompt_was_read() -> None:
    sim = server()
    sim.submit(job("a", read=10, write=3), 5.0)
    assert told(run(sim), tokens=True) == [
        "5.00 started a",
        "5.10 generated a",
        "5.20 generated a",
        "5.30 generated a",
        "5.30 finished a",
    ]


def test_an_answer_at_once_is_heard_of_only_when_it_is_finished() -> None:
    sim = server()
    sim.submit(job("a", read=10, write=3, stream=False), 0.0)
    assert told(run(sim), tokens=True) == ["0.30 finished a"]


def test_requests_beyond_the_slots_wait_in_the_order_of_their_arrival() -> None:
    sim = server(slots=1)
    for name in "abc":
        sim.submit(job(name, write=10), 0.0)
    assert (sim.deferred, sim.max_deferred) == (0, 0)  # they came during the first batch
    run(sim, until=0.5)
    assert (sim.deferred, sim.max_deferred) == (2, 2)
    assert told(run(sim)) == [
        "1.00 finished a",
        "1.00 started b",
        "2.00 finished b",
        "2.00 started c",
        "3.00 finished c",
    ]
    assert (sim.deferred, sim.max_deferred) == (0, 2)


def test_of_two_woken_by_the_same_batch_the_second_goes_first() -> None:
    sim = server(slots=2)
    for name, write in {"a": 11, "b": 10, "c": 10, "d": 10}.items():
        sim.submit(job(name, write=write), 0.0)
    run(sim, until=1.25)  # a and b have ended together, at 1.2
    # Of two equal slots the last one is taken; it went to d.
    assert [slot.task_id for slot in sim.slots(1.25)] == [3, 4]


def test_a_newcomer_does_not_overtake_those_that_wait() -> None:
    sim = server(slots=1)
    sim.submit(job("a"), 0.0)
    sim.submit(job("b"), 0.05)
    run(sim, until=0.95)
    sim.submit(job("c"), 0.95)  # arrives during the batch that ends a
    assert [line[5:] for line in told(run(sim)) if "started" in line] == ["started b", "started c"]


def test_the_longest_unused_slot_is_taken_and_of_equals_the_last() -> None:
    sim = server(slots=3)
    order = []
    for number in range(4):
        sim.submit(job(str(number)), number * 10.0)
        order.append(busy(sim, number * 10.0 + 0.5).index(True))
        run(sim)
    assert order == [2, 1, 0, 2]


def test_a_cached_prefix_draws_a_prompt_to_its_slot_and_is_not_read_again() -> None:
    sim = server(slots=2)
    sim.submit(job("a", read=100, text=b"x" * 400), 0.0)
    run(sim)
    sim.submit(job("b", read=10, text=b"y" * 40), 10.0)
    run(sim)
    sim.submit(job("c", read=200, text=b"x" * 400 + b"z" * 400), 20.0)
    (started, *_, finished) = run(sim)
    assert getattr(started, "cached_tokens", None) == 100
    assert finished.at == pytest.approx(20.0 + 1.0 + 0.9)
    assert sim.slots(30.0)[1].task_id == 3


def test_a_known_prompt_is_read_again_by_one_token() -> None:
    sim = server()
    for number in range(2):
        sim.submit(job(str(number), read=50, text=b"same" * 50), number * 10.0)
        events = run(sim)
    assert getattr(events[0], "cached_tokens", None) == 49


@pytest.mark.parametrize("common", [0, 4, 12, 20, 100, 196])
def test_as_much_is_taken_from_the_cache_as_the_prompts_have_in_common(common: int) -> None:
    sim = server()
    text = bytes(range(200))
    sim.submit(job("a", read=50, text=text), 0.0)
    run(sim)
    sim.submit(job("b", read=50, text=text[:common] + b"\xff" * (200 - common)), 10.0)
    assert getattr(run(sim)[0], "cached_tokens", None) == common // 4


def test_a_job_may_refuse_the_cache() -> None:
    sim = server()
    for number in range(2):
        more = {"uses_cache": number == 0}
        sim.submit(job(str(number), read=50, text=b"same" * 50, **more), number * 10.0)
        events = run(sim)
    assert getattr(events[0], "cached_tokens", None) == 0


def test_slots_show_the_last_batch_boundary() -> None:
    sim = server(slots=2, batch=100)
    sim.submit(job("a", read=300, write=5), 0.0)
    sim.submit(job("b"), 0.1)
    assert busy(sim, 0.9) == [False, True]
    assert sim.metrics(0.9).processing == 1
    slot = sim.slots(0.9)[1]
    assert (slot.prompt_tokens, slot.prompt_tokens_processed, slot.decoded) == (100, 0, 0)
    assert busy(sim, 1.0) == [True, True]
    slot = sim.slots(1.5)[1]
    # b has the smaller id, and takes its ten tokens of the batch first.
    assert (slot.prompt_tokens, slot.prompt_tokens_processed) == (190, 100)


def test_a_busy_slot_tells_how_much_it_has_written_and_what_is_left() -> None:
    sim = server()
    sim.submit(job("a", write=10), 0.0)
    slot = sim.slots(0.35)[0]
    assert (slot.decoded, slot.remaining, slot.prompt_tokens) == (3, 7, 13)
    run(sim)
    slot = sim.slots(9.0)[0]
    assert (slot.decoded, slot.remaining, slot.prompt_tokens) == (0, -1, 19)


def test_an_unbounded_answer_has_nothing_known_left() -> None:
    sim = server()
    sim.submit(job("a", max_tokens=None, natural_tokens=30), 0.0)
    assert sim.slots(0.3)[0].remaining == -1


def test_a_slot_that_was_never_used_knows_no_task() -> None:
    slot = server().slots(0.0)[0]
    assert (slot.task_id, slot.job, slot.is_processing) == (None, None, False)


def test_a_prefill_stalls_those_that_write() -> None:
    sim = server(slots=2, batch=100)
    sim.submit(job("a", write=20), 0.0)
    run(sim, until=0.25)
    sim.submit(job("b", read=198, write=1), 0.25)
    times = [e.at for e in run(sim) if isinstance(e, Generated) and e.job == "a"]
    # Two batches of 99 prompt tokens and one written: 0.1 s and 0.99 s each.
    assert [round(at, 2) for at in times[:3]] == [0.3, 1.39, 2.48]


def test_a_stream_that_finds_the_batch_full_begins_later() -> None:
    sim = server(slots=2, batch=100)
    sim.submit(job("a", read=450, write=1, slot=0), 0.0)
    sim.submit(job("b", read=10, write=1, slot=1), 0.1)
    assert told(run(sim)) == [
        "0.00 started a",
        "4.00 started b",
        "4.60 finished a",
        "4.60 finished b",
    ]


def test_progress_is_told_in_place_of_the_start_and_after_each_batch() -> None:
    sim = server(batch=40)
    sim.submit(job("a", read=100, write=1, progress=True), 0.0)
    assert told(run(sim)) == [
        "0.00 progressed a",
        "0.40 progressed a",
        "0.80 progressed a",
        "1.00 progressed a",
        "1.00 finished a",
    ]


def test_the_step_follows_the_number_of_busy_slots() -> None:
    sim = server(slots=2, pace=Pace.linear(0.1, 0.05, slots=2))
    sim.submit(job("a", write=4), 0.0)
    run(sim, until=0.3)
    sim.submit(job("b", write=4), 0.3)
    assert told(run(sim)) == [
        "0.40 started b",
        "0.55 finished a",
        "1.00 finished b",
    ]


def test_at_once_means_in_no_time() -> None:
    sim = server(slots=2, pace=Pace.instant(2))
    for name in "abc":
        sim.submit(job(name, write=50), 3.0)
    events = sim.advance(3.0)
    assert [line for line in told(events) if "finished" in line] == [
        "3.00 finished a",
        "3.00 finished b",
        "3.00 finished c",
    ]
    assert sum(event.count for event in events if isinstance(event, Generated)) == 150


def test_an_empty_prompt_is_answered_with_nothing() -> None:
    sim = server()
    sim.submit(job("a", read=0), 1.0)
    (finished,) = run(sim)
    assert told([finished]) == ["1.00 finished a"]
    assert result_of(finished).output_tokens == 0
    assert busy(sim, 1.0) == [False]


def test_several_answers_to_nothing_never_come_and_keep_their_slots() -> None:
    sim = server(slots=2)
    sim.submit(job("a", read=0, n=2, stream=False), 0.0)
    assert told(run(sim)) == ["0.00 finished a"]  # one of two: the client gets nothing yet
    assert busy(sim, 999.0) == [True, False]
    sim.disconnect("a", 1000.5)
    assert told(run(sim)) == ["1001.00 cancelled a"]
    assert busy(sim, 2000.0) == [False, False]


@pytest.mark.parametrize(
    ("bounds", "tokens", "stop"),
    [
        ({"max_tokens": 5, "natural_tokens": None}, 5, "limit"),
        ({"max_tokens": 5, "natural_tokens": 9}, 5, "limit"),
        ({"max_tokens": 9, "natural_tokens": 5}, 5, "eos"),
        ({"max_tokens": None, "natural_tokens": 5}, 5, "eos"),
        ({"max_tokens": 0, "natural_tokens": None}, 1, "limit"),
        ({"max_tokens": None, "natural_tokens": None}, 990, "limit"),
    ],
)
def test_an_answer_ends_by_its_bound_or_by_itself(
    bounds: dict[str, Any], tokens: int, stop: str
) -> None:
    sim = server()
    sim.submit(job("a", **bounds), 0.0)
    result = result_of(run(sim)[-1])
    assert (result.output_tokens, result.stop) == (tokens, stop)
    assert result.truncated == (tokens == 990)


def test_the_same_job_cannot_be_there_twice() -> None:
    sim = server()
    sim.submit(job("a"), 0.0)
    with pytest.raises(ValueError, match="is here already"):
        sim.submit(job("a"), 0.1)


def test_counters_add_up() -> None:
    sim = server(slots=2)
    for name in "ab":
        sim.submit(job(name, read=20, write=5, text=b"same" * 20), 0.0)
        run(sim)
    counters = sim.metrics(10.0)
    assert (counters.prompt_tokens, counters.prompt_tokens_cached) == (21, 19)
    assert (counters.output_tokens, counters.largest_sequence) == (10, 24)
    assert (counters.decodes, counters.busy_slots) == (10, 10)
    assert round(counters.prompt_seconds, 6) == 0.21
    assert round(counters.output_seconds, 6) == 0.8


def test_prompts_of_a_list_are_tasks_of_their_own() -> None:
    sim = server(slots=2)
    sim.submit(job("a", prompts=(Prompt(10), Prompt(10), Prompt(10)), write=5), 0.0)
    assert told(run(sim)) == [
        "0.00 started a1",
        "0.00 started a",
        "0.60 finished a1",
        "0.60 finished a",
        "0.60 started a2",
        "1.10 finished a2",
    ]
