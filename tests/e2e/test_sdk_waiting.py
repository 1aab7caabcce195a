"""Clients of the official SDKs see a stream open while they wait, and read over its comments."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import anthropic
import openai
import pytest

from tests.e2e.asking import CHAT, ask, chat, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.conftest import Pair

pytestmark = pytest.mark.process

WAIT = {"x-slotgate-wait": "comments"}
MESSAGES: Any = [{"role": "user", "content": "hello"}]
LONG: dict[str, Any] = {"model": "any", "messages": MESSAGES, "max_tokens": 100_000}


@contextlib.contextmanager
def all_busy(pair: Pair) -> Iterator[None]:
    """Hold the one slot with a stream that does not end."""
    wait_until(lambda: pair.gateway.queue()["slots_idle"] == 1)
    with openai_at(pair) as client:
        held = client.chat.completions.create(**LONG, stream=True)
        try:
            next(iter(held))
            yield
        finally:
            held.close()


# Clients of the test that runs: a connection that is left to the collector is told of as leaked.
_CLIENTS = contextlib.ExitStack()


@pytest.fixture(autouse=True)
def clients() -> Iterator[None]:
    """Close all clients after each test."""
    with _CLIENTS:
        yield


def openai_at(pair: Pair) -> openai.OpenAI:
    client = openai.OpenAI(
        base_url=f"{pair.url}/v1", api_key="none", max_retries=0, default_headers=WAIT
    )
    return _CLIENTS.enter_context(client)


def anthropic_at(pair: Pair) -> anthropic.Anthropic:
    client = anthropic.Anthropic(
        base_url=pair.url, api_key="none", max_retries=0, default_headers=WAIT
    )
    return _CLIENTS.enter_context(client)


def chat_of(pair: Pair, **options: Any) -> Any:
    return openai_at(pair).chat.completions.create(
        model="any", messages=MESSAGES, max_tokens=4, stream=True, **options
    )


def completion_of(pair: Pair, **options: Any) -> Any:
    return openai_at(pair).completions.create(
        model="any", prompt="hello", max_tokens=4, stream=True, **options
    )


def response_of(pair: Pair, **options: Any) -> Any:
    return openai_at(pair).responses.create(
        model="any", input="hello", max_output_tokens=16, stream=True, **options
    )


def messages_of(pair: Pair, **options: Any) -> Any:
    return anthropic_at(pair).messages.create(
        model="any", messages=MESSAGES, max_tokens=4, stream=True, **options
    )


STREAMS: dict[str, Callable[..., Any]] = {
    "chat": chat_of,
    "completions": completion_of,
    "responses": response_of,
    "messages": messages_of,
}
KINDS = pytest.mark.parametrize("kind", STREAMS)


@KINDS
def test_a_stream_opens_while_it_waits_and_brings_its_answer_afterwards(
    narrow: Pair, kind: str
) -> None:
    with all_busy(narrow):
        stream = STREAMS[kind](narrow)
        assert narrow.gateway.queue()["waiting"] == 1
    with stream:
        waited = list(stream)
    straight = list(STREAMS[kind](narrow))
    assert [type(event) for event in waited] == [type(event) for event in straight]
    assert len(waited) >= 4


@KINDS
def test_a_refusal_after_comments_is_raised_while_the_stream_is_read(
    narrow: Pair, kind: str
) -> None:
    with all_busy(narrow):
        stream = STREAMS[kind](narrow, extra_headers={"x-slotgate-deadline-ms": "1500"})
        with pytest.raises((openai.APIError, anthropic.APIError), match="queue_timeout"):
            list(stream)


@KINDS
def test_a_stream_that_is_closed_while_it_waits_leaves_the_queue(narrow: Pair, kind: str) -> None:
    with all_busy(narrow):
        stream = STREAMS[kind](narrow)
        assert narrow.gateway.queue()["waiting"] == 1
        stream.close()
        wait_until(lambda: narrow.gateway.queue()["waiting"] == 0)


def test_the_comments_are_lines_that_every_reader_of_events_skips(narrow: Pair) -> None:
    with all_busy(narrow):
        headers = {**WAIT, "x-slotgate-deadline-ms": "2600"}
        answer = ask(narrow.url, "POST", CHAT, chat(stream=True), headers)
    frames = [frame for frame in answer.body.split(b"\n\n") if frame]
    assert len(frames) >= 3
    assert all(frame.startswith(b": queued position=") for frame in frames[:-1])
    assert frames[-1].startswith(b'data: {"error":')
