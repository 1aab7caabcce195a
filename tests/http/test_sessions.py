"""Requests of one session go where its prompt is cached, and nobody can read off who it is."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from slotgate.core import Granted
from slotgate.stub import StubOptions, StubServer
from tests.http.rig import CHAT, Rig, chat, gateway_at

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from slotgate.core import Decision

pytestmark = pytest.mark.anyio

# Some two hundred tokens, of which the name is not the beginning.
LONG = "A tale of " + "many words " * 100


@contextlib.asynccontextmanager
async def two_backends(**settings: Any) -> AsyncIterator[Rig]:
    options = StubOptions(slots=4, decode=0)
    async with StubServer(options) as left, StubServer(options) as right:
        backends = [{"name": "left", "url": left.url}, {"name": "right", "url": right.url}]
        async with gateway_at(left.url, backends=backends, **settings) as rig:
            await rig.wait_until(lambda counts: counts.idle == 8)
            yield rig


def turn(number: int) -> dict[str, Any]:
    said = [{"role": "user", "content": LONG}]
    for place in range(number):
        said.append({"role": "assistant", "content": f"Yes {place}."})
        said.append({"role": "user", "content": "Go on."})
    return chat() | {"messages": said}


async def places(rig: Rig, *bodies: dict[str, Any], headers: Any = ()) -> list[str]:
    answers = [await rig.post(CHAT, body, headers) for body in bodies]
    assert {answer.status for answer in answers} == {200}
    return [answer.headers["x-slotgate-backend"] for answer in answers]


async def test_the_turns_of_a_conversation_stay_where_the_first_was() -> None:
    async with two_backends() as rig:
        first = await places(rig, turn(0))
        assert await places(rig, *(turn(number) for number in range(1, 4))) == first * 3


async def test_a_session_header_is_understood_and_goes_no_further() -> None:
    async with two_backends() as rig:
        headers = [(b"x-session-id", b"jane-secret"), (b"x-slotgate-session", b"joan-secret")]
        await places(rig, turn(0), headers=headers)
        tickets = rig.app.driver.snapshot()
        metrics, queue = await rig.get("/metrics"), await rig.get("/queue")
        for shown in (repr(tickets).encode(), metrics.body, queue.body):
            assert b"secret" not in shown


class Sessions:
    """Watches which session each granted ticket is of."""

    def __init__(self) -> None:
        self.seen: list[str | None] = []

    def decided(self, decision: Decision) -> None:
        if isinstance(decision, Granted):
            self.seen.append(decision.ticket.affinity)


async def test_what_only_reads_is_of_no_session() -> None:
    async with two_backends() as rig:
        sessions = Sessions()
        rig.app.driver.observers.append(sessions)
        header = [(b"x-session-id", b"s")]
        await rig.post("/v1/embeddings", {"input": "a"}, header)
        await rig.post("/v1/completions", {"prompt": "a", "max_tokens": 1}, header)
        await rig.post(CHAT, chat(), header)
        reading, *writing = sessions.seen
        assert reading is None
        assert writing[0] == writing[1] is not None


async def test_what_was_expected_in_a_cache_is_counted() -> None:
    async with two_backends() as rig:
        (place,) = await places(rig, turn(0))
        await places(rig, turn(1))
        series = f'slotgate_expected_cached_tokens_total{{backend="{place}"}} '
        lines = (await rig.get("/metrics")).body.decode().splitlines()
        (line,) = [line for line in lines if line.startswith(series)]
        assert float(line.removeprefix(series)) > 100
