"""A real llama.cpp whose slots share less context than they promise: bare, and behind the gateway.

Four slots share 1536 tokens, and each says that it may hold them all.  Four chats of 16 tokens and
a bound of 480 want 1984 together.
"""

from __future__ import annotations

import http.client
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from tests.capacity.tiny_models import write_model
from tests.e2e.asking import CHAT, ask, chat
from tests.e2e.processes import gateway, llama_server, write_config

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.process, pytest.mark.llama]

POOL_TOKENS = 1536
BOUND = 480
CHATS = 4
EXCEEDED = "Context size has been exceeded."


@dataclass(frozen=True, slots=True)
class Story:
    """How a stream ended."""

    status: int
    tokens: int
    finish: str | None
    error: str | None


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server; its model is made up and knows nothing, but is fast."""
    model = write_model("llama", tmp_path_factory.mktemp("model"))
    options = {"n_parallel": 4, "n_ctx": POOL_TOKENS, "kv_unified": True, "endpoint_slots": True}
    with llama_server(model, options) as url:
        yield url


def tell(url: str, number: int, bound: int | None = BOUND) -> Story:
    """Have a chat streamed to its end, which without a bound is that of the context."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    body = chat(f"story {number}", max_tokens=bound, stream=True, ignore_eos=True, seed=number)
    if bound is None:
        del body["max_tokens"]
    try:
        connection.request("POST", CHAT, json.dumps(body), {"content-type": "application/json"})
        response = connection.getresponse()
        events = [
            json.loads(line.removeprefix(b"data: "))
            for line in response.read().splitlines()
            if line.startswith(b"data: {")
        ]
    finally:
        connection.close()
    return _story(response.status, events)


def _story(status: int, events: list[dict[str, Any]]) -> Story:
    choices = [choice for event in events for choice in event.get("choices", [])]
    finish = [choice["finish_reason"] for choice in choices if choice["finish_reason"]]
    errors = [event["error"]["message"] for event in events if "error" in event]
    timings = [event["timings"] for event in events if "timings" in event]
    tokens = timings[-1]["predicted_n"] if timings else 0
    return Story(status, tokens, (finish or [None])[-1], (errors or [None])[-1])


def tell_all(url: str, chats: int = CHATS, bound: int | None = BOUND) -> list[Story]:
    with ThreadPoolExecutor(chats) as clients:
        return list(clients.map(lambda number: tell(url, number, bound), range(chats)))


def test_without_the_gateway_all_four_are_killed(shared: str) -> None:
    stories = tell_all(shared)

    assert [story.status for story in stories] == [200] * CHATS
    assert [story.error for story in stories] == [EXCEEDED] * CHATS
    # It is nothing lasting: one alone is served.
    assert tell(shared, 9) == Story(200, BOUND, "length", None)


@pytest.mark.parametrize("said", [{}, {"kv_pool": POOL_TOKENS}], ids=["presumed", "configured"])
def test_behind_the_gateway_all_four_come_to_their_own_end(
    shared: str, said: dict[str, int], tmp_path: Path
) -> None:
    settings = {"listen": "127.0.0.1:0", "backends": [{"url": shared, **said}]}
    with gateway("-c", write_config(tmp_path / "a.yaml", settings)) as front:
        stories = tell_all(front.url)
        slots = ask(front.url, "GET", "/slots").json()

    assert stories == [Story(200, BOUND, "length", None)] * CHATS
    assert not any(slot["is_processing"] for slot in slots)


def test_chats_without_a_bound_end_where_the_others_still_have_room(shared: str) -> None:
    with gateway("--backend", shared) as front:
        stories = tell_all(front.url, chats=12, bound=None)

    assert [(story.status, story.finish, story.error) for story in stories] == [
        (200, "length", None)
    ] * 12
    assert all(story.tokens > 100 for story in stories)


def test_whole_answers_are_not_killed_either(shared: str) -> None:
    body = chat("story", max_tokens=BOUND, ignore_eos=True)
    with gateway("--backend", shared) as front, ThreadPoolExecutor(CHATS) as clients:
        answers = list(clients.map(lambda _: ask(front.url, "POST", CHAT, body), range(CHATS)))

    assert [answer.status for answer in answers] == [200] * CHATS
    assert [answer.json()["usage"]["completion_tokens"] for answer in answers] == [BOUND] * CHATS
