"""What a server keeps of prompts: in the slot that read them, and in the host's memory."""

from __future__ import annotations

import pytest

from slotgate.slotsim import Prompt
from slotgate.slotsim.memory import HostMemory, State
from tests.slotsim.play import job, result_of, run, server

A = Prompt(100, b"a" * 100, b"a" * 50)
B, C = Prompt(100, b"b" * 100), Prompt(100, b"c" * 100)


def cached(prompts: list[Prompt], *, write: int = 10, slots: int = 1, **spec: int) -> list[int]:
    """Let each be answered alone, one after the other; return what of it was not read."""
    sim = server(slots=slots, **spec)
    found = []
    for number, prompt in enumerate(prompts):
        sim.submit(job("j", write=write, prompts=(prompt,)), 100.0 * number)
        found.append(result_of(run(sim)[-1]).cached_tokens)
    return found


def test_the_answer_is_in_the_cache_too_as_far_as_it_was_written() -> None:
    longer = Prompt(150, b"a" * 150)
    assert cached([A, longer], write=30) == [0, 129]  # the last token is never in the cache
    assert cached([Prompt(100, b"a" * 100), longer], write=30) == [0, 100]


@pytest.mark.parametrize(("memory", "found"), [(0, 0), (99, 0), (1000, 99)])
def test_what_a_slot_gave_up_comes_back_from_the_hosts_memory(memory: int, found: int) -> None:
    assert cached([A, B, A], memory=memory) == [0, 0, found]


def test_the_host_forgets_the_oldest_first() -> None:
    # Each takes 109 tokens: its prompt and all of its answer but the last token.
    assert cached([A, B, C, B], memory=120) == [0, 0, 0, 99]
    assert cached([A, B, C, A], memory=120) == [0, 0, 0, 0]
    assert cached([A, B, C, A], memory=240) == [0, 0, 0, 99]


def test_a_slot_that_has_most_of_the_prompt_is_left_alone() -> None:
    longer = Prompt(160, b"a" * 160)
    assert cached([B, A, longer, B], memory=1000) == [0, 0, 109, 99]


def test_idle_slots_of_a_shared_pool_are_emptied_into_the_hosts_memory() -> None:
    assert cached([A, B, A], slots=2, pool=1000) == [0, 0, 0]
    assert cached([A, B, A], slots=2, pool=1000, memory=1000) == [0, 0, 99]


def test_a_prompt_without_text_has_nothing_in_common_with_any() -> None:
    assert cached([Prompt(100), A, Prompt(100), A], memory=1000) == [0, 0, 0, 99]


def test_a_state_takes_the_place_of_those_that_it_begins_with() -> None:
    memory = HostMemory(100)
    memory.save(State(b"aa", 40))
    memory.save(State(b"aaa", 60))
    memory.save(State(b"b", 40))
    memory.save(State(b"", 40))
    assert memory.take(b"aab", beyond=2) is None
    assert memory.take(b"aab", beyond=1) == (b"aaa", 60)
    assert memory.take(b"aab", beyond=0) is None
    assert memory.take(b"b", beyond=0) == (b"b", 40)
