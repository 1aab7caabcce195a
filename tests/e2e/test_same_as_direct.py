"""What llama.cpp answers directly it answers through the gateway, byte for byte.

The same seeded requests go both ways to one real server.  Put aside is only what differs between
two runs of one request anyway: ids, times, speeds, and how much was cached (tests/wire/compare.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.asking import Answer, ask, wait_until
from tests.wire.cases import CASES, TOOLS, Case
from tests.wire.compare import settled, settled_stream

if TYPE_CHECKING:
    from tests.e2e.conftest import Pair

pytestmark = [pytest.mark.llama, pytest.mark.process]

# One of each kind; tests/wire compares the rest with recordings.
CHOSEN = (
    "chat_cut_by_the_limit",
    "chat_cached_tokens",
    "chat_stop_word",
    "chat_several_choices",
    "chat_json_schema",
    "chat_emoji_first",
    "chat_logprobs_without_top",
    "chat_prefilled",
    "chat_bad_grammar",
    "chat_without_messages",
    "chat_reasoning",
    "text_plain",
    "text_stop_word",
    "native_plain",
    "native_tokens",
    "native_timings_per_token",
    "native_wrong_field",
    "responses_cut_by_the_limit",
    "responses_without_input",
    "messages_cut_by_the_limit",
    "messages_without_messages",
)
# A stream of several prompts begins with the frame `data: null`, but not when progress is asked
# for, as the gateway does.
CHOSEN_WHOLE = (*CHOSEN, "native_list", "native_probabilities")
BY_NAME = {case.name: case for case in CASES}


def both(pair: Pair, method: str, path: str, body: Any = None) -> tuple[Answer, Answer]:
    return ask(pair.direct, method, path, body), ask(pair.url, method, path, body)


@pytest.fixture
def pair(request: pytest.FixtureRequest, case: Case) -> Pair:
    name = "calling_llama" if case.server == TOOLS else "llama"
    found: Pair = request.getfixturevalue(name)
    if case.finds_itself_cached:
        ask(found.direct, "POST", case.path, case.request)
    return found


@pytest.mark.parametrize("case", [BY_NAME[name] for name in CHOSEN_WHOLE], ids=CHOSEN_WHOLE)
def test_whole_answers_are_the_same(pair: Pair, case: Case) -> None:
    direct, through = both(pair, "POST", case.path, case.request)

    assert through.status == direct.status
    assert through.headers["content-type"] == direct.headers["content-type"]
    assert settled(through.body) == settled(direct.body)


@pytest.mark.parametrize("case", [BY_NAME[name] for name in CHOSEN], ids=CHOSEN)
def test_streams_are_the_same_frame_for_frame(pair: Pair, case: Case) -> None:
    direct, through = both(pair, "POST", case.path, {**case.request, "stream": True})

    assert through.status == direct.status
    assert through.headers["content-type"] == direct.headers["content-type"]
    if direct.status == 200:
        assert settled_stream(through.body) == settled_stream(direct.body)
    else:
        assert settled(through.body) == settled(direct.body)


PLAIN_REQUESTS: list[tuple[str, str, Any]] = [
    ("POST", "/tokenize", {"content": "Hello world", "with_pieces": True}),
    ("POST", "/detokenize", {"tokens": [504, 6632, 314]}),
    ("POST", "/apply-template", {"messages": [{"role": "user", "content": "Hi"}]}),
    ("POST", "/v1/chat/completions/input_tokens", {"messages": [{"role": "user", "content": "a"}]}),
    ("POST", "/v1/responses/input_tokens", {"input": "Hi"}),
    ("POST", "/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "Hi"}]}),
    ("GET", "/props", None),
    ("GET", "/v1/models", None),
    ("GET", "/models", None),
    ("GET", "/lora-adapters", None),
    ("HEAD", "/props", None),
    ("HEAD", "/v1/models", None),
    ("POST", "/props", {}),
    ("POST", "/tokenize", b"{not json"),
    ("POST", "/v1/embeddings", {"input": "Hello"}),
    ("POST", "/v1/rerank", {"query": "a", "documents": ["b"]}),
]
IDS = [f"{method} {path}" for method, path, _ in PLAIN_REQUESTS]


@pytest.mark.parametrize(("method", "path", "body"), PLAIN_REQUESTS, ids=IDS)
def test_what_takes_no_slot_or_is_refused_is_the_same(
    llama: Pair, method: str, path: str, body: Any
) -> None:
    direct, through = both(llama, method, path, body)

    assert through.status == direct.status
    assert through.headers["content-type"] == direct.headers["content-type"]
    assert through.headers["content-length"] == direct.headers["content-length"]
    assert unmarked(through.body) == unmarked(direct.body)


def unmarked(body: bytes) -> bytes:
    """Take out when the list of models was made."""
    return re.sub(rb'"created":\d+', b"", body)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/chat/completions"),
        ("PUT", "/v1/chat/completions"),
        ("DELETE", "/props"),
        ("POST", "/slots"),
        ("PATCH", "/health"),
        ("GET", "/v1/no-such-path"),
        ("POST", "/api/chat"),
    ],
)
def test_wrong_methods_and_unknown_paths_are_not_found_in_the_same_way(
    llama: Pair, method: str, path: str
) -> None:
    direct, through = both(llama, method, path, {} if method != "GET" else None)

    assert through.status == direct.status == 404
    expected, told = direct.json()["error"], through.json()["error"]
    assert told["type"] == expected["type"]
    assert expected["message"] in told["message"]


@pytest.mark.parametrize("body", [b"{", b"[]", b"", b'{"messages":[],', b"\xff"])
def test_malformed_bodies_are_the_clients_fault_in_the_same_way(llama: Pair, body: bytes) -> None:
    direct, through = both(llama, "POST", "/v1/chat/completions", body)

    assert through.status == direct.status == 400
    assert through.json()["error"]["type"] == direct.json()["error"]["type"]


def test_the_slots_and_health_have_the_fields_of_llama_server(llama: Pair) -> None:
    ask(llama.url, "POST", "/completion", {"prompt": "Once", "n_predict": 1})
    slots = ask(llama.direct, "GET", "/slots").json()
    fields = {name for slot in slots for name in slot}

    wait_until(lambda: fields <= {name for slot in shown(llama) for name in slot})
    assert [slot["id"] for slot in shown(llama)] == [slot["id"] for slot in slots]
    health = ask(llama.url, "GET", "/health").json()
    assert health.items() >= ask(llama.direct, "GET", "/health").json().items()


def shown(pair: Pair) -> list[dict[str, Any]]:
    slots: list[dict[str, Any]] = ask(pair.url, "GET", "/slots").json()
    return slots
