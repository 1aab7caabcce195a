"""A real llama.cpp that sleeps when it is idle: the gateway lets it, and wakes it by work alone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from slotgate.backends.managed import EngineOptions, ManagedServer
from tests.http.rig import CHAT, chat, gateway_at

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.anyio, pytest.mark.llama, pytest.mark.process]


async def test_a_server_sleeps_behind_the_gateway_until_there_is_work(small_model: Path) -> None:
    engine = ManagedServer(
        EngineOptions(
            model=small_model,
            alias="m",
            parallel=2,
            ctx_size=1024,
            threads=1,
            sleep_idle_seconds=2,
        )
    )
    await engine.start()
    try:
        async with gateway_at(engine.url) as rig:
            assert (await rig.post(CHAT, chat(2))).status == 200
            probe = rig.app.fleet.probes["stub"]
            async with asyncio.timeout(30):
                while not (await rig.app.fleet.backends["stub"].props()).is_sleeping:
                    await probe.look()
                    await asyncio.sleep(0)
            # What monitors ask does not wake it, and is answered.
            for path in ("/health", "/ready", "/slots", "/metrics", "/queue", "/props"):
                assert (await rig.get(path)).status == 200
            assert (await rig.app.fleet.backends["stub"].props()).is_sleeping
            assert rig.counts.idle == 2
            assert (await rig.post(CHAT, chat(2))).status == 200
            assert not (await rig.app.fleet.backends["stub"].props()).is_sleeping
    finally:
        await engine.stop(5)
