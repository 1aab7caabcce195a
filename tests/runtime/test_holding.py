"""Backends that are held, withheld, removed and taken back, and tickets that are killed."""

from __future__ import annotations

import asyncio

import pytest

from slotgate.core import Ending, Limits, Scheduler
from slotgate.core.deployment import DeploymentReport, State
from slotgate.core.policies import Policies
from slotgate.errors import ExchangeClosedError
from slotgate.runtime.clock import LoopClock
from slotgate.runtime.driver import Driver, Verb
from slotgate.runtime.lease import KILLED
from slotgate.testing import FakeDice
from tests.runtime.recording import RecordingScheduler
from tests.runtime.test_driver import make_driver, ticket

pytestmark = pytest.mark.anyio

READY = DeploymentReport(id="d", model="", slots=2, state=State.READY)


async def test_every_verb_is_an_event_of_the_scheduler() -> None:
    driver = make_driver()
    states = []
    for verb in Verb:
        driver.hold("d", verb)
        states.append(driver.states()["d"])
    assert states == ["paused", "ready", "draining", "down", "ready"]
    with pytest.raises(KeyError):
        driver.hold("nowhere", Verb.PAUSE)
    driver.close()


async def test_what_is_withheld_is_waited_for_whatever_it_says() -> None:
    driver = make_driver()
    driver.withhold(DeploymentReport(id="d", model="", slots=1, state=State.STARTING))
    driver.report(READY)
    async with driver.lease(ticket("a")) as lease:
        assert lease.granted is None
        driver.release("d")
        assert lease.granted is not None
        driver.release("d")
    assert driver.counts().slots == 2
    driver.close()


async def test_what_turned_out_to_be_down_is_down_once_it_is_released() -> None:
    driver = make_driver()
    driver.withhold(DeploymentReport(id="d", model="", slots=1, state=State.STARTING))
    driver.report(DeploymentReport(id="d", model="", slots=1, state=State.DOWN))
    assert driver.states() == {"d": "starting"}
    driver.release("d")
    assert driver.states() == {"d": "down"}
    driver.close()


async def test_what_was_removed_says_nothing_any_more_until_it_is_taken_back() -> None:
    driver = make_driver()
    driver.remove("d")
    driver.report(READY)
    assert driver.states() == {}
    driver.withhold(READY)
    assert driver.states() == {"d": "starting"}
    driver.remove("d")
    driver.forget("d")
    driver.report(READY)  # another of that name
    assert driver.states() == {"d": "ready"}
    driver.close()


async def test_waiting_for_an_empty_backend_ends_when_its_last_slot_is_known_free() -> None:
    driver = make_driver()
    async with asyncio.TaskGroup() as group, driver.lease(ticket("a")) as lease:
        await lease.wait()
        empty = group.create_task(driver.wait_empty("d"))
        lease.finish(Ending.FAILED, slot_free=False)
        await asyncio.sleep(0)
        assert not empty.done()
        [settling] = driver.books("d").settling
        driver.settled("d", settling)
        await empty
    await driver.wait_empty("d")
    assert driver.change_hooks == []
    driver.close()


async def test_it_ends_too_when_the_scheduler_takes_the_slot_for_free_by_itself() -> None:
    driver = make_driver()
    async with asyncio.TaskGroup() as group, driver.lease(ticket("a")) as lease:
        await lease.wait()
        lease.finish(Ending.FAILED, slot_free=False)
        empty = group.create_task(driver.wait_empty("d"))
        await asyncio.sleep(0)
        [settling] = driver.books("d").settling
        driver._scheduler.settled(settling)
        driver.forget_settled("d")
        await empty
    driver.close()


async def test_a_killed_ticket_leaves_as_killed_and_cannot_be_killed_twice() -> None:
    loop = asyncio.get_running_loop()
    scheduler = RecordingScheduler(clock=LoopClock(loop), dice=FakeDice())
    scheduler.told = []
    driver = Driver(scheduler, loop)
    driver.report(READY)
    async with driver.lease(ticket("a")) as lease:
        await lease.wait()
        assert driver.kill("a")
        assert lease.aborted == KILLED
        assert not driver.kill("a")
        with pytest.raises(ExchangeClosedError):
            await lease.wait()
    assert not driver.kill("a")
    assert scheduler.told == [("leave", Ending.KILLED, False)]
    driver.close()


async def test_other_numbers_are_carried_out_at_once() -> None:
    loop = asyncio.get_running_loop()
    driver = Driver(Scheduler(clock=LoopClock(loop), dice=FakeDice()), loop)
    driver.report(READY)
    driver.hold("d", Verb.PAUSE)
    driver.reconfigure(Limits(max_waiting=0), Policies())
    async with driver.lease(ticket("a")) as lease:
        with pytest.raises(Exception, match="queue_full"):
            await lease.wait()
    driver.close()
