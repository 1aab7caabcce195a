"""The drills with two real llama.cpp servers, of which one is killed, frozen or cut off.

What no signal does to a real server, a relay before the second one does: it resets streams in
their middle, takes connections and answers nothing, lets connecting hang, or answers itself what a
server does that loads its model or whose batches fail.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.e2e.failing import Backend, Drill, front, llama_backend, running
from tests.e2e.relay import STREAMED, Relay

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.failing import Record

pytestmark = [pytest.mark.process, pytest.mark.llama, pytest.mark.timeout(120)]

OPTIONS = {"n_parallel": 2, "n_ctx": 1024, "n_batch": 64, "endpoint_slots": True}
# One more than the slots of both, so that each is used whenever it may be.
CLIENTS = 5
TOKENS = 8
LOADING = "503 Service Unavailable", "Loading model", "unavailable_error"
COMPUTE_ERROR = "500 Internal Server Error", "Compute error.", "server_error"


@pytest.fixture(scope="module")
def servers(small_model: Path) -> Iterator[list[Backend]]:
    servers = [llama_backend(name, small_model, OPTIONS) for name in ("one", "two")]
    with running(*servers):
        yield servers


@pytest.fixture(scope="module")
def relay(servers: list[Backend]) -> Iterator[Relay]:
    with Relay(servers[1].port) as relay:
        yield relay


@pytest.fixture(scope="module")
def drill(
    servers: list[Backend], relay: Relay, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Drill]:
    path = tmp_path_factory.mktemp("drill") / "config.yaml"
    with front({"one": servers[0].port, "two": relay.port}, path) as gateway:
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


def test_streams_that_are_reset_in_the_middle(drill: Drill, relay: Relay, record: Record) -> None:
    broken = drill.run("two", strike=relay.cut, lift=relay.heal, record=record)
    assert broken > 0


def test_connections_that_are_accepted_and_never_answered(
    drill: Drill, relay: Relay, record: Record
) -> None:
    broken = drill.run("two", strike=relay.mute, lift=relay.heal, record=record)
    assert broken <= 2


def test_connections_that_are_never_made(drill: Drill, relay: Relay, record: Record) -> None:
    broken = drill.run("two", strike=relay.fill, lift=relay.heal, record=record)
    assert broken <= 2


def test_a_server_that_says_it_is_loading(drill: Drill, relay: Relay, record: Record) -> None:
    broken = drill.run(
        "two",
        strike=lambda: relay.answer(*LOADING),
        lift=relay.heal,
        record=record,
        is_left="loading",
    )
    assert broken == 0


def test_errors_at_once(drill: Drill, relay: Relay, record: Record) -> None:
    broken = drill.run(
        "two",
        strike=lambda: relay.answer(*COMPUTE_ERROR, path=STREAMED),
        lift=relay.heal,
        record=record,
    )
    assert broken == 0
