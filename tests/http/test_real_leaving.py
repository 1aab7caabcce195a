"""Leavers on a real llama.cpp: its slots are idle again, and it has nothing deferred."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from slotgate.backends.managed import EngineOptions, ManagedServer
from slotgate.net.address import Address
from slotgate.net.client import Client
from slotgate.wire.llama_cpp import requests_processing
from tests.http.rig import CHAT, Rig, chat, gateway_at
from tests.http.test_leaving import all_free, leave, open_files, request

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.anyio, pytest.mark.llama, pytest.mark.process]

LEAVERS = 60


async def visit(rig: Rig, chance: random.Random) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", rig.port)
    body = chat(400, stream=chance.random() < 0.5, ignore_eos=True)
    body["messages"][0]["content"] = "Tell me of everything. " * chance.choice((1, 1, 1, 30))
    writer.write(request(body))
    # Some leave before anything, some after so many bytes or changes of the scheduler's books.
    for _ in range(chance.randrange(3)):
        loop = asyncio.get_running_loop()
        changed: asyncio.Future[None] = loop.create_future()

        def note(changed: asyncio.Future[None] = changed) -> None:
            if not changed.done():
                changed.set_result(None)

        rig.app.driver.change_hooks.append(note)
        await changed
        rig.app.driver.change_hooks.remove(note)
    leave(writer, chance.choice(("close", "half-close", "reset")))
    writer.close()


async def test_random_leavers_leave_a_real_server_idle(small_model: Path) -> None:
    chance = random.Random(11)
    engine = ManagedServer(
        EngineOptions(model=small_model, alias="m", parallel=2, ctx_size=4096, threads=1, batch=64)
    )
    await engine.start()
    try:
        async with gateway_at(engine.url) as rig:
            assert (await rig.post(CHAT, chat(2))).status == 200
            before = open_files()
            async with asyncio.timeout(90):
                for _ in range(LEAVERS // 6):
                    async with asyncio.TaskGroup() as group:
                        keeper = group.create_task(rig.post(CHAT, chat(4)))
                        for _ in range(6):
                            group.create_task(visit(rig, chance))
                    assert keeper.result().status == 200
                await all_free(rig)
                while open_files() > before:
                    await asyncio.sleep(0)
            assert (await rig.post(CHAT, chat(2))).status == 200
            direct = Client(Address.parse(engine.url))
            with direct.exchange("GET", "/metrics") as exchange:
                await exchange.open()
                metrics = await exchange.read_all(1 << 20)
            direct.close()
            assert requests_processing(metrics) == 0
            assert b"llamacpp:requests_deferred 0" in metrics
    finally:
        await engine.stop(5)
