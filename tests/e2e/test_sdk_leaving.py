"""However a client of an official SDK leaves, what it asked for stops and its slot comes free."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import anthropic
import openai
import pytest

from tests.e2e.asking import ask, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.conftest import Pair

pytestmark = [pytest.mark.process, pytest.mark.anyio]

# The model of `narrow` never ends by itself: this would take it minutes.
LONG: dict[str, Any] = {
    "model": "any",
    "messages": [{"role": "user", "content": "hello"}],
    "max_tokens": 100_000,
}


@pytest.fixture
def free_again(narrow: Pair) -> Iterator[Pair]:
    """A pair whose one slot must be free at the end, by our books and the backend's own."""
    yield narrow
    wait_until(lambda: narrow.gateway.queue()["slots_idle"] == 1)
    assert narrow.gateway.queue()["waiting"] == 0
    assert not ask(narrow.direct, "GET", "/slots").json()[0]["is_processing"]
    assert narrow.gateway.metrics("slotgate_waiting") == {"": 0.0}
    short = {**LONG, "max_tokens": 2}
    assert ask(narrow.url, "POST", "/v1/chat/completions", short).status == 200


def openai_at(pair: Pair, **options: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{pair.url}/v1", api_key="none", max_retries=0, **options)


def abandoned(pair: Pair, phase: str) -> float:
    return pair.gateway.metrics("slotgate_abandoned_total").get(f'phase="{phase}"', 0.0)


def is_busy(pair: Pair) -> bool:
    return pair.gateway.queue()["slots_processing"] == 1


def test_a_stream_that_is_closed(free_again: Pair) -> None:
    with openai_at(free_again) as client:
        stream = client.chat.completions.create(**LONG, stream=True)
        next(iter(stream))
        stream.close()


def test_a_stream_of_messages_that_is_left_by_its_block(free_again: Pair) -> None:
    with anthropic.Anthropic(base_url=free_again.url, api_key="none", max_retries=0) as client:
        with client.messages.stream(**LONG) as stream:
            next(stream.text_stream)


def test_an_sdk_that_runs_out_of_time(free_again: Pair) -> None:
    with openai_at(free_again, timeout=0.5) as client, pytest.raises(openai.APITimeoutError):
        client.chat.completions.create(**LONG)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_task_that_is_cancelled_while_its_answer_is_made(
    free_again: Pair, *, stream: bool
) -> None:
    async with openai.AsyncOpenAI(base_url=f"{free_again.url}/v1", api_key="none") as client:

        async def read() -> None:
            answer: Any = await client.chat.completions.create(**LONG, stream=stream)
            if stream:
                async for _chunk in answer:
                    pass

        task = asyncio.ensure_future(read())
        await asyncio.to_thread(wait_until, lambda: is_busy(free_again))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_task_that_is_cancelled_while_it_waits_for_a_slot(free_again: Pair) -> None:
    before = abandoned(free_again, "waiting")
    async with openai.AsyncOpenAI(base_url=f"{free_again.url}/v1", api_key="none") as client:
        first = await client.chat.completions.create(**LONG, stream=True)
        async with first:
            waiter = asyncio.ensure_future(client.chat.completions.create(**LONG))
            front = free_again.gateway
            await asyncio.to_thread(wait_until, lambda: front.queue()["waiting"] == 1)
            waiter.cancel()
            await asyncio.to_thread(wait_until, lambda: front.queue()["waiting"] == 0)
            assert is_busy(free_again)
            with pytest.raises(asyncio.CancelledError):
                await waiter
    assert abandoned(free_again, "waiting") == before + 1


def test_a_client_that_is_closed_with_all_its_connections(free_again: Pair) -> None:
    client = openai_at(free_again)
    with ThreadPoolExecutor() as pool:
        job = pool.submit(lambda: list(client.chat.completions.create(**LONG, stream=True)))
        wait_until(lambda: is_busy(free_again))
        client.close()
        assert job.exception(timeout=30) is not None
