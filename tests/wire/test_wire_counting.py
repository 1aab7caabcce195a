"""What a backend is asked about the length of prompts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from slotgate.wire.counting import Question, question_of
from slotgate.wire.routes import find_route

TOKENIZE = b'{"content":%b,"add_special":true}'


def asked(path: str, body: dict[str, Any]) -> Question | None:
    route = find_route("POST", path)
    assert route is not None
    return question_of(route, msgspec.json.encode(body))


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/chat/completions", "/v1/chat/completions/input_tokens"),
        ("/v1/responses", "/v1/responses/input_tokens"),
        ("/v1/messages", "/v1/messages/count_tokens"),
    ],
)
def test_chats_go_whole_to_the_route_that_counts_them(path: str, target: str) -> None:
    body = {"messages": [], "input": ""}
    assert asked(path, body) == Question(target, (msgspec.json.encode(body),))


@pytest.mark.parametrize(
    ("prompt", "bodies", "known"),
    [
        ("a", [b'"a"'], []),
        (["a", "b"], [b'"a"', b'"b"'], []),
        ([1, 2, 3], [], [3]),
        ([1, "a", 3], [b'[1,"a",3]'], []),
        (["a", 3], [b'["a",3]'], []),
        ([[1, 2], [3]], [], [2, 1]),
        (["a", [1, 2], [1, "b"]], [b'"a"', b'[1,"b"]'], [2]),
    ],
)
def test_texts_are_made_tokens_and_tokens_are_counted(
    prompt: Any, bodies: list[bytes], known: list[int]
) -> None:
    question = asked("/v1/completions", {"prompt": prompt})
    assert question == ("/tokenize", tuple(TOKENIZE % body for body in bodies), tuple(known))


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/infill", {"prompt": "a", "input_prefix": "b", "input_suffix": "c"}),
        ("/v1/embeddings", {"input": "a"}),
        ("/completion", {}),
        ("/completion", {"prompt": None}),
        ("/completion", {"prompt": ["a"] * 17}),
        ("/completion", {"prompt": {"prompt_string": "a", "multimodal_data": []}}),
    ],
)
def test_what_cannot_be_counted_without_a_slot_is_not_asked_for(
    path: str, body: dict[str, Any]
) -> None:
    assert asked(path, body) is None
