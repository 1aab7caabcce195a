"""What an answer uses is charged while it comes, and all of it before the slot is given back."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from slotgate.core import Ending, Ticket
from slotgate.core.deployment import DeploymentReport, State
from slotgate.errors import BrokenAnswerError, ExchangeClosedError
from slotgate.http.intake import Intake
from slotgate.net.address import Address
from slotgate.net.client import Client
from slotgate.runtime.clock import LoopClock
from slotgate.runtime.driver import Driver
from slotgate.runtime.lease import Lease
from slotgate.runtime.meter import Meter
from slotgate.stub import StubOptions, StubServer
from slotgate.testing import FakeDice
from slotgate.wire.request import prepare
from slotgate.wire.routes import find_route
from tests.http.rig import CHAT, _encode, chat
from tests.http.test_odd_backends import backend, plain, stream
from tests.runtime.recording import RecordingScheduler

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

pytestmark = pytest.mark.anyio


@dataclass(slots=True)
class Running:
    scheduler: RecordingScheduler
    lease: Lease
    intake: Intake

    @property
    def told(self) -> list[tuple[Any, ...]]:
        return self.scheduler.told

    @property
    def outputs(self) -> list[Any]:
        return [charge[2] for charge in self.scheduler.charged]


@contextlib.asynccontextmanager
async def running(url: str, path: str, body: dict[str, Any]) -> AsyncIterator[Running]:
    """A request that has its slot, with its answer's head come in."""
    loop = asyncio.get_running_loop()
    clock = LoopClock(loop)
    scheduler = RecordingScheduler(clock=clock, dice=FakeDice())
    scheduler.told = []
    driver = Driver(scheduler, loop)
    driver.report(DeploymentReport(id="d", model="", slots=1, state=State.READY))
    route = find_route("POST", path)
    assert route is not None
    assert route.shape is not None
    prepared = prepare(route, _encode(body), content_type="application/json")
    client = Client(Address.parse(url))
    now = loop.time()
    async with driver.lease(Ticket(id="t", arrival=now, deadline=now + 60)) as lease:
        intake = Intake(route.shape, prepared, lease, Meter(lease, clock.now), lambda: None)
        head = [(b"content-type", b"application/json")]
        intake.exchange = client.exchange(
            "POST", path, head, prepared.body, single_use=True, on_complete=intake.complete
        )
        lease.on_abort(intake.stop)
        try:
            async with asyncio.timeout(20):
                await intake.exchange.open()
                yield Running(scheduler, lease, intake)
        finally:
            intake.exchange.close()
            intake.settle()
    driver.close()
    client.close()


async def relay(intake: Intake) -> bytes:
    out = b""
    while data := await intake.exchange.read():
        out += intake.take(data)
    return out + intake.rest()


COMPLETION = "/completion"
MESSAGES = "/v1/messages"
GENERATIONS: dict[str, Callable[[int], tuple[str, dict[str, Any]]]] = {
    "chat": lambda n: (CHAT, chat(n)),
    "completion": lambda n: (COMPLETION, {"prompt": "hello", "n_predict": n}),
    "openai completion": lambda n: ("/v1/completions", {"prompt": "hello", "max_tokens": n}),
    "messages": lambda n: (MESSAGES, chat(n)),
    "responses": lambda n: ("/v1/responses", {"input": "hello", "max_output_tokens": n}),
}
KINDS = pytest.mark.parametrize("kind", GENERATIONS)


@KINDS
@pytest.mark.parametrize("wants_stream", [True, False])
@pytest.mark.parametrize("tokens", [2, 50])
async def test_an_answer_is_charged_in_full_before_its_slot_is_given_back(
    kind: str, tokens: int, wants_stream: bool
) -> None:
    path, body = GENERATIONS[kind](tokens)
    async with StubServer(StubOptions(decode=2000, slots=1)) as stub:
        async with running(stub.url, path, {**body, "stream": wants_stream}) as it:
            await (relay(it.intake) if wants_stream else it.intake.take_all())
            assert it.told[-1] == ("leave", Ending.SERVED, True)
            assert sum(it.outputs) == tokens
            [inputs] = [charge[0] for charge in it.scheduler.charged if charge[0]]
            assert inputs == it.scheduler.charged[-1][0] > 0


@pytest.mark.parametrize("wants_stream", [True, False])
async def test_the_first_token_is_charged_as_it_comes(wants_stream: bool) -> None:
    async with StubServer(StubOptions(decode=20, slots=1)) as stub:
        async with running(stub.url, CHAT, chat(100_000, stream=wants_stream)) as it:
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(
                    relay(it.intake) if wants_stream else it.intake.take_all()
                )
                while not it.told:
                    await asyncio.sleep(0)
                reading.cancel()
            assert it.scheduler.charged[0] == (0, 0, 1)


async def test_the_slot_is_given_back_with_the_last_byte_though_nobody_reads() -> None:
    async with StubServer(StubOptions(decode=0, slots=1)) as stub:
        async with running(stub.url, CHAT, chat(30, stream=True)) as it:
            while not it.lease.has_left:
                await asyncio.sleep(0)
            assert it.told[-1] == ("leave", Ending.SERVED, True)
            assert sum(it.outputs) == 30
            assert (await relay(it.intake)).endswith(b"data: [DONE]\n\n")


async def test_the_backends_own_times_are_told_before_the_slot_is_given_back() -> None:
    async with StubServer(StubOptions(decode=0, slots=1)) as stub:
        async with running(stub.url, CHAT, chat(5, stream=True)) as it:
            await relay(it.intake)
            assert [event[0] for event in it.told[-3:]] == ["charge", "timed", "leave"]
            assert it.told[-2][2] == 5


async def test_choices_are_charged_all_together() -> None:
    async with StubServer(StubOptions(decode=0, slots=2)) as stub:
        async with running(stub.url, CHAT, chat(10, stream=True, n=2)) as it:
            await relay(it.intake)
            assert sum(it.outputs) == 20


async def test_an_answer_in_one_piece_is_charged_with_its_last_byte() -> None:
    async with StubServer(StubOptions(decode=0, embeddings=True)) as stub:
        async with running(stub.url, "/v1/embeddings", {"input": "hello"}) as it:
            await it.intake.take_all()
            assert [event[0] for event in it.told] == ["charge", "leave"]
            assert it.scheduler.charged[0][0] == 2


# No frame of a token of the stub's is as long.
FRAME_BYTES = 400


async def test_what_came_until_the_client_left_is_charged_read_or_not() -> None:
    async with StubServer(StubOptions(decode=200, slots=1)) as stub:
        async with running(stub.url, CHAT, chat(100_000, stream=True)) as it:
            frame = it.intake.take(await it.intake.exchange.read())
            while it.intake.exchange.bytes_received < len(frame) + 6 * FRAME_BYTES:
                await asyncio.sleep(0)
            it.lease.abort("left")
            with pytest.raises(ExchangeClosedError):
                await it.intake.exchange.read()
            it.intake.settle()
            assert sum(it.outputs) >= 6
    assert it.told[-1] == ("leave", Ending.ABANDONED, False)


async def test_a_broken_end_is_the_readers_to_raise_and_the_slot_is_free() -> None:
    token = b'data: {"index":0,"content":"Hi","tokens":[1],"stop":false}\n\n'
    async with backend(stream(token * 3)) as url:
        async with running(url, COMPLETION, {"prompt": "x"}) as it:
            with pytest.raises(BrokenAnswerError):
                await it.intake.take_all()
            assert it.told == [("charge", 0, 0, 3)], "it may yet be tried elsewhere"
            it.intake.give_back()
            assert it.told[1:] == [("leave", Ending.FAILED, True)]


async def test_an_error_answer_charges_nothing_and_keeps_its_slot() -> None:
    async with backend(plain(b"{}", b"500 No")) as url:
        async with running(url, CHAT, chat(stream=True)) as it:
            assert await it.intake.exchange.read_all(1000) == b"{}"
            assert it.told == []
    assert it.told == [("leave", Ending.FAILED, False)]
