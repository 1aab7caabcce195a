"""Drills over real llama.cpp: a process that stands still, as SIGSTOP has it, is a wedge."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.capacity.tiny_models import write_model
from tests.e2e.asking import wait_until
from tests.e2e.drills import HASTY, MODEL, Drill, drill, wait_seconds
from tests.e2e.processes import gateway, llama_process, write_config

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.failing import Record

pytestmark = [pytest.mark.process, pytest.mark.llama]

SLOTS = 2
OPTIONS = {"n_parallel": SLOTS, "n_ctx": 2048, "endpoint_slots": True, "endpoint_metrics": True}


@contextmanager
def stopped(process: int) -> Iterator[None]:
    """Have a process stand still within the block; it may be gone after it."""
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        if Path(f"/proc/{process}").exists():
            os.kill(process, signal.SIGCONT)


def children(process: int) -> list[int]:
    words = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [int(word) for word in words]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that is made up: it knows nothing, but is fast."""
    return write_model("llama", tmp_path_factory.mktemp("model"))


def test_of_two_servers_one_that_stands_still_costs_only_answers_that_had_begun(
    model: Path, tmp_path: Path, record: Record
) -> None:
    with ExitStack() as stack:
        servers = {
            name: stack.enter_context(llama_process(model, OPTIONS)) for name in ("left", "right")
        }
        urls = {name: server.url for name, server in servers.items()}
        it = stack.enter_context(drill(tmp_path, urls))
        it.tell_all(4, at_once=4, tokens=100)
        files = it.open_files()

        with ThreadPoolExecutor(8) as clients:
            stories = [clients.submit(it.tell, 480) for _ in range(8)]
            wait_until(lambda: it.front.queue()["slots_processing"] == 2 * SLOTS)
            with stopped(servers["left"].process.pid):
                seconds = wait_seconds(lambda: ("left", "wedged") in it.findings())
                record("seconds until it is left alone", seconds)
                assert it.state("left") == "down"
                told = [story.result() for story in stories]
            wait_until(lambda: it.state("left") == "ready")

        assert [each for each in told if not each.is_whole and not each.tokens] == []
        broken = [each for each in told if not each.is_whole]
        assert {(each.backend, each.errors) for each in broken} <= {("left", ("backend_timeout",))}
        assert len(broken) <= SLOTS
        record("requests", len(told))
        record("streams that broke off", len(broken))
        assert it.findings() == {("left", "wedged"): 1}
        it.wait_rest(2 * SLOTS)
        assert all(each.is_whole for each in it.tell_all(4, at_once=4, tokens=20))
        it.wait_files(files)


def test_an_engine_of_ours_that_stands_still_is_killed_and_started_again(
    model: Path, tmp_path: Path, record: Record
) -> None:
    own = {"name": "own", "alias": MODEL, "model": str(model), "parallel": SLOTS}
    settings = {
        "listen": "127.0.0.1:0",
        "log": {"level": "error"},
        "backends": [{**own, "ctx_per_slot": 1024}],
        "watchdog": {**HASTY, "restart_grace": "200ms"},
    }
    with gateway("-c", write_config(tmp_path / "own.yaml", settings)) as front:
        it = Drill(front, {}, tmp_path / "none")
        assert it.tell(100).is_whole
        files = it.open_files()
        [engine] = children(front.process.pid)

        with it.asking(900) as begun, ThreadPoolExecutor(1) as clients:
            begun.readline()
            with stopped(engine):
                waiting = clients.submit(it.tell, 20)
                seconds = wait_seconds(lambda: ("own", "restart") in it.actions())
                record("seconds until it is left alone", seconds)
                assert begun.read().count(b'"code":"backend_timeout"') == 1
            assert waiting.result().is_whole
        record("requests", 2)
        record("streams that broke off", 1)

        assert it.findings() == {("own", "wedged"): 1}
        assert it.actions()["own", "restart"] == 1
        # The answer may be the old one's, which goes on for a moment before it is gone.
        wait_until(lambda: engine not in children(front.process.pid))
        wait_until(lambda: it.state("own") == "ready")
        assert it.tell(20).is_whole
        it.wait_rest(SLOTS)
        it.wait_files(files)
