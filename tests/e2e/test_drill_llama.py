"""The drills with two real llama.cpp servers, of which one is killed or frozen."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.e2e.failing import Backend, Drill, front, llama_backend, running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.failing import Record

pytestmark = [pytest.mark.process, pytest.mark.llama, pytest.mark.timeout(120)]

OPTIONS = {"n_parallel": 2, "n_ctx": 1024, "n_batch": 64, "endpoint_slots": True}
# One more than the slots of both, so that each is used whenever it may be.
CLIENTS = 5
TOKENS = 8


@pytest.fixture(scope="module")
def drill(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drill]:
    servers = [llama_backend(name, small_model, OPTIONS) for name in ("one", "two")]
    path = tmp_path_factory.mktemp("drill") / "config.yaml"
    with running(*servers):
        with front({each.name: each.port for each in servers}, path) as gateway:
            yield Drill(gateway, servers[0], clients=CLIENTS, tokens=TOKENS, rounds=2)


def restart(server: Backend) -> None:
    """Start it again; it loads its model while clients ask."""
    server.start()
    server.wait_ready()


def test_a_process_that_is_killed_and_loads_its_model_again(drill: Drill, record: Record) -> None:
    broken = drill.run("one", strike=drill.bad.kill, lift=lambda: restart(drill.bad), record=record)
    assert broken <= 2, "no more than it had slots"


def test_a_process_that_is_frozen(drill: Drill, record: Record) -> None:
    broken = drill.run(
        "one",
        strike=lambda: drill.bad.send(signal.SIGSTOP),
        lift=lambda: drill.bad.send(signal.SIGCONT),
        record=record,
    )
    assert broken <= 2
