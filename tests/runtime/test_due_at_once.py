"""Deadlines that are due at once, on uvloop, which then makes no timer that could be asked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from slotgate.core import Ending, Limits, Scheduler, Ticket
from slotgate.core.deployment import DeploymentReport, State
from slotgate.net.pool import Pool
from slotgate.runtime.clock import LoopClock
from slotgate.runtime.driver import Driver
from slotgate.testing import FakeDice

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

uvloop = pytest.importorskip("uvloop", reason="not on Windows")

TOO_SOON = 0.0002  # less than uvloop counts
SLOT = DeploymentReport(id="d", model="", slots=1, state=State.READY)


def run(main: Callable[[], Coroutine[object, object, None]]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def test_others_come_and_go_while_a_waiter_is_about_to_expire() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        scheduler = Scheduler(clock=LoopClock(loop), dice=FakeDice(), limits=Limits())
        driver = Driver(scheduler, loop)
        driver.report(SLOT)

        def ticket(name: str, budget: float) -> Ticket:
            now = loop.time()
            return Ticket(id=name, arrival=now, deadline=now + budget)

        async with driver.lease(ticket("runs", 60.0)) as runs:
            await runs.wait()
            async with driver.lease(ticket("late", TOO_SOON)):
                async with driver.lease(ticket("next", 60.0)) as other:
                    runs.finish(Ending.SERVED, slot_free=True)
                    assert not other.has_left
        driver.close()

    run(main)


class Connection:
    """What a pool asks of one."""

    home: object = None

    def let_go(self) -> bool:
        return True

    def abort(self) -> None:
        return


def test_a_connection_is_put_back_while_another_is_about_to_expire() -> None:
    async def main() -> None:
        loop, pool = asyncio.get_running_loop(), Pool()
        pool.put(Connection(), TOO_SOON, loop=loop)  # type: ignore[arg-type]
        pool.put(Connection(), 5.0, loop=loop)  # type: ignore[arg-type]
        assert len(pool) == 2
        pool.close()

    run(main)
