"""Each fault does to its clients what its name says, and nothing to the others."""

from __future__ import annotations

import asyncio
import json

import pytest

from slotgate.errors import ConfigError
from slotgate.stub import Fault, FaultKind, Outcome
from tests.polling import wait_until
from tests.stub.client import call, chat, fetch, stub

pytestmark = [pytest.mark.anyio, pytest.mark.process]

CHAT = "/v1/chat/completions"


def faults(*texts: str) -> tuple[Fault, ...]:
    return tuple(Fault.parse(text) for text in texts)


def tokens_in(text: bytes) -> int:
    return text.count(b'"content":"tok')


async def test_a_wedge_stops_the_streams_and_the_polls_but_not_health() -> None:
    async with stub(faults=faults("wedge:5")) as server:
        caller = await call(server, CHAT, chat(50))
        assert tokens_in(await caller.until(b"tok5 ")) == 5
        poll = await call(server, "/slots")
        assert await fetch(server, "/health") == (200, b'{"status":"ok"}')
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(caller.until(b"tok6 "), 0.1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(poll.status(), 0.1)
        server.clear_faults(FaultKind.WEDGE)
        assert await poll.status() == 200
        assert (await caller.rest()).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        await caller.leave()
        await poll.leave()


async def test_a_poll_whose_client_left_is_not_answered_when_the_wedge_ends() -> None:
    async with stub() as server:
        server.set_fault("wedge:0")
        caller = await call(server, CHAT, chat(50))
        await caller.until(b"tok1 ")
        poll = await call(server, "/metrics")
        await wait_until(lambda: server.observed.connections == 2)
        await poll.leave()
        await wait_until(lambda: server.observed.connections == 1)
        server.clear_faults()
        await caller.rest()
        await caller.leave()


async def test_a_zombie_keeps_its_slot_after_its_client_left() -> None:
    async with stub(slots=1, faults=faults("zombie")) as server:
        leaver = await call(server, CHAT, chat(60))
        await leaver.until(b"tok1 ")
        await leaver.leave()
        await wait_until(lambda: server.observed.abandoned == 1)
        follower = await call(server, CHAT, chat(1))
        await wait_until(lambda: server.observed.deferred == 1)
        await follower.rest()
        await follower.leave()
        first, second = server.observed.records
        assert first.cancelled_at is not None
        assert second.started_at is not None
        assert first.cancelled_at <= second.started_at
        assert first.cancelled_at - first.arrived_at >= 59 / 200


async def test_a_slow_server_needs_longer() -> None:
    async with stub(decode=1000.0) as server:
        server.set_fault("slow:50")
        await fetch(server, CHAT, chat(5))
        record = server.observed.records[0]
        assert record.ended_at is not None
        assert record.first_token_at is not None
        assert record.ended_at - record.first_token_at > 0.15  # four passes of 0.05 s


@pytest.mark.parametrize("stream", [True, False])
async def test_a_part_of_the_requests_gets_a_500_in_place_of_its_answer(*, stream: bool) -> None:
    async with stub(decode=0.0, faults=faults("errors500:0.5")) as server:
        answers = [await fetch(server, CHAT, chat(3, stream=stream)) for _ in range(4)]
        assert [status for status, _ in answers] == [200, 500, 200, 500]
        assert json.loads(answers[1][1])["error"]["message"] == "Compute error."
        await wait_until(lambda: server.observed.in_flight == 0)


async def test_a_fast_500_takes_no_slot() -> None:
    async with stub(faults=faults("fast500")) as server:
        status, body = await fetch(server, CHAT, chat(3))
        assert (status, json.loads(body)["error"]["type"]) == (500, "server_error")
        assert server.observed.records[0].started_at is None
        assert (await fetch(server, "/health"))[0] == 200


async def test_a_fast_503_is_no_llama_servers() -> None:
    async with stub(faults=faults("fast503")) as server:
        assert await fetch(server, CHAT, chat(3)) == (503, b"no healthy upstream")
        assert (await fetch(server, "/health"))[0] == 200


async def test_a_stream_dies_after_so_many_tokens() -> None:
    async with stub(faults=faults("dies:3")) as server:
        caller = await call(server, CHAT, chat(50))
        assert tokens_in(await caller.until(b"tok3 ")) == 3
        with pytest.raises(ConnectionResetError):
            await caller.rest()
        await wait_until(lambda: server.observed.broken == 1)
        await wait_until(lambda: server.observed.cancelled == 0)


async def test_an_answer_at_once_dies_without_a_byte() -> None:
    async with stub(faults=faults("dies:3")) as server:
        caller = await call(server, CHAT, chat(50, stream=False))
        with pytest.raises(ConnectionResetError):
            await caller.status()
        assert server.observed.records[0].outcome is Outcome.BROKEN


async def test_shorter_answers_live() -> None:
    async with stub(faults=faults("dies:3")) as server:
        assert (await fetch(server, CHAT, chat(2, stream=False)))[0] == 200


async def test_a_stream_breaks_with_an_error_frame_and_no_terminator() -> None:
    async with stub(faults=faults("error_in_stream:2")) as server:
        status, text = await fetch(server, CHAT, chat(50))
        assert status == 200
        assert tokens_in(text) == 2
        assert b'data: {"error":{"code":500,"message":"Context size has been exceeded."' in text
        assert b"[DONE]" not in text
        assert text.endswith(b"\r\n0\r\n\r\n")
        status, text = await fetch(server, CHAT, chat(50, stream=False))
        assert (status, b"Context size has been exceeded." in text) == (500, True)


async def test_all_at_once_breaks_after_the_right_token_too() -> None:
    async with stub(decode=0.0, faults=faults("error_in_stream:4")) as server:
        _, text = await fetch(server, CHAT, chat(50))
        assert tokens_in(text) == 4


async def test_a_silent_server_takes_requests_and_never_answers() -> None:
    async with stub(faults=faults("silent")) as server:
        caller = await call(server, CHAT, chat(1))
        await wait_until(lambda: server.observed.in_flight == 1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(caller.status(), 0.1)
        assert (await fetch(server, "/slots"))[0] == 200
        await caller.leave()
        await wait_until(lambda: server.observed.in_flight == 0)
        assert server.observed.abandoned == 1


async def test_a_silent_server_that_finds_its_voice_answers() -> None:
    async with stub(faults=faults("silent")) as server:
        caller = await call(server, CHAT, chat(1))
        await wait_until(lambda: server.observed.in_flight == 1)
        server.clear_faults()
        assert await caller.status() == 200
        await caller.rest()
        await caller.leave()
        assert (server.observed.requests, server.observed.completed) == (1, 1)


async def test_a_loading_server_refuses_everything_until_it_has_loaded() -> None:
    async with stub(faults=faults("loading")) as server:
        for path, body in (("/health", None), (CHAT, chat(1)), ("/nope", None)):
            status, text = await fetch(server, path, body)
            assert (status, json.loads(text)["error"]["message"]) == (503, "Loading model")
        server.clear_faults()
        assert (await fetch(server, "/health"))[0] == 200


async def test_a_server_that_exits_takes_all_its_connections_along() -> None:
    async with stub(faults=faults("exits:3")) as server:
        other = await call(server, CHAT, chat(1, content="x" * 400))
        caller = await call(server, CHAT, chat(50))
        await asyncio.wait_for(server.wait_exited(), 5)
        with pytest.raises(ConnectionResetError):
            await caller.rest()
        await other.leave()
        await caller.leave()


async def test_faults_are_switched_over_http() -> None:
    async with stub() as server:
        assert await fetch(server, "/stub/fault", {"set": "fast500"}) == (
            200,
            b'{"faults":["fast500"]}',
        )
        assert (await fetch(server, CHAT, chat(1)))[0] == 500
        assert (await fetch(server, "/stub/fault", {"set": "slow:2"}))[1] == (
            b'{"faults":["fast500","slow"]}'
        )
        assert (await fetch(server, "/stub/fault", {"clear": "fast500"}))[1] == (
            b'{"faults":["slow"]}'
        )
        assert (await fetch(server, "/stub/fault", {"clear": "all"}))[1] == b'{"faults":[]}'
        status, body = await fetch(server, "/stub/fault", {"set": "gremlins"})
        assert (status, b"expected NAME or NAME:NUMBER" in body) == (400, True)
        assert (await fetch(server, "/stub/fault"))[0] == 404


@pytest.mark.parametrize("text", ["gremlins", "slow:much", ""])
async def test_an_unknown_fault_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError, match="--fault"):
        Fault.parse(text)


async def test_a_fault_has_an_argument_of_its_own_if_none_is_given() -> None:
    assert Fault.parse("wedge") == Fault(FaultKind.WEDGE, 20.0)
    assert Fault.parse("wedge:7") == Fault(FaultKind.WEDGE, 7.0)
    assert Fault.parse("zombie") == Fault(FaultKind.ZOMBIE, 0.0)
