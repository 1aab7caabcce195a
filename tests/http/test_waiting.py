"""More requests than slots: who waits, in which order, for how long, and who is refused."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from slotgate.stub import FaultKind, StubOptions
from tests.http.rig import CHAT, Answer, Rig, chat, gateway

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio

MESSAGES = "/v1/messages"


@contextlib.asynccontextmanager
async def all_busy(rig: Rig, slots: int = 1) -> AsyncIterator[None]:
    """Hold every slot with a stream that does not end."""
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(slots):
            held = await stack.enter_async_context(
                rig.open("POST", CHAT, chat(100_000, stream=True))
            )
            await held.open()
        await rig.wait_until(lambda counts: counts.idle == 0)
        yield


BUSY = StubOptions(decode=5, slots=1, ctx=1 << 20)


async def test_ten_requests_on_four_slots_are_all_served_and_none_is_deferred() -> None:
    async with gateway(StubOptions(decode=200, slots=4)) as rig:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(rig.post(CHAT, chat(4))) for _ in range(10)]
        assert [task.result().status for task in tasks] == [200] * 10
        assert rig.stub.observed.max_in_flight == 4
        assert rig.stub.observed.max_deferred == 0


async def test_requests_start_in_the_order_of_their_arrival() -> None:
    async with gateway(StubOptions(decode=500, slots=1)) as rig, asyncio.TaskGroup() as group:
        async with rig.open("POST", CHAT, chat(100_000, stream=True)) as held:
            await held.open()
            for number in range(8):
                group.create_task(rig.post(CHAT, chat(1, user=f"user-{number}")))
                await rig.wait_until(lambda counts, n=number + 1: counts.waiting == n)  # type: ignore[misc]
        await rig.wait_until(lambda counts: counts.waiting == 0 and counts.processing == 0)
        order = [record.body.partition(b"user-")[2][:1] for record in rig.stub.observed.records]
        assert order[1:] == [b"%d" % number for number in range(8)]


async def test_slots_1_queue_1_and_6_at_once_is_one_running_one_waiting_and_four_refused() -> None:
    async with gateway(BUSY, queue__max_waiting=1) as rig, all_busy(rig):
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(rig.post(CHAT, chat()))
            await rig.wait_until(lambda counts: counts.waiting == 1)
            answers = [await rig.post(CHAT, chat()) for _ in range(4)]
            waiting.cancel()
        for answer in answers:
            assert answer.status == 429
            assert answer.code == "queue_full"


@pytest.mark.parametrize("stream", [True, False])
async def test_a_full_queue_says_which_limit_what_value_and_when_to_come_back(
    stream: bool,
) -> None:
    async with gateway(BUSY, queue__max_waiting=0) as rig, all_busy(rig):
        answer = await rig.post(CHAT, chat(stream=stream))
        assert answer.status == 429
        assert answer.headers["content-type"].startswith("application/json")
        error = answer.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert answer.json()["src"] == "slotgate"
        assert "queue.max_waiting is 0" in error["message"]
        assert answer.headers["x-slotgate-reason"] == error["code"] == "queue_full"
        assert 1 <= int(answer.headers["retry-after"]) <= 50
        assert 0 < int(answer.headers["retry-after-ms"]) <= 50_000
        assert "x-should-retry" not in answer.headers


async def test_bodies_that_would_fill_the_memory_are_refused() -> None:
    async with gateway(BUSY, queue__max_waiting_bytes=1000) as rig, all_busy(rig):
        body = chat()
        body["messages"][0]["content"] = "x" * 2000
        answer = await rig.post(CHAT, body)
        assert answer.code == "queue_full"
        assert "queue.max_waiting_bytes is 1000" in answer.json()["error"]["message"]


async def test_anthropics_route_calls_a_full_queue_overloaded() -> None:
    async with gateway(BUSY, queue__max_waiting=0) as rig, all_busy(rig):
        answer = await rig.post(MESSAGES, chat())
        assert answer.status == 529
        assert answer.json()["error"]["type"] == "overloaded_error"
        assert answer.headers["retry-after"]


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ((b"x-slotgate-deadline-ms", b"50"), "x-slotgate-deadline-ms"),
        ((b"x-stainless-read-timeout", b"0.06"), "read timeout"),
    ],
)
async def test_a_request_that_waited_to_its_deadline_is_told_so(
    header: tuple[bytes, bytes], said: str
) -> None:
    async with gateway(BUSY) as rig, all_busy(rig):
        answer = await rig.post(CHAT, chat(), [header])
        assert answer.status == 429
        assert answer.code == "queue_timeout"
        assert said in answer.json()["error"]["message"]
        assert answer.headers["retry-after"]
        assert rig.counts.waiting == 0


async def test_the_budget_of_the_class_is_the_deadline() -> None:
    async with gateway(BUSY, classes__standard__budget=0.1) as rig, all_busy(rig):
        answer = await rig.post(CHAT, chat(), [(b"x-slotgate-deadline-ms", b"99999")])
        assert answer.code == "queue_timeout"
        assert "classes.standard.budget is 0.1 s" in answer.json()["error"]["message"]


@pytest.mark.parametrize("value", [b"", b"-5", b"nan", b"inf", b"soon", b"0", b"\xff"])
async def test_a_deadline_that_is_no_positive_number_is_not_one(value: bytes) -> None:
    async with gateway() as rig:
        answer = await rig.post(CHAT, chat(), [(b"x-slotgate-deadline-ms", value)])
        assert answer.status == 200


async def test_a_request_for_several_slots_waits_until_it_has_them_all() -> None:
    async with gateway(StubOptions(decode=100, slots=2)) as rig, asyncio.TaskGroup() as group:
        async with rig.open("POST", CHAT, chat(100_000, stream=True)) as held:
            await held.open()
            wide = group.create_task(rig.post(CHAT, chat(2, n=2)))
            await rig.wait_until(lambda counts: counts.waiting == 1 and counts.idle == 1)
        answer = await wide
        assert len(answer.json()["choices"]) == 2
        assert rig.stub.observed.max_deferred == 0


async def test_more_choices_than_slots_is_refused_at_once() -> None:
    async with gateway(StubOptions(decode=0, slots=2)) as rig:
        answer = await rig.post(CHAT, chat(n=3))
        assert answer.status == 400
        assert answer.headers["x-should-retry"] == "false"


async def test_more_inputs_than_slots_take_turns() -> None:
    async with gateway(StubOptions(decode=0, slots=2, embeddings=True)) as rig:
        answer = await rig.post("/v1/embeddings", {"input": ["a", "b", "c", "d", "e"]})
        assert answer.status == 200
        assert len(answer.json()["data"]) == 5


async def test_a_prompt_longer_than_a_slot_is_refused_at_once_though_others_wait() -> None:
    async with gateway(StubOptions(decode=5, slots=1, ctx=256)) as rig, all_busy_short(rig):
        body = chat()
        body["messages"][0]["content"] = "x" * 4000
        answer = await rig.post(CHAT, body)
        assert answer.status == 400
        error = answer.json()["error"]
        assert error["code"] == "context_length_exceeded"
        assert error["n_ctx"] == 256
        assert error["n_prompt_tokens"] > 256
        assert "--ctx-size by --parallel" in error["message"]
        assert answer.headers["x-should-retry"] == "false"
        assert "retry-after" not in answer.headers


async def test_a_prompt_longer_than_an_idle_slot_gets_the_same_refusal() -> None:
    async with gateway(StubOptions(decode=0, slots=1, ctx=256)) as rig:
        answer = await rig.post("/v1/completions", {"prompt": "x" * 4000, "max_tokens": 1})
        assert answer.status == 400
        assert answer.code == "context_length_exceeded"
        assert answer.json()["error"]["n_ctx"] == 256


@contextlib.asynccontextmanager
async def all_busy_short(rig: Rig) -> AsyncIterator[None]:
    async with rig.open("POST", CHAT, chat(200, stream=True)) as held:
        await held.open()
        yield


# The contract that monitoring scripts know.


async def test_slots_and_health_say_when_no_slot_is_idle() -> None:
    async with gateway(BUSY) as rig:
        assert (await rig.get("/slots?fail_on_no_slot=1")).status == 200
        assert (await rig.get("/health?fail_on_no_slot=1")).status == 200
        async with all_busy(rig):
            full = await rig.get("/slots?fail_on_no_slot=1")
            assert full.status == 503
            assert full.body == (
                b'{"error":{"code":503,"message":"no slot available","type":"unavailable_error"}}'
            )
            assert (await rig.get("/slots?fail_on_no_slot")).status == 200
            health = await rig.get("/health?fail_on_no_slot=1")
            assert health.status == 503
            assert health.json() == {
                "status": "no slot available",
                "slots_idle": 0,
                "slots_processing": 1,
            }
            assert (await rig.get("/health")).json() == {
                "status": "ok",
                "slots_idle": 0,
                "slots_processing": 1,
                "queue": 0,
            }
            [slot] = (await rig.get("/slots")).json()
            assert slot["is_processing"] is True
            assert slot["backend"] == "stub"
            assert slot["n_ctx"] == BUSY.ctx


# While there is nothing to serve with.


async def test_requests_wait_while_the_backend_loads_and_are_served_then() -> None:
    async with gateway(StubOptions(decode=0, load_seconds=0.5)) as rig:
        assert (await rig.get("/ready")).status == 503
        answer = await rig.post(CHAT, chat())
        assert answer.status == 200
        assert float(answer.headers["x-slotgate-queue-ms"]) > 0


async def test_a_backend_that_loads_too_long_is_loading_at_the_deadline() -> None:
    async with gateway(StubOptions(decode=0, load_seconds=600)) as rig:
        answer = await rig.post(CHAT, chat(), [(b"x-slotgate-deadline-ms", b"50")])
        assert answer.status == 503
        assert answer.code == "loading"
        assert 1 <= int(answer.headers["retry-after"]) <= 5


async def test_without_a_backend_newcomers_are_told_at_once() -> None:
    backend = {"url": "http://127.0.0.1:9"}
    async with gateway(backend=backend) as rig:
        answer = await rig.post(CHAT, chat())
        assert answer.status == 503
        assert answer.code == "no_backend"
        assert answer.headers["retry-after"]
        assert (await rig.get("/v1/models")).code == "no_backend"
        assert (await rig.get("/health")).status == 200


async def test_a_backend_that_says_loading_to_a_request_gets_it_again_later() -> None:
    async with gateway(StubOptions(decode=0)) as rig, asyncio.TaskGroup() as group:
        rig.stub.set_fault("loading")
        asked: asyncio.Task[Answer] = group.create_task(rig.post(CHAT, chat()))
        await rig.wait_until(lambda counts: counts.waiting == 1)
        rig.stub.clear_faults(FaultKind.LOADING)
        assert (await asked).status == 200


# Tenants.

KEYS = {"LEFT_KEY": "left-key-0123456789", "RIGHT_KEY": "right-key-0123456789"}
TENANTS: list[dict[str, Any]] = [
    {"name": "left", "key_env": "LEFT_KEY", "max_waiting": 0, "max_in_flight": 1},
    {"name": "right", "key_env": "RIGHT_KEY"},
]


async def test_a_key_is_needed_where_there_are_tenants_and_its_limits_are_the_tenants() -> None:
    left = [(b"authorization", b"Bearer left-key-0123456789")]
    right = [(b"x-api-key", b"right-key-0123456789")]
    stub = StubOptions(decode=5, slots=2, ctx=1 << 20)
    async with gateway(stub, env=KEYS, tenants=TENANTS) as rig:
        assert (await rig.post(CHAT, chat())).status == 401
        wrong = await rig.post(CHAT, chat(), [(b"authorization", b"Bearer nobodys-key-0123456789")])
        assert wrong.status == 401
        assert wrong.headers["x-should-retry"] == "false"
        assert (await rig.get("/health")).status == 200
        assert (await rig.get("/slots")).status == 401
        assert (await rig.get("/-/snapshot", left)).status == 401
        async with rig.open("POST", CHAT, chat(1000, stream=True), left) as held:
            await held.open()
            refused = await rig.post(CHAT, chat(), left)
            assert refused.status == 429
            assert refused.code == "tenant_limit"
            assert "tenants.left" in refused.json()["error"]["message"]
            assert (await rig.post(CHAT, chat(1), right)).status == 200
