"""Drills with three backends, of which one fails while clients ask.

Whoever has no byte of its answer yet gets it from another backend; whoever has gets one error; the
backend is left alone until it serves again; and nothing is held afterwards that was not before.
"""

from __future__ import annotations

import signal
from time import perf_counter
from typing import TYPE_CHECKING

import pytest

from tests.e2e.asking import PATIENCE_LOOKS
from tests.e2e.failing import Backend, Drill, front, running, stub_backend
from tests.e2e.relay import Relay

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.failing import Record

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

STUB = ("--slots", "4", "--decode", "100", "--prefill", "0", "--ctx", "4096")
TOKENS = 20
# More than two backends have slots, so that the third is used whenever it may be.
CLIENTS = 10


@pytest.fixture(scope="module")
def backends() -> Iterator[list[Backend]]:
    stubs = [stub_backend(name, *STUB) for name in ("one", "two", "three")]
    with running(*stubs):
        yield stubs


@pytest.fixture(scope="module")
def relay(backends: list[Backend]) -> Iterator[Relay]:
    with Relay(backends[2].port) as relay:
        yield relay


@pytest.fixture(scope="module")
def drill(
    backends: list[Backend], relay: Relay, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Drill]:
    ports = {each.name: each.port for each in backends} | {"three": relay.port}
    path = tmp_path_factory.mktemp("drill") / "config.yaml"
    with front(ports, path) as gateway:
        yield Drill(gateway, backends[0], clients=CLIENTS, tokens=TOKENS, rounds=4)


def test_a_process_that_is_killed(drill: Drill, record: Record) -> None:
    def lift() -> None:
        drill.bad.start()
        drill.bad.wait_ready()

    broken = drill.run("one", strike=drill.bad.kill, lift=lift, record=record)
    assert broken <= 4, "no more than it had slots"


def test_a_process_that_is_frozen(drill: Drill, record: Record) -> None:
    broken = drill.run(
        "one",
        strike=lambda: drill.bad.send(signal.SIGSTOP),
        lift=lambda: drill.bad.send(signal.SIGCONT),
        record=record,
    )
    assert broken <= 4


def test_connections_that_are_accepted_and_never_answered(
    drill: Drill, relay: Relay, record: Record
) -> None:
    broken = drill.run("three", strike=relay.mute, lift=relay.heal, record=record)
    assert broken <= 4


def test_connections_that_are_never_made(drill: Drill, relay: Relay, record: Record) -> None:
    broken = drill.run("three", strike=relay.fill, lift=relay.heal, record=record)
    assert broken <= 4


def test_streams_that_are_reset_in_the_middle(drill: Drill, record: Record) -> None:
    broken = drill.run(
        "one",
        strike=lambda: drill.bad.fault(set="dies:5"),
        lift=lambda: drill.bad.fault(clear="dies"),
        record=record,
    )
    assert broken > 0


def test_a_model_that_is_loaded_anew(drill: Drill, record: Record) -> None:
    broken = drill.run(
        "one",
        strike=lambda: drill.bad.fault(set="loading"),
        lift=lambda: drill.bad.fault(clear="loading"),
        record=record,
        is_left="loading",
    )
    assert broken == 0


def test_a_process_that_loads_its_model_for_half_a_minute(drill: Drill, record: Record) -> None:
    def strike() -> None:
        drill.bad.kill()
        drill.bad.start("--load-seconds", "30")
        drill.bad.wait_ready()

    began = perf_counter()
    broken = drill.run(
        "one",
        strike=strike,
        lift=lambda: drill.gateway.wait_for("one", "ready", looks=10 * PATIENCE_LOOKS),
        record=record,
        is_left="loading",
    )
    record("seconds in all", round(perf_counter() - began, 2))
    assert broken <= 4


@pytest.mark.parametrize("fault", ["fast500", "fast503"])
def test_errors_at_once(drill: Drill, fault: str, record: Record) -> None:
    broken = drill.run(
        "one",
        strike=lambda: drill.bad.fault(set=fault),
        lift=lambda: drill.bad.fault(clear=fault),
        record=record,
    )
    assert broken == 0
