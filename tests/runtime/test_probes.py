"""What a probe learns of a backend, and what it corrects in the books."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest

from slotgate.core.deployment import State
from slotgate.core.health import Signal
from slotgate.errors import BackendTimeoutError
from slotgate.net.address import Address
from slotgate.net.client import Client
from slotgate.runtime.probes import RESTARTING
from slotgate.stub import StubOptions
from tests.http.rig import CHAT, Rig, chat, gateway

pytestmark = pytest.mark.anyio

LONG = StubOptions(decode=50, slots=2, ctx=1 << 18)


async def all_free(rig: Rig) -> None:
    await rig.wait_until(lambda counts: counts.idle == counts.slots and counts.processing == 0)


async def test_slots_and_context_are_believed_and_a_configured_number_only_lowers_them() -> None:
    stub = StubOptions(decode=0, slots=4, ctx=512)
    async with gateway(stub) as rig:
        assert rig.counts.slots == 4
        assert rig.app.fleet.largest_context("") == 512
    async with gateway(stub, backend={"slots": 2}) as rig:
        assert rig.counts.slots == 2
    async with gateway(stub, backend={"slots": 99}) as rig:
        assert rig.counts.slots == 4


async def test_work_that_is_not_ours_takes_its_slots_out_of_the_count() -> None:
    async with gateway(LONG) as rig:
        direct = Client(Address.parse(rig.stub.url))
        body = b'{"messages":[{"role":"user","content":"x"}],"max_tokens":9999,"stream":true}'
        stranger = direct.exchange("POST", CHAT, [], body, single_use=True)
        await stranger.open()
        async with rig.open("POST", CHAT, chat(9999, stream=True)) as ours:
            await ours.open()
            await rig.wait_until(lambda counts: counts.idle == 0)
            assert rig.app.fleet.probes["stub"].outside == 1
            stranger.close()
            await rig.wait_until(lambda counts: counts.idle == 1)
        direct.close()
        await all_free(rig)


async def test_requests_that_end_are_never_taken_for_somebody_elses() -> None:
    async with gateway(StubOptions(decode=400, slots=2, ctx=1 << 16)) as rig:
        probe = rig.app.fleet.probes["stub"]
        for _ in range(3):
            async with asyncio.TaskGroup() as group:
                for _ in range(6):
                    group.create_task(rig.post(CHAT, chat(20)))
                group.create_task(probe.wait_fresh_slots(5))
            await probe.look()
            assert probe.outside == 0
            assert rig.counts.idle == 2


@pytest.mark.parametrize("has_metrics", [True, False], ids=["metrics", "neither"])
async def test_a_closed_request_settles_without_slots_too(has_metrics: bool) -> None:
    stub = StubOptions(decode=50, slots=1, ctx=1 << 18, has_slots=False, has_metrics=has_metrics)
    async with gateway(stub) as rig:
        async with rig.open("POST", CHAT, chat(9999, stream=True)) as leaving:
            await leaving.open()
        await rig.wait_until(lambda counts: counts.processing == 1)
        await all_free(rig)
        assert not rig.app.driver.books("stub").settling


async def test_a_server_that_is_restarted_with_other_slots_is_believed_again() -> None:
    async with gateway(StubOptions(decode=0, slots=1)) as rig:
        probe = rig.app.fleet.probes["stub"]
        rig.stub.set_fault("loading")
        await probe.look()
        assert str(probe.state) == "loading"
        assert (await rig.get("/ready")).json()["backends"]["stub"]["state"] == "loading"
        rig.stub.clear_faults()
        await probe.look()
        assert str(probe.state) == "ready"


async def test_the_backends_own_metrics_stand_on_our_page_with_its_name() -> None:
    async with gateway(StubOptions(decode=0)) as rig:
        await rig.post(CHAT, chat(5))
        page = (await rig.get("/metrics")).body.decode()
        assert 'llamacpp:requests_deferred{backend="stub"} 0' in page
        assert 'slotgate_output_tokens_total{backend="stub"} 5.0' in page
        assert 'slotgate_slots{backend="stub",state="idle"} 4.0' in page
        assert 'slotgate_requests_total{outcome="served",route="/v1/chat/completions"} 1.0' in page


async def test_a_slot_that_works_on_for_a_client_that_left_is_nobodys_until_it_is_idle() -> None:
    stub = StubOptions(decode=100, slots=2, ctx=1 << 18, output_tokens=None)
    async with gateway(stub, settle_bound=2.0) as rig:
        rig.stub.set_fault("zombie")
        probe = rig.app.fleet.probes["stub"]
        async with rig.open("POST", CHAT, chat(500, stream=True)) as leaving:
            await leaving.open()
        await rig.wait_until(lambda counts: counts.idle == 1)
        while not probe.zombies.slots:
            assert rig.counts.idle == 1  # at no moment is it handed out
            await asyncio.sleep(0)
        assert (probe.outside, rig.counts.idle) == (1, 1)
        assert not rig.app.driver.books("stub").settling
        await all_free(rig)
        assert probe.zombies.slots == 0


async def test_a_quarantined_backend_is_not_asked_for_what_needs_no_slot_either() -> None:
    async with gateway(StubOptions(decode=0)) as rig:
        probe, fleet = rig.app.fleet.probes["stub"], rig.app.fleet
        assert fleet.any_backend(None) is probe.backend
        probe.quarantine(State.DOWN, "a test")
        assert fleet.any_backend(None) is None
        probe.release()
        assert fleet.any_backend(None) is probe.backend


async def test_slots_are_asked_only_while_there_is_work_and_never_too_often() -> None:
    async with gateway(LONG) as rig:
        probe = rig.app.fleet.probes["stub"]
        seen: list[float] = []
        ask = rig.app.fleet.backends["stub"].slots
        loop = asyncio.get_running_loop()

        async def counted() -> object:
            seen.append(loop.time())
            return await ask()

        rig.app.fleet.backends["stub"].slots = counted  # type: ignore[method-assign,assignment]
        await probe.look()
        assert seen == []
        async with rig.open("POST", CHAT, chat(9999, stream=True)) as held:
            await held.open()
            for _ in range(20):
                await probe.look()
            assert len(seen) <= 1


async def test_a_backend_that_is_gone_for_a_moment_keeps_its_slots_in_the_books() -> None:
    stub = StubOptions(decode=50, slots=2, ctx=1 << 18, has_slots=False)
    async with gateway(stub) as rig, asyncio.TaskGroup() as group:
        probe = rig.app.fleet.probes["stub"]
        async with rig.open("POST", CHAT, chat(9999, stream=True)) as held:
            await held.open()
            wide = group.create_task(rig.post(CHAT, chat(2, n=2)))
            await rig.wait_until(lambda counts: counts.waiting == 1)
            await rig.stub.stop()
            while await held.read():
                pass
        await probe.look()
        assert rig.counts.slots == 2
        await rig.stub.start()
        probe.poke()
        assert (await wide).status == 200


async def test_one_whose_slots_do_not_answer_is_down_until_they_do_whatever_its_health_says() -> (
    None
):
    async with gateway(replace(LONG, has_metrics=False)) as rig:
        probe, backend = rig.app.fleet.probes["stub"], rig.app.fleet.backends["stub"]
        ask, asked = backend.slots, []
        loop = asyncio.get_running_loop()

        async def hanging() -> object:
            asked.append(loop.time())
            raise BackendTimeoutError("/slots did not answer")

        async with rig.open("POST", CHAT, chat(9999, stream=True)) as held:
            await held.open()
            # Reading would be a sign of life.
            backend.slots = hanging  # type: ignore[method-assign,assignment]
            rig.stub.set_fault("wedge:0")
            async with asyncio.timeout(20):
                while probe.state is not State.DOWN:
                    await probe.look()
        assert (await rig.get("/ready")).status == 503
        looks = len(asked)
        async with asyncio.timeout(20):
            while len(asked) == looks:
                await probe.look()
        assert probe.state is State.DOWN, "its /health is not enough"
        backend.slots = ask  # type: ignore[method-assign]
        rig.stub.clear_faults()
        async with asyncio.timeout(20):
            while str(probe.state) != "ready":
                await probe.look()
        gaps = [later - earlier for earlier, later in pairwise(asked)]
        assert min(gaps) > 1.1


async def test_an_engine_of_ours_that_is_gone_is_starting_not_down() -> None:
    async with gateway(StubOptions(decode=0)) as rig:
        probe = rig.app.fleet.probes["stub"]
        probe.is_supervised = True
        probe.note(Signal.UNREACHABLE, "nobody listens")
        assert (probe.state, probe.why) == (State.STARTING, RESTARTING)
        probe.is_restarting = True
        for signal in (Signal.SILENT, Signal.UNWELL):
            probe.note(signal, "it is not there yet")
            assert str(probe.state) == "starting"


async def test_a_full_context_is_nobodys_fault_but_of_one_that_ran_there_alone() -> None:
    async with gateway(LONG) as rig:
        probe = rig.app.fleet.probes["stub"]
        async with rig.open("POST", CHAT, chat(9999, stream=True)) as one:
            await one.open()
            assert not probe.overflowed()
    async with gateway(LONG) as rig:
        probe = rig.app.fleet.probes["stub"]
        async with rig.open("POST", CHAT, chat(9999, stream=True)) as one:
            async with rig.open("POST", CHAT, chat(9999, stream=True)) as two:
                await one.open()
                await two.open()
                assert probe.overflowed()
            running = rig.app.driver.books("stub").running
            async with asyncio.timeout(20):
                while len(running) > 1:
                    await asyncio.sleep(0)
            assert probe.overflowed(), "they died together, whoever is told first"
