"""A bound on an answer's length is put where the backend looks for it, and nothing else changes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotgate.wire.clamp import clamped, lowers
from slotgate.wire.request import Prepared, prepare
from slotgate.wire.routes import Shape, find_route

PATHS = {
    Shape.COMPLETION: "/completion",
    Shape.OPENAI_COMPLETION: "/v1/completions",
    Shape.CHAT: "/v1/chat/completions",
    Shape.RESPONSES: "/v1/responses",
    Shape.MESSAGES: "/v1/messages",
}
PROMPTS: dict[Shape, dict[str, Any]] = {
    Shape.COMPLETION: {"prompt": "hi"},
    Shape.OPENAI_COMPLETION: {"prompt": "hi"},
    Shape.CHAT: {"messages": [{"role": "user", "content": "hi"}]},
    Shape.RESPONSES: {"input": "hi"},
    Shape.MESSAGES: {"messages": [{"role": "user", "content": "hi"}]},
}


def prepared(shape: Shape, **fields: Any) -> Prepared:
    route = find_route("POST", PATHS[shape])
    assert route is not None
    body = json.dumps({**PROMPTS[shape], **fields}).encode()
    return prepare(route, body, content_type="application/json")


@pytest.mark.parametrize(
    ("shape", "name"),
    [
        (Shape.COMPLETION, "n_predict"),
        (Shape.OPENAI_COMPLETION, "max_tokens"),
        (Shape.CHAT, "max_tokens"),
        (Shape.RESPONSES, "max_output_tokens"),
        (Shape.MESSAGES, "max_tokens"),
    ],
)
def test_a_request_without_a_bound_gets_its_routes_own(shape: Shape, name: str) -> None:
    request = prepared(shape)
    before, after = json.loads(request.body), json.loads(clamped(shape, request.body, 7))
    assert after == {**before, name: 7}


@pytest.mark.parametrize(
    ("shape", "fields", "name"),
    [
        (Shape.CHAT, {"max_tokens": 90, "max_completion_tokens": 80}, "max_completion_tokens"),
        (Shape.CHAT, {"max_completion_tokens": 80, "n_predict": 70}, "n_predict"),
        (Shape.CHAT, {"max_completion_tokens": None, "max_tokens": 90}, "max_tokens"),
        (Shape.COMPLETION, {"n_predict": -1}, "n_predict"),
        (Shape.COMPLETION, {"max_tokens": 90}, "max_tokens"),
        (Shape.RESPONSES, {"max_tokens": 90}, "max_tokens"),
        (Shape.RESPONSES, {"max_output_tokens": 90, "max_tokens": 10}, "max_output_tokens"),
        (Shape.MESSAGES, {"max_tokens": 90, "n_predict": 5}, "max_tokens"),
    ],
)
def test_the_name_that_counts_for_the_backend_is_lowered(
    shape: Shape, fields: dict[str, Any], name: str
) -> None:
    request = prepared(shape, **fields)
    before, after = json.loads(request.body), json.loads(clamped(shape, request.body, 7))
    assert after == {**before, name: 7}


@pytest.mark.parametrize(
    ("fields", "clamp", "expected"),
    [
        ({"max_tokens": 90}, 89, True),
        ({"max_tokens": 90}, 90, False),
        ({"max_tokens": 90}, 400, False),
        ({}, 400, True),
        ({}, None, False),
    ],
)
def test_a_clamp_only_ever_lowers(
    fields: dict[str, Any], clamp: int | None, expected: bool
) -> None:
    assert lowers(Shape.CHAT, prepared(Shape.CHAT, **fields), clamp) is expected


def test_what_generates_nothing_is_not_clamped() -> None:
    route = find_route("POST", "/v1/embeddings")
    assert route is not None
    request = prepare(route, b'{"input":"hi"}', content_type="application/json")
    assert not lowers(Shape.EMBEDDING, request, 5)


@given(
    shape=st.sampled_from(list(PATHS)),
    bounds=st.dictionaries(
        st.sampled_from(["n_predict", "max_completion_tokens", "max_tokens", "max_output_tokens"]),
        st.one_of(st.none(), st.integers(-1, 500)),
    ),
    clamp=st.integers(1, 500),
)
def test_after_a_clamp_the_bound_that_counts_is_the_clamp(
    shape: Shape, bounds: dict[str, int | None], clamp: int
) -> None:
    request = prepared(shape, **bounds)
    again = prepared(shape, **json.loads(clamped(shape, request.body, clamp)))
    assert again.output_tokens == clamp
