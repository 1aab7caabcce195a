"""Leases under every kind of end: what was granted always comes back."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest

from slotgate.core import Ending, Limits, Reason, Scheduler, Ticket
from slotgate.core.deployment import DeploymentReport, State
from slotgate.errors import ExchangeClosedError
from slotgate.runtime.clock import LoopClock
from slotgate.runtime.driver import Driver
from slotgate.runtime.lease import RefusedError
from slotgate.testing import FakeDice

pytestmark = pytest.mark.anyio


def make_driver(slots: int = 2, max_waiting: int = 512) -> Driver:
    loop = asyncio.get_running_loop()
    scheduler = Scheduler(
        clock=LoopClock(loop), dice=FakeDice(), limits=Limits(max_waiting=max_waiting)
    )
    driver = Driver(scheduler, loop)
    driver.report(DeploymentReport(id="d", model="", slots=slots, state=State.READY))
    return driver


def ticket(name: object, *, budget: float = 60.0) -> Ticket:
    now = asyncio.get_running_loop().time()
    return Ticket(id=str(name), arrival=now, deadline=now + budget)


async def test_a_lease_is_granted_at_once_when_a_slot_is_free() -> None:
    driver = make_driver()
    async with driver.lease(ticket("a")) as lease:
        assert (await lease.wait()).deployment == "d"
        assert driver.counts().processing == 1
        lease.finish(Ending.SERVED, slot_free=True)
        assert driver.counts().processing == 0
    driver.close()


async def test_the_next_waiter_is_granted_in_the_turn_in_which_a_slot_comes_free() -> None:
    driver = make_driver(slots=1)
    async with driver.lease(ticket("a")) as first, driver.lease(ticket("b")) as second:
        await first.wait()
        assert second.granted is None
        first.finish(Ending.SERVED, slot_free=True)
        assert second.granted is not None
    driver.close()


async def test_a_refusal_is_raised_with_its_decision() -> None:
    driver = make_driver(slots=1, max_waiting=0)
    async with driver.lease(ticket("a")), driver.lease(ticket("b")) as second:
        with pytest.raises(RefusedError) as refused:
            await second.wait()
        assert refused.value.decision.reason is Reason.QUEUE_FULL
    driver.close()


async def test_a_waiter_expires_by_the_drivers_own_timer() -> None:
    driver = make_driver(slots=1)
    async with driver.lease(ticket("a")), driver.lease(ticket("b", budget=0.02)) as second:
        with pytest.raises(RefusedError) as refused:
            await second.wait()
        assert refused.value.decision.reason is Reason.QUEUE_TIMEOUT
    driver.close()


async def test_an_abort_wakes_a_waiter_and_closes_what_runs() -> None:
    driver = make_driver(slots=1)
    closed: list[str] = []
    async with driver.lease(ticket("a")) as first, driver.lease(ticket("b")) as second:
        await first.wait()
        first.on_abort(lambda: closed.append("a"))
        driver.abort_all("stop")
        assert closed == ["a"]
        for lease in (first, second):
            with pytest.raises(ExchangeClosedError, match="stop"):
                await lease.wait()
    assert driver.counts().waiting == 0
    driver.close()


async def test_a_lease_stopped_before_it_has_an_exchange_closes_it_when_there_is_one() -> None:
    driver = make_driver()
    closed: list[str] = []
    async with driver.lease(ticket("a")) as lease:
        lease.stop("kv_pressure")
        await lease.wait()
        lease.on_abort(lambda: closed.append("a"))
        assert closed == ["a"]
        lease.requeue(slot_free=True)
        await lease.wait()
        lease.on_abort(lambda: closed.append("b"))
        assert closed == ["a"]
        lease.stop("kv_pressure")
        assert closed == ["a", "b"]
    driver.close()


async def test_a_client_that_leaves_after_its_request_was_stopped_is_not_forgotten() -> None:
    driver = make_driver()
    async with driver.lease(ticket("a")) as lease:
        await lease.wait()
        lease.stop("kv_pressure")
        lease.abort("left")
        lease.requeue(slot_free=True)
        with pytest.raises(ExchangeClosedError, match="left"):
            await lease.wait()
    assert driver.counts().waiting == 0
    assert not driver.books("d").running
    driver.close()


async def test_a_lease_that_was_closed_early_settles_until_it_is_known_free() -> None:
    driver = make_driver(slots=1)
    pokes: list[str] = []
    driver.settling_hooks.append(pokes.append)
    async with driver.lease(ticket("a")) as lease:
        granted = await lease.wait()
    assert pokes == ["d"]
    assert driver.counts().idle == 0
    assert list(driver.books("d").settling) == [granted.lease]
    driver.settled("d", granted.lease)
    assert driver.counts().idle == 1
    assert driver.books("d").width == 0
    driver.close()


async def test_a_requeued_request_runs_again_before_those_that_came_later() -> None:
    driver = make_driver(slots=1)
    order: list[str] = []

    async def later() -> None:
        async with driver.lease(ticket("later")) as lease:
            await lease.wait()
            order.append("later")
            lease.finish(Ending.SERVED, slot_free=True)

    async with asyncio.TaskGroup() as group:
        async with driver.lease(ticket("first")) as lease:
            first = await lease.wait()
            group.create_task(later())
            await asyncio.sleep(0)
            lease.requeue(slot_free=True)
            again = await lease.wait()
            order.append("first")
            assert again.lease != first.lease
            lease.finish(Ending.SERVED, slot_free=True)
    assert order == ["first", "later"]
    driver.close()


async def test_a_lease_that_has_left_cannot_go_back_to_the_queue() -> None:
    driver = make_driver()
    async with driver.lease(ticket("a")) as lease:
        await lease.wait()
        lease.finish(Ending.SERVED, slot_free=True)
        assert lease.has_left
        with pytest.raises(ValueError, match="runs"):
            lease.requeue(slot_free=True)
    driver.close()


async def test_waiting_for_idle_ends_when_the_last_request_has_left() -> None:
    driver = make_driver()
    async with asyncio.TaskGroup() as group:
        async with driver.lease(ticket("a")):
            idle = group.create_task(driver.wait_idle())
            await asyncio.sleep(0)
            assert not idle.done()
    assert idle.done()
    driver.close()


@pytest.mark.parametrize("seed", range(40))
async def test_random_single_and_double_cancellation_leaks_nothing(seed: int) -> None:
    chance = random.Random(seed)
    driver = make_driver(slots=3, max_waiting=20)
    running = 0

    def settle() -> None:
        for lease in list(driver.books("d").settling):
            driver.settled("d", lease)

    # As a probe does, some time after the close.
    driver.settling_hooks.append(lambda _name: asyncio.get_running_loop().call_soon(settle))  # type: ignore[arg-type]

    async def client(number: int) -> None:
        nonlocal running
        async with driver.lease(ticket(number, budget=chance.choice((0.001, 60.0)))) as lease:
            with contextlib.suppress(RefusedError, ExchangeClosedError):
                await lease.wait()
                running += 1
                assert running <= 3
                try:
                    for _ in range(chance.randrange(5)):
                        await asyncio.sleep(0)
                finally:
                    running -= 1
                if chance.random() < 0.2 and lease.aborted is None:
                    lease.abort("left")
                lease.finish(chance.choice(list(Ending)), slot_free=True)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(client(number)) for number in range(60)]
        for _ in range(30):
            victim = chance.choice(tasks)
            victim.cancel()
            if chance.random() < 0.5:
                victim.cancel()
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
    settle()
    counts = driver.counts()
    assert (counts.waiting, counts.processing, counts.idle) == (0, 0, 3)
    assert not driver.books("d").running
    driver.close()
