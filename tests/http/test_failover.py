"""What a backend fails before the first byte runs elsewhere; nothing else is repeated."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from slotgate.core.deployment import State
from slotgate.core.health import Signal
from slotgate.core.retry_budget import PER_SECOND, RESERVE_SECONDS
from slotgate.stub import StubOptions, StubServer
from tests.http.rig import CHAT, Answer, Rig, chat, fleet, gateway_at
from tests.http.test_odd_backends import FRAME, backend, plain, stream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio

# More slots make the bad one the first choice, by this placement.
BY_SLOTS: dict[str, Any] = {"scheduling__placement": "headroom"}
WELL = StubOptions(decode=0, slots=2)
BAD = StubOptions(decode=0, slots=4)
# A probe that never looks again by itself within a test.
LONG: dict[str, Any] = {**BY_SLOTS, "probe_interval": "60s", "settle_bound": "1s"}


def error(message: str, status: bytes = b"500 Internal Server Error") -> bytes:
    return plain(json.dumps(_error(message)).encode(), status)


def _error(message: str) -> dict[str, Any]:
    return {"error": {"code": 500, "message": message, "type": "server_error"}}


def event(message: str) -> bytes:
    return b"data: " + json.dumps(_error(message)).encode() + b"\n\n"


@asynccontextmanager
async def beside(answer: bytes) -> AsyncIterator[Rig]:
    """A gateway in front of `bad`, which gives every request this answer, and of a stub, `well`."""
    props = plain(b'{"default_generation_settings":{"n_ctx":4096},"total_slots":4}')
    async with backend(answer, props) as url, StubServer(WELL) as stub:
        backends = [{"name": "bad", "url": url}, {"name": "well", "url": stub.url}]
        async with gateway_at(url, backends=backends, **LONG) as rig:
            yield rig


def state_of(rig: Rig, name: str = "bad") -> State:
    return rig.app.fleet.probes[name].state


async def served_by(rig: Rig, *, wants_stream: bool) -> Answer:
    return await rig.post(CHAT, chat(stream=wants_stream))


STREAMS = pytest.mark.parametrize("wants_stream", [True, False], ids=["stream", "whole"])
ELSEWHERE = {
    "compute": error("Compute error."),
    "batch": error("Invalid input batch."),
    "proxy": plain(b"proxy error: Could not establish connection", b"500 Internal Server Error"),
    "unknown": error("something new"),
    "502": plain(b"<html>", b"502 Bad Gateway"),
    "503": plain(b"<html>", b"503 Service Unavailable"),
    "504": plain(b"<html>", b"504 Gateway Timeout"),
    "429": plain(b"{}", b"429 Too Many Requests"),
    "409": plain(b"{}", b"409 Conflict"),
    "first event": stream(event("Compute error.")),
    "first line": stream(b"proxy error: Failed to read connection\n"),
    "cut short": stream(FRAME)[:-20],
    "no answer": b"",
    "no HTTP": b"SSH-2.0-OpenSSH\r\n\r\n",
    "no end": stream(),
}


# As a stream, what is cut short has begun: its client has a byte.
CASES = [(n, s) for n in ELSEWHERE for s in (True, False) if (n, s) != ("cut short", True)]


@pytest.mark.parametrize(("name", "wants_stream"), CASES)
async def test_a_failure_before_the_first_byte_is_made_good_elsewhere_and_the_backend_is_left(
    name: str, wants_stream: bool
) -> None:
    async with beside(ELSEWHERE[name]) as rig:
        for _ in range(3):
            assert state_of(rig) is State.READY
            served = await served_by(rig, wants_stream=wants_stream)
            assert served.status == 200
            assert served.headers["x-slotgate-backend"] == "well"
            assert b"error" not in served.body
        assert state_of(rig) is State.DOWN
        await rig.wait_until(lambda counts: counts.processing == 0)


PASSED = {
    "bad body": (error("'messages' is required"), 500, "/v1/messages"),
    "image": (error("image input is not supported - hint: mmproj"), 500, CHAT),
    "too large": (error("input (9) is too large to process."), 500, CHAT),
    "router": (error("model name=bad failed to load"), 500, CHAT),
    "501": (error("This server does not support it", b"501 Not Implemented"), 501, CHAT),
    "400": (error("Failed to parse grammar", b"400 Bad Request"), 400, CHAT),
    "401": (error("Invalid API Key", b"401 Unauthorized"), 401, CHAT),
    "too big alone": (error("Context size has been exceeded."), 500, CHAT),
    "event": (stream(event("image input is not supported")), 500, CHAT),
}


@STREAMS
@pytest.mark.parametrize(("answer", "status", "path"), PASSED.values(), ids=PASSED)
async def test_a_failure_of_the_request_passes_as_it_is_and_is_never_repeated(
    answer: bytes, status: int, path: str, wants_stream: bool
) -> None:
    async with beside(answer) as rig:
        for _ in range(4):
            failed = await rig.post(path, chat(stream=wants_stream))
            assert failed.status == status
            assert failed.headers["x-slotgate-backend"] == "bad"
        assert state_of(rig) is State.READY
        await rig.wait_until(lambda counts: counts.processing == 0)
        page = (await rig.get("/metrics")).body.decode()
        assert 'slotgate_retries_total{backend="bad",cause="error"} 0.0' in page


async def test_who_is_at_fault_is_not_told_by_an_error_that_the_other_backend_gives_too() -> None:
    async with backend(error("something new")) as left, backend(error("something new")) as right:
        backends = [{"name": "left", "url": left}, {"name": "right", "url": right}]
        async with gateway_at(left, backends=backends, **LONG) as rig:
            for _ in range(6):
                assert (await rig.post(CHAT, chat())).status == 500
            assert state_of(rig, "left") is state_of(rig, "right") is State.READY


async def test_where_nothing_else_serves_an_error_passes_at_once_and_the_backend_is_used() -> None:
    async with fleet({"only": BAD}) as rig:
        rig.stubs["only"].set_fault("fast500")
        for _ in range(10):
            assert (await rig.post(CHAT, chat())).status == 500
        assert len(rig.stubs["only"].observed.records) == 10
        assert state_of(rig, "only") is State.DOWN
        ready = await rig.get("/ready")
        assert ready.status == 200
        assert ready.json()["backends"]["only"]["state"] == "degraded"
        assert rig.counts.idle == 4
        rig.stubs["only"].clear_faults()
        assert (await rig.post(CHAT, chat())).status == 200
        assert state_of(rig, "only") is State.READY


async def test_one_on_trial_is_ready_once_it_has_served() -> None:
    settings = {**BY_SLOTS, "health__first_pause": "100ms"}
    async with fleet({"bad": BAD, "well": WELL}, **settings) as rig:
        bad = rig.stubs["bad"]
        bad.set_fault("fast500")
        for _ in range(5):
            assert (await rig.post(CHAT, chat())).status == 200
        assert len(bad.observed.records) == 3
        bad.clear_faults()
        probe = rig.app.fleet.probes["bad"]
        async with asyncio.timeout(20):
            while state_of(rig) is not State.DEGRADED:
                await probe.look()
        assert (await rig.get("/ready")).json()["backends"]["bad"]["state"] == "degraded"
        assert rig.counts.idle == 3, "one of its four slots"
        async with rig.open("POST", CHAT, chat(stream=True)) as one:
            async with rig.open("POST", CHAT, chat(stream=True)) as two:
                await one.open()
                await two.open()
                await rig.post(CHAT, chat())
        async with asyncio.timeout(20):
            while state_of(rig) is not State.READY:
                await rig.post(CHAT, chat())
                rig.app.fleet.probes["well"].note(Signal.UNREACHABLE, "so that the other is used")
        assert rig.counts.idle >= 4


@STREAMS
async def test_no_first_byte_in_time_is_tried_elsewhere(wants_stream: bool) -> None:
    timeouts = {"timeouts": {"first_byte": "100ms"}}
    async with fleet({"bad": BAD, "well": WELL}, backend=timeouts, **LONG) as rig:
        rig.stubs["bad"].set_fault("silent")
        for _ in range(3):
            assert (await served_by(rig, wants_stream=wants_stream)).status == 200
        assert state_of(rig) is State.DOWN


async def test_no_first_byte_before_the_deadline_is_not_tried_again_after_it() -> None:
    timeouts = {"timeouts": {"first_byte": "100ms"}}
    async with fleet({"bad": BAD, "well": WELL}, backend=timeouts, **LONG) as rig:
        rig.stubs["bad"].set_fault("silent")
        late = await rig.post(CHAT, chat(), [(b"x-slotgate-deadline-ms", b"50")])
        assert (late.status, late.code) == (504, "backend_timeout")


async def test_a_request_is_tried_twice_at_most() -> None:
    stubs = {"one": BAD, "two": BAD, "three": BAD}
    async with fleet(stubs, **LONG) as rig:
        for stub in rig.stubs.values():
            stub.set_fault("fast500")
        assert (await rig.post(CHAT, chat())).status == 500
        assert sum(len(stub.observed.records) for stub in rig.stubs.values()) == 2


async def test_retries_end_with_their_budget_and_the_failure_is_passed_on() -> None:
    budget = int(PER_SECOND * RESERVE_SECONDS)
    settings = {**LONG, "health__failures": 1000}
    async with fleet({"bad": BAD, "well": WELL}, **settings) as rig:
        rig.stubs["bad"].set_fault("fast500")
        statuses = [(await rig.post(CHAT, chat())).status for _ in range(4 * budget)]
        assert statuses[:budget] == [200] * budget
        assert 500 in statuses


async def test_those_that_a_backend_takes_along_as_it_goes_need_no_budget() -> None:
    slots = 2 * int(PER_SECOND * RESERVE_SECONDS)
    bad = StubOptions(decode=50, slots=slots, ctx=1 << 16)
    well = StubOptions(decode=0, slots=1)
    async with fleet({"bad": bad, "well": well}, **LONG) as rig, asyncio.TaskGroup() as group:
        rig.stubs["bad"].set_fault("silent")
        asked = [group.create_task(rig.post(CHAT, chat())) for _ in range(slots)]
        await rig.wait_until(lambda counts: counts.processing == slots)
        await rig.stubs["bad"].stop()
    assert [task.result().status for task in asked] == [200] * slots


async def test_requests_without_a_byte_leave_a_backend_that_is_silent() -> None:
    bad = StubOptions(decode=50, slots=4, ctx=1 << 16)
    async with fleet({"bad": bad, "well": WELL}, **LONG) as rig, asyncio.TaskGroup() as group:
        rig.stubs["bad"].set_fault("silent")
        asked = [group.create_task(rig.post(CHAT, chat())) for _ in range(2)]
        await rig.wait_until(lambda counts: counts.processing == 2)
        probe = rig.app.fleet.probes["bad"]

        async def unanswered() -> None:
            await asyncio.sleep(0)
            raise_timeout()

        rig.app.fleet.backends["bad"].health = unanswered  # type: ignore[method-assign,assignment]
        for _ in range(2):
            await probe.look()
        assert probe.state is State.DOWN
    assert [task.result().status for task in asked] == [200, 200]
    assert [task.result().headers["x-slotgate-backend"] for task in asked] == ["well", "well"]


def raise_timeout() -> None:
    from slotgate.errors import BackendTimeoutError

    raise BackendTimeoutError("no answer within 2 s")


async def test_they_stay_where_nothing_else_could_take_them() -> None:
    async with fleet({"only": BAD}, **LONG) as rig, asyncio.TaskGroup() as group:
        stub = rig.stubs["only"]
        stub.set_fault("silent")
        asked = group.create_task(rig.post(CHAT, chat()))
        await rig.wait_until(lambda counts: counts.processing == 1)
        rig.app.driver.evacuate("only")
        assert rig.counts.processing == 1
        stub.clear_faults()
        assert (await asked).status == 200


async def test_a_backend_that_streams_is_not_silent_though_it_does_not_answer_a_look() -> None:
    endless = StubOptions(decode=100, slots=2, ctx=1 << 18)
    async with fleet({"only": endless}, **LONG) as rig:
        probe = rig.app.fleet.probes["only"]
        async with rig.open("POST", CHAT, chat(9999, stream=True)) as held:
            await held.open()

            async def unanswered() -> None:
                await held.read()
                raise_timeout()

            rig.app.fleet.backends["only"].health = unanswered  # type: ignore[method-assign,assignment]
            for _ in range(5):
                await held.read()
                await probe.look()
            assert probe.state is State.READY


async def test_streams_that_a_full_context_ended_together_count_once_and_new_ones_run() -> None:
    one = stream(FRAME, event("Context size has been exceeded."))
    async with beside(one) as rig:
        probe = rig.app.fleet.probes["bad"]
        for _ in range(8):
            probe.note(Signal.OVERFLOWED, "the context was full")
        assert probe.state is State.READY


async def test_a_loading_backend_is_waited_for_however_often_it_says_so() -> None:
    async with fleet({"only": WELL}, **LONG) as rig, asyncio.TaskGroup() as group:
        stub, probe = rig.stubs["only"], rig.app.fleet.probes["only"]
        stub.set_fault("loading")
        asked = group.create_task(rig.post(CHAT, chat()))
        for _ in range(3):
            await rig.wait_until(lambda counts: counts.waiting == 1)
            # As where a router answers for a child that loads.
            probe.note(Signal.ANSWERED, "ok")
        await rig.wait_until(lambda counts: counts.waiting == 1)
        stub.clear_faults()
        probe.poke()
    assert asked.result().status == 200
