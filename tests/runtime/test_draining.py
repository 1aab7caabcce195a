"""A gateway that drains: it serves whom it can, and keeps nobody for a backend that is gone."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from slotgate.backends.managed import EngineOptions, ManagedServer
from slotgate.core.deployment import State
from slotgate.runtime.engines import Supervisor
from slotgate.runtime.lifecycle import Lifecycle
from slotgate.stub import StubOptions
from tests.http.rig import CHAT, Answer, Rig, chat, gateway

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.anyio

ONE_SLOT = StubOptions(decode=50, slots=1, ctx=1 << 16)
WITHIN_SECONDS = 20.0


class Waiters:
    """Requests that wait, and what they were answered in the end."""

    def __init__(self, tasks: list[asyncio.Task[Answer]]) -> None:
        self._tasks = tasks

    @property
    def outcomes(self) -> list[tuple[int, str]]:
        answers = [task.result() for task in self._tasks]
        return [(a.status, "" if a.status == 200 else a.code) for a in answers]


@contextlib.asynccontextmanager
async def waiting(rig: Rig, count: int) -> AsyncIterator[Waiters]:
    """Have so many wait for a backend that has just died; who is answered, is after the block."""
    async with asyncio.TaskGroup() as group:
        async with rig.open("POST", CHAT, chat(10_000, stream=True)) as held:
            await held.open()
            tasks = [group.create_task(rig.post(CHAT, chat(2))) for _ in range(count)]
            await rig.wait_until(lambda counts: counts.waiting == count)
            await rig.stub.stop()
            while await held.read():
                pass
        yield Waiters(tasks)


def drain(rig: Rig) -> Lifecycle:
    return Lifecycle(rig.app.driver, drain_timeout_seconds=600)


async def test_a_drain_with_its_only_backend_dead_ends_at_once() -> None:
    async with gateway(ONE_SLOT, classes__standard__budget=600.0) as rig:
        async with waiting(rig, 3) as waiters:
            await rig.app.fleet.probes["stub"].look()
            assert rig.counts.waiting == 3
            async with asyncio.timeout(WITHIN_SECONDS):
                await drain(rig).drain()
        assert waiters.outcomes == [(503, "no_backend")] * 3


async def test_a_backend_that_dies_in_a_drain_is_not_waited_for() -> None:
    async with gateway(ONE_SLOT, classes__standard__budget=600.0) as rig:
        async with waiting(rig, 3) as waiters:
            # Nobody has noticed yet, or only the first that was sent there.
            async with asyncio.timeout(WITHIN_SECONDS):
                await drain(rig).drain()
        assert waiters.outcomes == [(503, "no_backend")] * 3


async def test_who_waits_for_an_engine_of_ours_is_served_though_the_gateway_drains(
    tmp_path: Path,
) -> None:
    async with gateway(ONE_SLOT) as rig:
        probe = rig.app.fleet.probes["stub"]
        # Never started: the stub stands for its process.
        options = EngineOptions(model=tmp_path / "m.gguf", alias="m", parallel=1, ctx_size=512)
        Supervisor(ManagedServer(options), probe, rig.app.logger)
        async with waiting(rig, 2) as waiters:
            # The supervisor has not noticed yet that the process has gone.
            await probe.look()
            assert probe.state is State.STARTING
            rig.app.driver.begin_draining()
            assert rig.counts.waiting == 2
            await rig.stub.start()
            probe.poke()
            async with asyncio.timeout(WITHIN_SECONDS):
                await rig.app.driver.wait_idle()
        assert waiters.outcomes == [(200, "")] * 2
