"""How long a prompt is: estimated, learned, and counted only where the decision hangs on it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from typing_extensions import override

from slotgate.core import Scheduler
from slotgate.stub import StubOptions
from tests.http.by_hand import served_by
from tests.http.rig import CHAT, Rig, chat, gateway, gateway_at
from tests.http.test_odd_backends import plain

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from slotgate.core.ticket import Ticket

pytestmark = pytest.mark.anyio

SMALL = StubOptions(decode=5, slots=1, ctx=512)


def prompt(characters: int, **fields: Any) -> dict[str, Any]:
    return chat(4, **fields) | {"messages": [{"role": "user", "content": "x" * characters}]}


@contextlib.asynccontextmanager
async def busy(rig: Rig) -> AsyncIterator[None]:
    async with rig.open("POST", CHAT, chat(400, stream=True)) as held:
        await held.open()
        yield


async def ticket_of(rig: Rig, body: dict[str, Any], path: str = CHAT) -> Ticket:
    """Let a request wait, and return its ticket."""
    async with rig.open("POST", path, body) as exchange, asyncio.TaskGroup() as group:
        opening = group.create_task(exchange.open())
        await rig.wait_until(lambda counts: counts.waiting == 1)
        [waiting] = rig.app.driver.snapshot().waiting
        opening.cancel()
    await rig.wait_until(lambda counts: counts.waiting == 0)
    return waiting.ticket


async def test_a_prompt_that_may_not_fit_is_counted_while_the_slots_are_busy() -> None:
    async with gateway(SMALL) as rig, busy(rig):
        ticket = await ticket_of(rig, prompt(1700))
        assert ticket.input_is_exact
        assert 425 <= ticket.input_tokens <= 460


async def test_a_prompt_that_surely_fits_is_estimated() -> None:
    async with gateway(SMALL) as rig, busy(rig):
        ticket = await ticket_of(rig, prompt(400))
        assert not ticket.input_is_exact
        assert 105 <= ticket.input_tokens <= 150


async def test_an_estimate_alone_never_says_that_a_prompt_cannot_fit() -> None:
    async with gateway(SMALL) as rig, busy(rig):
        # No backend counts what is to be filled in without a slot.
        body = {"input_prefix": "x" * 4000, "input_suffix": "x", "n_predict": 1}
        async with rig.open("POST", "/infill", body) as exchange:
            async with asyncio.TaskGroup() as group:
                opening = group.create_task(exchange.open())
                await rig.wait_until(lambda counts: counts.waiting == 1)
                [waiting] = rig.app.driver.snapshot().waiting
                opening.cancel()
        assert waiting.ticket.input_tokens == 511
        assert not waiting.ticket.input_is_exact


@pytest.mark.parametrize("path", ["/completion", "/completions", "/v1/completions"])
@pytest.mark.parametrize(
    ("given", "tokens"),
    [
        ("x" * 1700, 425),
        (["x" * 800, "x" * 804], 401),
        ([7] * 420, 420),
        ([[7] * 200, [8] * 201], 401),
        ([7, "x" * 1600, 8], 402),
        (["x" * 800, [7, "x" * 800]], 401),
    ],
    ids=["text", "texts", "tokens", "lists of tokens", "mixed", "a text and a mixture"],
)
async def test_a_text_completion_is_counted_like_a_chat(path: str, given: Any, tokens: int) -> None:
    async with gateway(SMALL, scheduler_class=Hanging) as rig, busy(rig):
        body = {"prompt": given, "max_tokens": 1}
        ticket = await ticket_of(rig, body, path)
        assert (ticket.input_tokens, ticket.input_is_exact) == (tokens, True)


async def test_a_text_that_was_counted_and_fits_nowhere_is_refused_at_once() -> None:
    async with gateway(SMALL) as rig, busy(rig):
        answer = await rig.post("/v1/completions", {"prompt": ["x", "x" * 4000]})
        assert (answer.status, answer.code) == (400, "context_length_exceeded")
        assert answer.json()["error"]["n_prompt_tokens"] == 1000


async def test_prompts_that_fit_one_by_one_are_not_refused_for_their_sum() -> None:
    async with gateway(SMALL) as rig, busy(rig):
        ticket = await ticket_of(rig, {"prompt": ["x" * 1600] * 3}, "/completion")
        assert not ticket.input_is_exact
        assert ticket.input_tokens == 511


async def test_an_estimate_learns_from_what_the_backend_counts() -> None:
    async with gateway(StubOptions(decode=0, slots=1)) as rig:
        # Quotes take two bytes in JSON and one in the text.
        body = chat(1) | {"messages": [{"role": "user", "content": '"' * 2000}]}
        sizes = rig.app.gateway.measuring.sizes
        before = sizes.estimate("default", "", 4000).tokens
        for _ in range(4):
            assert (await rig.post(CHAT, body)).status == 200
        after = sizes.estimate("default", "", 4000).tokens
        assert before > 1000
        assert 500 <= after <= 560


@pytest.mark.parametrize(("characters", "is_counted"), [(2000, True), (20, False)])
async def test_where_slots_share_a_context_all_but_short_prompts_are_counted(
    characters: int, is_counted: bool
) -> None:
    stub = StubOptions(decode=5, slots=4, ctx=1 << 14, unified=True)
    async with gateway(stub, backend={"kv_pool": 1 << 14}) as rig:
        async with rig.open("POST", CHAT, prompt(characters, stream=True)) as exchange:
            await exchange.open()
            [lease] = rig.app.driver.snapshot().deployment("stub").running
            assert lease.ticket.input_is_exact is is_counted


class Hanging(Scheduler):
    """Says that it hangs on the length of a long prompt whether there is time for it."""

    from_tokens = 300

    @override
    def hangs_on_length(self, ticket: Ticket, low: int, high: int) -> bool:
        return low <= ticket.input_tokens <= high and high >= self.from_tokens


async def test_a_prompt_is_counted_where_the_scheduler_hangs_on_its_length() -> None:
    stub = StubOptions(decode=5, slots=1, ctx=1 << 16)
    async with gateway(stub, scheduler_class=Hanging) as rig, busy(rig):
        assert not (await ticket_of(rig, prompt(200))).input_is_exact
        assert (await ticket_of(rig, prompt(1200))).input_is_exact


class Counting:
    """A backend of one busy slot; `answer` is what it says of a prompt's length, None: nothing."""

    def __init__(self, answer: bytes | None = None) -> None:
        self.answer = answer
        self.asked = asyncio.Event()
        self.left = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            if b"/props" in head:
                writer.write(plain(PROPS))
            elif b"input_tokens" in head:
                self.asked.set()
                await self.count(reader, writer)
            elif head.startswith(b"POST"):
                writer.write(STREAM)
                await reader.read()
            elif b"/health" in head:
                writer.write(plain(b'{"status":"ok"}'))
            else:
                writer.write(plain(b"{}", b"404 Not Found"))
        writer.close()

    async def count(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.answer is not None:
            writer.write(self.answer)
            return
        await reader.read()
        self.left.set()

    @contextlib.asynccontextmanager
    async def busy(self) -> AsyncIterator[Rig]:
        """Run a gateway in front, with the one slot taken."""
        async with served_by(self.serve) as url, gateway_at(url) as rig:
            async with rig.open("POST", CHAT, chat(stream=True)) as held:
                await held.open()
                yield rig


PROPS = b'{"default_generation_settings":{"n_ctx":512},"total_slots":1}'
STREAM = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    b'data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":null}]}\n\n'
)


@pytest.mark.parametrize(
    "answer",
    [
        plain(b"{}", b"404 Not Found"),
        plain(b"{}"),
        plain(b'{"input_tokens":"many"}'),
        b"HTTP",
        None,
    ],
    ids=["no route", "no number", "a word", "broken", "silent"],
)
async def test_a_backend_that_cannot_count_in_time_leaves_the_estimate(
    answer: bytes | None,
) -> None:
    counting = Counting(answer)
    async with counting.busy() as rig:
        ticket = await ticket_of(rig, prompt(1700))
        assert counting.asked.is_set()
        assert not ticket.input_is_exact
        assert 430 < ticket.input_tokens < 511


async def test_counting_stops_when_the_client_leaves() -> None:
    counting = Counting()
    async with counting.busy() as rig:
        async with rig.open("POST", CHAT, prompt(1700)) as exchange, asyncio.TaskGroup() as group:
            opening = group.create_task(exchange.open())
            await counting.asked.wait()
            opening.cancel()
        async with asyncio.timeout(0.9):
            await counting.left.wait()
        assert rig.counts.waiting == 0
