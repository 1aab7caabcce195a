"""Context of a slot, and a KV pool that all share."""

from __future__ import annotations

import pytest

from slotgate.slotsim import Failed, Fault, Prompt, Work
from tests.slotsim.play import busy, job, result_of, run, server, told


def test_a_prompt_that_fills_the_context_is_refused_before_anything_was_sent() -> None:
    sim = server(ctx=100)
    sim.submit(job("a", read=100), 0.0)
    assert run(sim) == [Failed(0.0, "a", 0, Fault.EXCEEDS_CONTEXT, 100, is_first=True)]
    assert busy(sim, 0.0) == [False]


def test_it_is_refused_only_when_it_has_a_slot() -> None:
    sim = server(ctx=100)
    sim.submit(job("a", write=10), 0.0)
    sim.submit(job("b", read=100), 0.0)
    sim.submit(job("c", write=1), 0.0)
    assert told(run(sim)) == [
        "0.00 started a",
        "1.00 finished a",
        "1.00 failed b",
        "1.00 started c",
        "1.10 finished c",
    ]


def test_an_answer_is_cut_where_the_context_ends() -> None:
    sim = server(ctx=100)
    sim.submit(job("a", read=95, write=50), 0.0)
    result = result_of(run(sim)[-1])
    assert (result.output_tokens, result.truncated, result.held_tokens) == (5, True, 99)


def test_an_overflow_kills_all_that_run_and_lets_the_waiting_in() -> None:
    sim = server(slots=2, ctx=100, pool=100)
    sim.submit(job("a", read=30, write=50), 0.0)
    sim.submit(job("b", read=30, write=50), 0.0)
    sim.submit(job("c", read=20, write=3), 0.0)
    events = run(sim)
    failed = [event for event in events if isinstance(event, Failed)]
    assert [(event.job, event.fault, event.is_first) for event in failed] == [
        ("b", Fault.POOL_EXHAUSTED, False),
        ("a", Fault.POOL_EXHAUSTED, False),
    ]
    assert failed[0].at == failed[1].at
    assert told(events)[-2:] == ["2.60 started c", "3.00 finished c"]


def test_an_answer_at_once_that_is_killed_has_sent_nothing() -> None:
    sim = server(slots=2, ctx=100, pool=100)
    for name in "ab":
        sim.submit(job(name, read=40, write=50, stream=False), 0.0)
    assert [event.is_first for event in run(sim) if isinstance(event, Failed)] == [True, True]


def test_what_idle_slots_hold_is_forgotten_first() -> None:
    sim = server(slots=2, ctx=100, pool=100)
    sim.submit(job("a", read=60, write=5), 0.0)
    sim.submit(job("b", read=20, write=40), 0.0)
    events = run(sim)
    assert [event for event in events if isinstance(event, Failed)] == []
    assert [slot.prompt_tokens for slot in sim.slots(99.0)] == [59, 0]


def test_one_may_fill_the_pool_alone() -> None:
    sim = server(slots=4, ctx=100, pool=100)
    sim.submit(job("a", read=60, write=99, report_every=0), 0.0)
    result = result_of(run(sim)[-1])
    assert (result.output_tokens, result.truncated) == (40, True)


def test_with_a_shared_pool_each_start_forgets_what_idle_slots_hold() -> None:
    sim = server(slots=2, ctx=100, pool=100)
    sim.submit(job("a", text=b"x" * 40), 0.0)
    run(sim)
    assert sim.slots(5.0)[1].prompt_tokens == 19
    sim.submit(job("b", text=b"y" * 40, slot=0), 5.0)
    assert sim.slots(5.0)[1].prompt_tokens == 0


def test_a_job_of_which_one_part_fails_fails_as_a_whole() -> None:
    sim = server(slots=1, ctx=100)
    prompts = (Prompt(10), Prompt(100), Prompt(10))
    sim.submit(job("a", prompts=prompts, write=2), 0.0)
    assert told(run(sim)) == ["0.00 started a", "0.20 finished a", "0.20 failed a1"]
    assert busy(sim, 9.0) == [False]
    assert sim.deferred == 0


def test_the_parts_that_run_beside_a_failing_one_are_stopped() -> None:
    sim = server(slots=2, ctx=100)
    sim.submit(job("a", prompts=(Prompt(10), Prompt(100)), write=50), 0.0)
    sim.submit(job("b", write=1), 0.0)
    assert told(run(sim)) == ["0.00 failed a1", "0.10 started b", "0.20 finished b"]


def test_a_job_that_holds_several_slots_is_killed_once() -> None:
    sim = server(slots=2, ctx=100, pool=100)
    sim.submit(job("a", prompts=(Prompt(40), Prompt(40)), write=50), 0.0)
    assert [line[5:] for line in told(run(sim))] == ["started a1", "started a", "failed a1"]
    assert busy(sim, 9.0) == [False, False]


def test_a_client_that_left_a_killed_job_is_noted() -> None:
    sim = server(slots=2, ctx=100, pool=100)
    for name in "ab":
        sim.submit(job(name, read=40, write=50, stream=False), 0.0)
    run(sim, 1.0)
    sim.poll(1.0)
    sim.disconnect("a", 1.0)
    lines = told(run(sim))
    assert [line[5:] for line in lines] == ["failed b", "failed a", "cancelled a"]


def test_embedding_reads_and_writes_nothing() -> None:
    sim = server(slots=2)
    prompts = (Prompt(20), Prompt(30))
    sim.submit(job("a", prompts=prompts, work=Work.EMBED, stream=False), 0.0)
    events = run(sim)
    assert told(events) == ["0.50 finished a1", "0.50 finished a"]
    assert [result_of(event).output_tokens for event in events] == [0, 0]


def test_an_input_is_embedded_in_one_batch_or_not_at_all() -> None:
    sim = server(slots=2, batch=40)
    prompts = (Prompt(30), Prompt(30))
    sim.submit(job("a", prompts=prompts, work=Work.EMBED, stream=False), 0.0)
    sim.submit(job("b", prompts=(Prompt(41),), work=Work.EMBED, stream=False), 5.0)
    events = run(sim)
    assert told(events) == ["0.30 finished a1", "0.60 finished a", "5.00 failed b"]
    assert isinstance(events[-1], Failed)
    assert events[-1].fault is Fault.EXCEEDS_BATCH


def test_several_answers_share_the_prompt_and_start_together() -> None:
    sim = server(slots=3, ctx=100, pool=100)
    sim.submit(job("a", read=40, n=3, write=5), 0.0)
    events = run(sim)
    assert told(events) == [
        "0.00 started a",
        "0.80 finished a1",
        "0.80 finished a2",
        "0.80 finished a",
    ]
    assert {result_of(e).held_tokens for e in events[-1:]} == {44}


def test_a_child_shows_the_prompt_it_shares() -> None:
    sim = server(slots=2)
    sim.submit(job("a", read=40, n=2, write=9), 0.0)
    assert [slot.prompt_tokens for slot in sim.slots(0.2)] == [0, 40]
    assert busy(sim, 0.2) == [True, True]
    assert [slot.prompt_tokens for slot in sim.slots(0.55)] == [42, 42]
    run(sim)
    assert [slot.prompt_tokens for slot in sim.slots(9.0)] == [0, 48]  # a child keeps no cache


def test_several_answers_wait_at_the_back_until_there_are_slots_for_all() -> None:
    sim = server(slots=2)
    sim.submit(job("long", write=30), 0.0)
    sim.submit(job("short", write=10), 0.0)
    sim.submit(job("pair", n=2, write=1), 0.0)
    sim.submit(job("late", write=10), 0.0)
    started = [line for line in told(run(sim)) if "started" in line]
    assert [line[5:] for line in started] == [
        "started long",
        "started short",
        "started late",
        "started pair",
    ]


def test_a_slot_stays_idle_when_the_one_woken_cannot_use_it() -> None:
    sim = server(slots=2)
    sim.submit(job("long", write=40, slot=1), 0.0)
    sim.submit(job("short", write=10, slot=0), 0.0)
    sim.submit(job("pinned", write=1, slot=1), 0.0)
    sim.submit(job("free", write=1), 0.0)
    run(sim, 2.0)
    assert (sim.deferred, busy(sim, 2.0)) == (2, [False, True])


@pytest.mark.parametrize("slot", [0, 2, -2])
def test_a_slot_number_wraps_around(slot: int) -> None:
    sim = server(slots=2)
    sim.submit(job("a", slot=slot), 0.0)
    assert busy(sim, 0.0) == [True, False]


def test_a_released_slot_wakes_first_the_one_that_wants_it() -> None:
    sim = server(slots=2)
    sim.submit(job("a", write=30, slot=0), 0.0)
    sim.submit(job("b", write=10, slot=1), 0.0)
    sim.submit(job("free", write=1), 0.0)
    sim.submit(job("pinned", write=1, slot=1), 0.0)
    lines = [line[5:] for line in told(run(sim)) if "started" in line]
    assert lines == ["started a", "started b", "started pinned", "started free"]
