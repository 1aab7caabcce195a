"""What a probe tells the scheduler of a pool that slots share: of the stub, and of llama.cpp."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from slotgate.backends.managed import EngineOptions, ManagedServer
from slotgate.runtime.kv_pool import Sharing
from slotgate.stub import StubOptions
from tests.capacity.tiny_models import write_model
from tests.http.rig import gateway, gateway_at

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path
    from typing import Any

    from slotgate.runtime.probes import Probe
    from tests.http.rig import Rig

pytestmark = pytest.mark.anyio

FOUR = StubOptions(decode=0, slots=4, ctx=2048)


@pytest.mark.parametrize(
    ("slots", "backend", "pool"),
    [
        (4, {}, 2048),
        (4, {"kv_pool": 5000}, 5000),
        (4, {"kv_pool": 4 * 2048}, None),
        (4, {"slots": 1}, None),
        (4, {"slots": 2, "kv_pool": 3000}, 3000),
        (3, {}, None),
        (3, {"kv_pool": 3000}, 3000),
    ],
)
async def test_the_scheduler_is_told_of_a_pool_that_slots_share_or_may_share(
    slots: int, backend: dict[str, Any], pool: int | None
) -> None:
    async with gateway(StubOptions(decode=0, slots=slots, ctx=2048), backend=backend) as rig:
        assert rig.app.fleet.kv_pool_tokens("") == pool


async def test_a_request_that_was_killed_tells_that_slots_share() -> None:
    async with gateway(StubOptions(decode=0, slots=2, ctx=2048)) as rig:
        probe = rig.app.fleet.probes["stub"]
        assert rig.app.fleet.kv_pool_tokens("") is None
        probe.overflowed()
        assert rig.app.fleet.kv_pool_tokens("") == 2048


async def test_the_pool_of_a_model_is_the_smallest_of_its_backends() -> None:
    async with gateway(FOUR, backend={"kv_pool": 3000}) as rig:
        url = rig.stub.url
        backends = [
            {"name": "left", "url": url, "kv_pool": 8192},
            {"name": "right", "url": url},
            {"name": "other", "url": url, "alias": "other", "kv_pool": 100},
        ]
        async with gateway_at(url, backends=backends) as both:
            assert both.app.fleet.kv_pool_tokens("") == 2048
            assert both.app.fleet.kv_pool_tokens("other") == 100
            assert both.app.fleet.kv_pool_tokens("unheard-of") is None


# On a real llama.cpp.


@asynccontextmanager
async def real(directory: Path, **options: Any) -> AsyncIterator[tuple[Rig, Probe]]:
    model = write_model("llama", directory)
    engine = ManagedServer(EngineOptions(model=model, alias="m", threads=1, batch=64, **options))
    await engine.start()
    try:
        async with gateway_at(engine.url) as rig:
            yield rig, rig.app.fleet.probes["stub"]
    finally:
        await engine.stop(5)


async def look_anew(probe: Probe) -> None:
    """Have the slots asked for once more, as soon as that may be."""
    before = probe.slots
    async with asyncio.timeout(10):
        while probe.slots is before:
            await probe.wait_fresh_slots(5)
            await asyncio.sleep(0)


def story(number: int, tokens: int) -> dict[str, Any]:
    """A prompt unlike the others, so that it takes the slot that idles longest."""
    return {"prompt": f"{number} " * 200, "n_predict": tokens, "ignore_eos": True}


async def run_in_turns(rig: Rig, probe: Probe) -> None:
    """While one request runs on, others come and go; the slots are looked at after each."""
    endless = {**story(9, 100_000), "stream": True}
    async with rig.open("POST", "/completion", endless) as held:
        await held.open()
        for number in range(2):
            assert (await rig.post("/completion", story(number, 20))).status == 200
            await look_anew(probe)


@pytest.mark.llama
@pytest.mark.process
async def test_a_real_server_shows_that_its_slots_share(tmp_path: Path) -> None:
    options = {"parallel": 3, "ctx_size": 32768, "kv_unified": True}
    async with real(tmp_path, **options) as (rig, probe):
        assert probe.kv_pool_tokens is None
        await run_in_turns(rig, probe)
        assert probe.kv_pool_tokens == 32768
        assert probe.sharing is Sharing.EMPTIED


@pytest.mark.llama
@pytest.mark.process
async def test_a_real_server_with_separate_slots_shows_nothing_of_the_kind(tmp_path: Path) -> None:
    async with real(tmp_path, parallel=3, ctx_size=3 * 16384) as (rig, probe):
        await run_in_turns(rig, probe)
        assert probe.kv_pool_tokens is None


@pytest.mark.llama
@pytest.mark.process
async def test_what_a_real_server_holds_at_once_is_learned(tmp_path: Path) -> None:
    """Four separate slots: each keeps what it held last, which one pool of 1024 could not."""
    async with real(tmp_path, parallel=4, ctx_size=4 * 1024) as (rig, probe):
        seen = [probe.kv_pool_tokens]
        for number in range(4):
            assert (await rig.post("/completion", story(number, 500))).status == 200
            await look_anew(probe)
            seen.append(probe.kv_pool_tokens)
        assert seen == [1024, 1024, 1024 + 3 * 256, 1024 + 6 * 256, 1024 + 10 * 256]
