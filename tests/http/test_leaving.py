"""A client that leaves costs nothing from then on, whenever and however it leaves."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import socket
import struct
from pathlib import Path
from typing import Any

import pytest

from slotgate.stub import StubOptions
from tests.http.rig import CHAT, Rig, chat, gateway

pytestmark = pytest.mark.anyio

PATIENCE_SECONDS = 20.0
DECODING = StubOptions(decode=50, slots=1, ctx=1 << 20)
# One prompt takes seconds to read, in small batches.
PREFILLING = StubOptions(decode=50, prefill=100, batch=16, slots=1, ctx=1 << 20)
LONG_PROMPT = "x" * 4000


def request(body: dict[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    return b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (
        CHAT.encode(),
        len(data),
        data,
    )


async def all_free(rig: Rig) -> None:
    await rig.wait_until(
        lambda counts: (
            counts.waiting == 0 and counts.processing == 0 and counts.idle == counts.slots
        )
    )


async def seen_by_backend(rig: Rig, count: int, *, decoding: bool) -> None:
    """Wait until the backend has begun with so many requests (observed through its own books)."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            begun = [
                r
                for r in rig.stub.observed.records
                if (r.first_token_at if decoding else r.started_at) is not None
            ]
            if len(begun) >= count:
                return
            await asyncio.sleep(0)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_one_that_leaves_while_it_waits_never_reaches_a_backend(stream: bool) -> None:
    async with gateway(DECODING) as rig:
        async with rig.open("POST", CHAT, chat(10_000, stream=True)) as held:
            await held.open()
            _, writer = await asyncio.open_connection("127.0.0.1", rig.port)
            writer.write(request(chat(stream=stream)))
            await rig.wait_until(lambda counts: counts.waiting == 1)
            writer.close()
            await rig.wait_until(lambda counts: counts.waiting == 0)
        await all_free(rig)
        assert len(rig.stub.observed.records) == 1


@pytest.mark.parametrize("how", ["close", "half-close", "reset"])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
async def test_one_that_leaves_while_it_runs_stops_its_generation(
    phase: str, stream: bool, how: str
) -> None:
    options = PREFILLING if phase == "prefill" else DECODING
    body = chat(10_000, stream=stream)
    if phase == "prefill":
        body["messages"][0]["content"] = LONG_PROMPT
    async with gateway(options) as rig:
        reader, writer = await asyncio.open_connection("127.0.0.1", rig.port)
        writer.write(request(body))
        await seen_by_backend(rig, 1, decoding=phase == "decode")
        leave(writer, how)
        await rig.wait_until(lambda counts: counts.processing == 1)
        await all_free(rig)
        [record] = rig.stub.observed.records
        assert record.cancelled_at is not None
        assert record.output_tokens < 10_000
        writer.close()
        del reader


def leave(writer: asyncio.StreamWriter, how: str) -> None:
    if how == "half-close":
        writer.write_eof()
    elif how == "reset":
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
    else:
        writer.close()


async def test_a_slot_is_not_given_away_before_the_backend_has_let_go_of_it() -> None:
    body = chat(10_000, stream=True)
    body["messages"][0]["content"] = LONG_PROMPT
    async with gateway(PREFILLING) as rig, asyncio.TaskGroup() as group:
        async with rig.open("POST", CHAT, body) as leaving:
            opening = group.create_task(asyncio.wait_for(_quietly(leaving), PATIENCE_SECONDS))
            await seen_by_backend(rig, 1, decoding=False)
            waiting = group.create_task(rig.post(CHAT, chat(1)))
            await rig.wait_until(lambda counts: counts.waiting == 1)
        await opening
        assert (await waiting).status == 200
        first, second = rig.stub.observed.records
        assert first.cancelled_at is not None
        assert second.arrived_at >= first.cancelled_at
        assert rig.stub.observed.max_deferred == 0


async def _quietly(exchange: Any) -> None:
    try:
        await exchange.open()
        while await exchange.read():
            pass
    except Exception:
        pass


async def test_one_that_leaves_before_its_body_is_complete_costs_nothing() -> None:
    async with gateway() as rig:
        _, writer = await asyncio.open_connection("127.0.0.1", rig.port)
        writer.write(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{" % CHAT.encode())
        await writer.drain()
        writer.close()
        assert (await rig.post(CHAT, chat())).status == 200
        await all_free(rig)
        assert len(rig.stub.observed.records) == 1


async def test_a_client_that_does_not_read_does_not_hold_its_slot() -> None:
    async with gateway(StubOptions(decode=0, slots=1, ctx=1 << 20)) as rig:
        _, writer = await asyncio.open_connection("127.0.0.1", rig.port, limit=1)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(request(chat(3000, stream=True)))
        await seen_by_backend(rig, 1, decoding=True)
        await all_free(rig)
        assert rig.stub.observed.completed == 1
        writer.close()


async def test_random_leavers_leave_nothing_behind() -> None:
    chance = random.Random(7)
    options = StubOptions(decode=300, prefill=5000, batch=64, slots=4, ctx=1 << 16)

    async def visit(rig: Rig) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", rig.port)
        body = chat(chance.randrange(1, 40), stream=chance.random() < 0.5)
        body["messages"][0]["content"] = "x" * chance.randrange(4000)
        data = request(body)
        writer.write(data[: chance.choice((len(data), len(data), len(data), 50))])
        for _ in range(chance.randrange(60)):
            await asyncio.sleep(0)
        leave(writer, chance.choice(("close", "half-close", "reset")))
        writer.close()

    async with gateway(options, settle_bound="30s") as rig:
        await rig.post(CHAT, chat())
        gc.collect()
        before = open_files()
        for _ in range(20):
            async with asyncio.TaskGroup() as group:
                for _ in range(15):
                    group.create_task(visit(rig))
        await all_free(rig)
        assert rig.stub.observed.max_in_flight <= 4 + 4  # the stub counts a leaver until it notices
        assert rig.stub.observed.max_deferred == 0
        books = rig.app.driver.books("stub")
        assert not books.running
        assert not books.settling
        assert (await rig.post(CHAT, chat())).status == 200
        async with asyncio.timeout(PATIENCE_SECONDS):
            while open_files() > before:
                await asyncio.sleep(0)


def open_files() -> int:
    return len(os.listdir(Path("/proc/self/fd")))  # noqa: PTH208 - as cheap as can be
