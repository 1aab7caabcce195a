"""What the stub reads in a body, and what it refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slotgate.stub.ask import Ask, AskError, read_ask
from slotgate.stub.shapes import Shape


def ask(shape: Shape, **body: Any) -> Ask:
    return read_ask(shape, json.dumps(body).encode(), slots=4, ping_interval=30)


def sizes(shape: Shape, **body: Any) -> list[int]:
    return [prompt.tokens for prompt in ask(shape, **body).prompts]


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [
        ("", [0]),
        ("12345", [2]),
        ([1, 2, 3], [3]),
        (["1234", "12345678"], [1, 2]),
        ([[1, 2], "1234"], [2, 1]),
        (["1234", 5, "12345678"], [4]),
        ({"prompt_string": "1234"}, [1]),
        ([{"prompt_string": "12345678"}, "1234"], [2, 1]),
    ],
)
def test_a_prompt_is_a_text_or_tokens_or_a_list_of_such(prompt: Any, tokens: list[int]) -> None:
    assert sizes(Shape.NATIVE, prompt=prompt) == tokens


@pytest.mark.parametrize("prompt", [5, True, [[1], 2.5], [["a", []]], {"prompt_string": 1}])
def test_anything_else_is_no_prompt(prompt: Any) -> None:
    with pytest.raises(AskError, match='"prompt" elements must be a string'):
        ask(Shape.NATIVE, prompt=prompt)


@pytest.mark.parametrize(
    ("fields", "bound"),
    [
        ({}, None),
        ({"max_tokens": 7}, 7),
        ({"max_tokens": 7, "max_completion_tokens": 6}, 6),
        ({"max_tokens": 7, "max_completion_tokens": 6, "n_predict": 5}, 5),
        ({"n_predict": None, "max_tokens": 7}, 7),
        ({"n_predict": -1, "max_tokens": 7}, None),
        ({"n_predict": 0}, 0),
        ({"max_tokens": 3.9}, 3),
    ],
)
def test_of_the_names_for_the_bound_the_oldest_wins(
    fields: dict[str, Any], bound: int | None
) -> None:
    assert ask(Shape.NATIVE, prompt="a", **fields).max_tokens == bound


def test_responses_have_their_own_name_for_the_bound() -> None:
    assert ask(Shape.RESPONSES, input="a", max_output_tokens=9).max_tokens == 9
    assert ask(Shape.RESPONSES, input="a", max_tokens=8).max_tokens == 8


@pytest.mark.parametrize(
    ("given", "slot"), [(None, None), (-1, None), ("1", None), (True, None), (1.9, 1), (7, 7)]
)
def test_a_slot_is_a_number_or_none(given: Any, slot: int | None) -> None:
    assert ask(Shape.NATIVE, prompt="a", id_slot=given).slot == slot


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n": 0}, "Field 'n': Value must be between 1 <= value <= 4, but got 0"),
        ({"n_cmpl": 5}, "Field 'n_cmpl': Value must be between 1 <= value <= 4, but got 5"),
        ({"n": {}}, "Field 'n': .* type must be number, but is object"),
        ({"stream": 1}, "Field 'stream': .* type must be boolean, but is number"),
        ({"max_tokens": []}, "Field 'max_tokens': .* type must be number, but is array"),
        ({"max_tokens": True}, "Field 'max_tokens': .* type must be number, but is boolean"),
        ({"sse_ping_interval": -2}, "Field 'sse_ping_interval'"),
    ],
)
def test_a_field_of_a_wrong_kind_is_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(AskError, match=message):
        ask(Shape.NATIVE, prompt="a", **fields)


def test_usage_progress_and_pings_are_asked_for() -> None:
    found = ask(
        Shape.CHAT,
        messages=[],
        stream=True,
        stream_options={"include_usage": True},
        return_progress=True,
        sse_ping_interval=5,
        cache_prompt=False,
        timings_per_token=True,
    )
    assert (found.include_usage, found.progress, found.ping_interval) == (True, True, 5)
    assert (found.uses_cache, found.timings_per_token, found.n) == (False, True, 1)
    assert ask(Shape.CHAT, messages=[], stream_options=3).include_usage is False


def test_what_embeds_is_never_a_stream() -> None:
    assert ask(Shape.EMBEDDING, content="a", stream=True).stream is False


def test_all_the_text_of_a_conversation_counts() -> None:
    plain = sizes(Shape.CHAT, messages=[{"role": "user", "content": "x" * 40}])
    parts = [{"type": "text", "text": "x" * 20}, "y" * 20]
    assert sizes(Shape.CHAT, messages=[{"role": "user", "content": parts}]) == plain
    assert sizes(Shape.RESPONSES, input="x" * 40) == plain
    assert sizes(Shape.MESSAGES, messages=[{"role": "user", "content": "x" * 40}]) == plain
    with_system = sizes(Shape.RESPONSES, input="x" * 40, instructions="be brief")
    assert with_system > plain
    messages = [{"role": "user", "content": "x" * 40}]
    assert sizes(Shape.MESSAGES, messages=messages, system="be brief") == with_system
    tool = [{"type": "tool_result", "content": [{"type": "text", "text": "found"}]}]
    assert sizes(Shape.MESSAGES, messages=[{"role": "user", "content": tool}])[0] > 10


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        (["hi"], "an array of objects"),
        ([{"role": "user", "content": 5}], "Invalid 'content' type"),
    ],
)
def test_a_conversation_must_be_one(messages: Any, message: str) -> None:
    with pytest.raises(AskError, match=message):
        ask(Shape.CHAT, messages=messages)


def test_an_assistant_may_have_said_nothing() -> None:
    assert sizes(Shape.CHAT, messages=[{"role": "assistant"}])[0] > 0


def test_documents_are_read_with_their_query() -> None:
    assert sizes(Shape.RERANK, query="1234", documents=["", "5678"]) == [1, 2]
    assert sizes(Shape.RERANK, query="1234", texts=["5678"]) == [2]
    assert sizes(Shape.OPENAI_EMBEDDING, input=["1234", "12345678"]) == [1, 2]


@pytest.mark.parametrize("body", [b"{", b"[1]", b"7", b'"x"', b"\xff"])
def test_a_body_must_be_an_object(body: bytes) -> None:
    with pytest.raises(AskError, match=r"json\.exception"):
        read_ask(Shape.NATIVE, body, slots=1, ping_interval=30)
