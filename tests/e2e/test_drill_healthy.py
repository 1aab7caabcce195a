"""Healthy llama.cpp servers that have much to do, with a hasty watchdog: nothing is found.

Prompts take longer to read than a first token is ever granted by the clock alone, and those who
write on the same server stand still for as long; all slots are busy, and others wait.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from time import perf_counter
from typing import TYPE_CHECKING

import pytest

from tests.e2e.drills import drill
from tests.e2e.processes import llama_server

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.failing import Record

pytestmark = [pytest.mark.process, pytest.mark.llama, pytest.mark.timeout(240)]

NAMES = ("left", "right")
SLOTS = 2
# One thread each, and a whole prompt in one batch.
OPTIONS = {
    "n_parallel": SLOTS,
    "n_ctx": 8192,
    "n_batch": 2048,
    "n_ubatch": 2048,
    "endpoint_slots": True,
    "endpoint_metrics": True,
}
# Some 900 tokens.
LONG = "The quick brown fox jumps over the lazy dog. " * 90


def test_long_prompts_on_busy_servers_are_no_fault(
    small_model: Path, tmp_path: Path, record: Record
) -> None:
    with ExitStack() as stack:
        urls = {name: stack.enter_context(llama_server(small_model, OPTIONS)) for name in NAMES}
        it = stack.enter_context(drill(tmp_path, urls))
        it.tell_all(4, at_once=4, tokens=10)
        it.wait_rest(SLOTS * len(NAMES))
        files = it.open_files()

        def read(number: int) -> float:
            """Have a long prompt read; return the seconds to its first token."""
            began = perf_counter()
            with it.asking(4, f"{number}. {LONG}") as response:
                response.readline()
                seconds = perf_counter() - began
                assert response.read().endswith(b"data: [DONE]\n\n")
            return seconds

        with ThreadPoolExecutor(6) as clients:
            stories = [clients.submit(it.tell, 40) for _ in range(4)]
            readers = [clients.submit(read, number) for number in range(2)]
            assert all(story.result().is_whole for story in stories)
            record("longest seconds to a first token", round(max(r.result() for r in readers), 2))
        record("requests", len(stories) + len(readers))
        record("streams that broke off", 0)

        assert it.findings() == {}
        assert it.actions() == {}
        assert set(it.front.metrics("slotgate_ejections_total").values()) == {0.0}
        assert [it.state(name) for name in NAMES] == ["ready"] * len(NAMES)
        it.wait_rest(SLOTS * len(NAMES))
        it.wait_files(files)
