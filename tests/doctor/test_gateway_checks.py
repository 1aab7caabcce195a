"""What a gateway of ours says of the servers behind it."""

from __future__ import annotations

from typing import Any

import pytest

from slotgate.doctor.evidence import Behind
from slotgate.doctor.finding import Severity
from slotgate.wire.llama_cpp import Health, HealthState
from tests.doctor.seen import ERROR, NOTE, OK, WARNING, found, only, seen, severity


def behind(*states: str, queue: int = 0) -> Any:
    servers = tuple(Behind(name=f"b{n}", state=each, why="so") for n, each in enumerate(states))
    health = Health(state=HealthState.OK, queue=queue)
    return seen(has_queue=True, behind=servers, health=health, looks=())


@pytest.mark.parametrize(
    ("states", "how"),
    [
        (("ready", "ready"), OK),
        (("ready", "down"), WARNING),
        (("down",), ERROR),
        (("degraded",), WARNING),
        (("ready", "paused"), NOTE),
        (("draining",), WARNING),
        (("ready", "loading"), NOTE),
        (("starting",), WARNING),
        ((), None),
    ],
)
def test_a_server_behind_it_that_does_not_serve_is_told(
    states: tuple[str, ...], how: Severity | None
) -> None:
    assert severity("backend-state", behind(*states)) is how


def test_each_that_does_not_serve_is_named_with_its_reason() -> None:
    down, held = found("backend-state", behind("down", "paused"))
    assert down.found == "b0, behind it, is down, and nothing else serves."
    assert down.known_by == "GET /ready: so"
    assert held.mend[0].startswith("`slotgate resume b1`")


@pytest.mark.parametrize(
    ("waiting", "words"),
    [
        (0, "No request waits in its queue."),
        (1, "1 request waits in its queue."),
        (9, "9 requests wait in its queue."),
    ],
)
def test_who_waits_in_it_is_counted(waiting: int, words: str) -> None:
    assert only("gateway-queue", behind("ready", queue=waiting)).found == words
    assert severity("gateway-queue", seen()) is None
