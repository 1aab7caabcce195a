"""A backend that breaks: a status before the first byte, one error event after it, nothing lost."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from slotgate.stub import FaultKind, StubOptions
from tests.http.rig import CHAT, Answer, Rig, chat, gateway

pytestmark = pytest.mark.anyio

STREAMS: dict[str, dict[str, Any]] = {
    CHAT: chat(1000, stream=True),
    "/v1/completions": {"prompt": "x", "max_tokens": 1000, "stream": True},
    "/completion": {"prompt": "x", "n_predict": 1000, "stream": True},
    "/v1/responses": {"input": "x", "max_output_tokens": 1000, "stream": True},
    "/v1/messages": chat(1000, stream=True),
}
FAST = StubOptions(decode=2000, slots=2, ctx=1 << 16)


def faulty(*faults: str, **more: Any) -> StubOptions:
    from slotgate.stub import Fault

    options = {"decode": 2000, "slots": 2, "ctx": 1 << 16, **more}
    return StubOptions(**options, faults=tuple(Fault.parse(fault) for fault in faults))


async def all_free(rig: Rig) -> None:
    await rig.wait_until(lambda counts: counts.waiting == 0 and counts.processing == 0)


@pytest.mark.parametrize("path", STREAMS)
async def test_a_stream_that_breaks_ends_with_one_error_event_of_its_route(path: str) -> None:
    async with gateway(faulty("dies:10")) as rig:
        answer = await rig.post(path, STREAMS[path])
        assert answer.status == 200
        assert answer.body.count(b'"src":"slotgate"') == 1
        last = answer.body.rstrip().split(b"\n\n")[-1]
        data = json.loads(last.partition(b"data: ")[2])
        assert data["error"]["code"] == "backend_unreachable"
        assert data["src"] == "slotgate"
        assert last.startswith(b"event: error") == (path in {"/v1/responses", "/v1/messages"})
        assert b"[DONE]" not in answer.body
        await all_free(rig)


async def test_an_answer_that_breaks_before_its_client_saw_any_of_it_is_tried_again() -> None:
    async with gateway(faulty("dies:10")) as rig:
        answer = await rig.post(CHAT, chat(1000))
        assert answer.status == 502
        assert answer.code == "backend_unreachable"
        assert answer.headers["retry-after"] == "1"
        assert "stub: " in answer.json()["error"]["message"]
        assert str(rig.stub.port) not in answer.body.decode(), "a tenant learns the address"
        assert len(rig.stub.observed.records) == 2
        await all_free(rig)


async def test_one_failure_is_not_seen_by_a_client_that_wanted_a_whole_answer() -> None:
    async with gateway(faulty("dies:10")) as rig, asyncio.TaskGroup() as group:
        asked: asyncio.Task[Answer] = group.create_task(rig.post(CHAT, chat(1000)))
        async with asyncio.timeout(20):
            while len(rig.stub.observed.records) < 2:
                await asyncio.sleep(0)
        rig.stub.clear_faults(FaultKind.DIES)
        assert (await asked).status == 200


@pytest.mark.parametrize("stream", [True, False])
async def test_an_error_that_comes_as_the_first_frame_still_has_its_status(stream: bool) -> None:
    async with gateway(faulty("error_in_stream:0")) as rig:
        answer = await rig.post(CHAT, chat(10, stream=stream))
        assert answer.status == 500
        assert answer.json()["error"]["message"] == "Context size has been exceeded."
        await all_free(rig)


async def test_an_error_frame_of_the_backend_passes_as_it_is() -> None:
    async with gateway(faulty("error_in_stream:5", decode=100)) as rig:
        answer = await rig.post(CHAT, chat(100, stream=True))
        assert answer.status == 200
        assert answer.body.count(b"Context size has been exceeded.") == 1
        assert b"slotgate" not in answer.body
        whole = await rig.post(CHAT, chat(100))
        assert whole.status == 500
        assert whole.json()["error"]["message"] == "Context size has been exceeded."
        await all_free(rig)


async def test_a_500_of_the_backend_passes_as_it_is() -> None:
    async with gateway(faulty("fast500")) as rig:
        for stream in (True, False):
            answer = await rig.post(CHAT, chat(stream=stream))
            assert answer.status == 500
            assert answer.json()["error"]["type"] == "server_error"
        await all_free(rig)


async def test_a_backend_that_never_answers_is_a_504_in_time() -> None:
    timeouts = {"first_byte": "100ms"}
    async with gateway(faulty("silent"), backend={"timeouts": timeouts}) as rig:
        answer = await rig.post(CHAT, chat(stream=True))
        assert answer.status == 504
        assert answer.code == "backend_timeout"
        assert answer.headers["retry-after"] == "1"
        rig.stub.clear_faults(FaultKind.SILENT)
        await all_free(rig)


async def test_a_backend_that_stops_in_the_middle_is_an_error_event_in_time() -> None:
    timeouts = {"idle": "200ms"}
    async with gateway(faulty("wedge:5"), backend={"timeouts": timeouts}) as rig:
        answer = await rig.post(CHAT, chat(100, stream=True))
        assert answer.status == 200
        assert answer.body.count(b"backend_timeout") >= 1
        assert answer.body.rstrip().endswith(b"}")


async def test_waiting_requests_survive_a_backend_that_goes_and_comes_back() -> None:
    stub = StubOptions(decode=50, slots=1, ctx=1 << 16)
    async with gateway(stub, backend={"restart_grace": 0}) as rig:
        async with asyncio.TaskGroup() as group:
            async with rig.open("POST", CHAT, chat(10_000, stream=True)) as held:
                await held.open()
                waiting = [group.create_task(rig.post(CHAT, chat(2))) for _ in range(3)]
                await rig.wait_until(lambda counts: counts.waiting == 3)
                await rig.stub.stop()
                while await held.read():
                    pass
            probe = rig.app.fleet.probes["stub"]
            await probe.look()
            assert rig.counts.waiting == 3
            assert (await rig.post(CHAT, chat())).code == "no_backend"
            await rig.stub.start()
            probe.poke()
        assert [task.result().status for task in waiting] == [200] * 3


async def test_a_dead_backend_is_found_by_the_first_request_and_that_one_waits_for_it() -> None:
    settings = {"restart_grace": 0}
    async with gateway(FAST, backend=settings) as rig, asyncio.TaskGroup() as group:
        await rig.stub.stop()
        first = group.create_task(rig.post(CHAT, chat(2)))
        await rig.wait_until(lambda counts: counts.waiting == 1)
        assert (await rig.post(CHAT, chat())).code == "no_backend"
        await rig.stub.start()
        rig.app.fleet.probes["stub"].poke()
        assert (await first).status == 200


async def test_a_drain_refuses_newcomers_and_serves_who_was_there() -> None:
    async with gateway(StubOptions(decode=200, slots=1, ctx=1 << 16)) as rig:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(rig.post(CHAT, chat(40, stream=True)))
            await rig.wait_until(lambda counts: counts.idle == 0)
            waiting = group.create_task(rig.post(CHAT, chat(2)))
            await rig.wait_until(lambda counts: counts.waiting == 1)
            rig.app.driver.begin_draining()
            refused = await rig.post(CHAT, chat())
            assert refused.status == 503
            assert refused.code == "draining"
            assert (await rig.get("/ready")).status == 503
            await rig.app.driver.wait_idle()
        assert running.result().body.endswith(b"data: [DONE]\n\n")
        assert waiting.result().status == 200


async def test_what_is_ended_by_force_is_told_so() -> None:
    async with gateway(StubOptions(decode=50, slots=1, ctx=1 << 16)) as rig:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(rig.post(CHAT, chat(10_000, stream=True)))
            await rig.wait_until(lambda counts: counts.idle == 0)
            waiting = group.create_task(rig.post(CHAT, chat(2)))
            await rig.wait_until(lambda counts: counts.waiting == 1)
            async with asyncio.timeout(20):
                while rig.stub.observed.records[0].first_token_at is None:
                    await asyncio.sleep(0)
            rig.app.driver.abort_all("the gateway is shutting down")
        assert waiting.result().status == 503
        assert waiting.result().code == "draining"
        assert b"draining: the gateway is shutting down" in running.result().body


async def test_a_fault_of_ours_is_a_500_and_leaves_no_slot_behind() -> None:
    async with gateway(FAST) as rig:

        def broken(*_arguments: object) -> None:
            raise RuntimeError("a bug")

        rig.app.fleet.backends["stub"].exchange = broken  # type: ignore[method-assign,assignment]
        answer = await rig.post(CHAT, chat())
        assert answer.status == 500
        assert answer.code == "internal_error"
        assert "a bug" not in answer.body.decode()
        await all_free(rig)
