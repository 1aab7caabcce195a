"""Comments in the stream while a request waits, for clients that asked for them."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING

import pytest

from slotgate.core.snapshot import WaitingView
from slotgate.core.ticket import Ticket
from slotgate.errors import ExchangeClosedError
from slotgate.http.auth import Keyring, Tenant
from slotgate.http.waiting import Comments, Positions
from slotgate.stub import StubOptions
from slotgate.testing import FakeClock
from tests.http.rig import CHAT, Rig, chat, gateway
from tests.http.test_waiting import BUSY, MESSAGES, all_busy

if TYPE_CHECKING:
    from slotgate.net.exchange import Exchange

pytestmark = pytest.mark.anyio

WAIT = (b"x-slotgate-wait", b"comments")
COMMENT = re.compile(rb"^: queued position=(\d+) wait=(\d+\.\d)s\n\n")


# When something is said.


def said(*looks: tuple[float, int]) -> list[tuple[float, bytes]]:
    comments = Comments()
    found = []
    for waited, position in looks:
        comment = comments.due(waited, position)
        if comment is not None:
            found.append((waited, comment))
    return found


def test_nothing_is_said_in_the_first_second() -> None:
    assert said((0.0, 3), (0.5, 2), (0.99, 1)) == []


def test_the_position_and_the_wait_are_said_each_second() -> None:
    times = [quarter / 4 for quarter in range(14)]
    assert said(*((time, 3) for time in times)) == [
        (1.0, b": queued position=3 wait=1.0s\n\n"),
        (2.0, b": queued position=3 wait=2.0s\n\n"),
        (3.0, b": queued position=3 wait=3.0s\n\n"),
    ]


def test_a_new_position_is_said_at_once() -> None:
    assert said((1.0, 3), (1.25, 3), (1.5, 2), (1.75, 2), (2.5, 2)) == [
        (1.0, b": queued position=3 wait=1.0s\n\n"),
        (1.5, b": queued position=2 wait=1.5s\n\n"),
        (2.5, b": queued position=2 wait=2.5s\n\n"),
    ]


def view(name: str, position: int) -> WaitingView:
    ticket = Ticket(id=name, arrival=0.0, deadline=9.0)
    return WaitingView(ticket=ticket, position=position, since=0.0, bypassed=0)


def test_positions_are_asked_four_times_a_second_for_all_of_a_tenant() -> None:
    clock, asked = FakeClock(), []

    def waiting_of(tenant: str) -> tuple[WaitingView, ...]:
        asked.append(tenant)
        return view("a", 1), view("b", 5)

    positions = Positions(waiting_of, clock)
    for _ in range(10):
        assert (positions.of("t", "a"), positions.of("t", "b")) == (view("a", 1), view("b", 5))
        clock.advance(0.03125)
    assert asked == ["t", "t"]
    assert positions.of("t", "left") is None


# On the wire.


async def opened(exchange: Exchange) -> bytes:
    await exchange.open()
    assert exchange.status == 200
    assert (b"content-type", b"text/event-stream") in exchange.headers
    return await exchange.read()


async def test_who_waits_longer_than_a_second_sees_it_and_then_the_answer() -> None:
    async with gateway(StubOptions(decode=100, slots=1)) as rig:
        async with rig.open("POST", CHAT, chat(4, stream=True), [WAIT]) as exchange:
            async with rig.open("POST", CHAT, chat(3000, stream=True)) as held:
                await held.open()
                first = await opened(exchange)
                assert (b"x-slotgate-queue-position", b"1") in exchange.headers
            rest = await exchange.read_all(1 << 20)
        seen = COMMENT.match(first)
        assert seen is not None
        assert int(seen[1]) >= 1
        assert 1.0 <= float(seen[2]) < 3.0
        while (comment := COMMENT.match(rest)) is not None:
            rest = rest[comment.end() :]
        plain = await rig.post(CHAT, chat(4, stream=True))
        assert texts(rest) == texts(plain.body) != []
        assert rest.endswith(b"data: [DONE]\n\n")


def texts(body: bytes) -> list[str]:
    frames = [frame.removeprefix(b"data: ") for frame in body.split(b"\n\n") if frame]
    choices = [json.loads(frame)["choices"] for frame in frames if frame != b"[DONE]"]
    return [choice[0]["delta"].get("content") for choice in choices if choice]


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_after_the_head_a_refusal_is_one_event_of_the_route(path: str) -> None:
    deadline = (b"x-slotgate-deadline-ms", b"1300")
    async with gateway(BUSY) as rig, all_busy(rig):
        answer = await rig.post(path, chat(stream=True), [WAIT, deadline])
        assert answer.status == 200
        assert COMMENT.match(answer.body)
        event = answer.body.rstrip().rpartition(b"\n\n")[2]
        assert event.startswith(b"event: error\n") == (path == MESSAGES)
        assert json.loads(event.partition(b"data: ")[2])["error"]["code"] == "queue_timeout"


async def test_a_refusal_in_the_first_second_still_has_its_status() -> None:
    deadline = (b"x-slotgate-deadline-ms", b"50")
    async with gateway(BUSY) as rig, all_busy(rig):
        answer = await rig.post(CHAT, chat(stream=True), [WAIT, deadline])
        assert answer.status == 429


async def head_comes(rig: Rig, *, stream: bool, header: tuple[bytes, bytes]) -> bool:
    """Whether a waiting request gets its head within the time in which a comment would come."""
    async with rig.open("POST", CHAT, chat(stream=stream), [header]) as exchange:
        try:
            async with asyncio.timeout(1.6):
                await exchange.open()
        except TimeoutError:
            return False
    return True


@pytest.mark.parametrize(
    ("stream", "header"),
    [(False, WAIT), (True, (b"x-slotgate-wait", b"silently")), (True, (b"x-other", b"comments"))],
)
async def test_without_being_asked_in_a_stream_the_head_is_held(
    stream: bool, header: tuple[bytes, bytes]
) -> None:
    async with gateway(BUSY) as rig, all_busy(rig):
        assert not await head_comes(rig, stream=stream, header=header)


async def test_a_tenant_whose_clients_break_on_comments_gets_none() -> None:
    async with gateway(BUSY) as rig, all_busy(rig):
        assert await head_comes(rig, stream=True, header=WAIT)
        anonymous = Tenant(name="default", may_see_comments=False)
        rig.app.gateway.keyring = Keyring(anonymous=anonymous)
        assert not await head_comes(rig, stream=True, header=WAIT)


async def test_leaving_while_comments_come_frees_the_place_at_once() -> None:
    async with gateway(BUSY) as rig, all_busy(rig):
        async with rig.open("POST", CHAT, chat(stream=True), [WAIT]) as exchange:
            await opened(exchange)
            assert rig.counts.waiting == 1
            exchange.close()
            with pytest.raises(ExchangeClosedError):
                await exchange.read()
        async with asyncio.timeout(0.2):
            await rig.wait_until(lambda counts: counts.waiting == 0)


async def test_a_backends_error_after_comments_is_one_event() -> None:
    stub = StubOptions(decode=100, slots=1, output_tokens=None)
    async with gateway(stub) as rig:
        async with rig.open("POST", CHAT, chat(4, stream=True), [WAIT]) as exchange:
            async with rig.open("POST", CHAT, chat(3000, stream=True)) as held:
                await held.open()
                await opened(exchange)
                rig.stub.set_fault("fast500")
            rest = await exchange.read_all(1 << 20)
        event = rest.rstrip().rpartition(b"\n\n")[2]
        assert json.loads(event.partition(b"data: ")[2])["error"]["code"] == 500


async def test_a_backend_that_breaks_after_comments_is_tried_again() -> None:
    stub = StubOptions(decode=100, slots=1, output_tokens=None)
    async with gateway(stub) as rig:
        async with rig.open("POST", CHAT, chat(4, stream=True), [WAIT]) as exchange:
            async with rig.open("POST", CHAT, chat(3000, stream=True)) as held:
                await held.open()
                await opened(exchange)
                rig.stub.set_fault("loading")
            await rig.wait_until(lambda counts: counts.idle == 0 and counts.waiting == 1)
            rig.stub.clear_faults()
            rest = await exchange.read_all(1 << 20)
        assert rest.endswith(b"data: [DONE]\n\n")
