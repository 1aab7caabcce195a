"""Counts of every shape are read in our words, and nonsense counts nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotgate.wire.usage import (
    WHOLE_BODY_BYTES,
    Usage,
    usage_of_answer,
    usage_of_body,
    usage_of_messages,
    usage_of_native,
    usage_of_openai,
    usage_of_timings,
)

TIMINGS = {
    "cache_n": 30,
    "prompt_n": 12,
    "prompt_ms": 228.5,
    "predicted_n": 17,
    "predicted_ms": 175.25,
}
ALL = Usage(
    input_tokens=42, cached_tokens=30, output_tokens=17, prompt_ms=228.5, predicted_ms=175.25
)
COUNTS = Usage(input_tokens=42, cached_tokens=30, output_tokens=17)
OPENAI = {
    "completion_tokens": 17,
    "prompt_tokens": 42,
    "total_tokens": 59,
    "prompt_tokens_details": {"cached_tokens": 30},
}
RESPONSES = {
    "input_tokens": 42,
    "output_tokens": 17,
    "total_tokens": 59,
    "input_tokens_details": {"cached_tokens": 30},
}
MESSAGES = {"cache_read_input_tokens": 30, "input_tokens": 12, "output_tokens": 17}
NATIVE = {"tokens_predicted": 17, "tokens_evaluated": 42, "timings": TIMINGS}
JUNK: list[Any] = [None, 3, "x", [], [1], True, {}, {"cache_n": "3"}]


def test_timings_count_the_cached_part_apart() -> None:
    assert usage_of_timings(TIMINGS) == ALL


@pytest.mark.parametrize("usage", [OPENAI, RESPONSES])
def test_openais_counts_have_the_cached_part_inside(usage: dict[str, Any]) -> None:
    assert usage_of_openai(usage) == COUNTS
    assert usage_of_openai(usage, TIMINGS) == ALL


def test_anthropics_counts_have_the_cached_part_outside() -> None:
    assert usage_of_messages(MESSAGES) == COUNTS
    assert usage_of_messages(MESSAGES | {"cache_creation_input_tokens": 5}).input_tokens == 47


def test_the_final_object_of_llama_cpp_counts() -> None:
    assert usage_of_native(NATIVE) == ALL
    assert usage_of_native({"timings": TIMINGS}) == ALL


def test_parts_add_up() -> None:
    assert (
        Usage(
            input_tokens=84,
            cached_tokens=60,
            output_tokens=34,
            prompt_ms=228.5,
            predicted_ms=175.25,
        )
        == ALL + COUNTS
    )


@pytest.mark.parametrize("junk", JUNK)
def test_nonsense_counts_nothing(junk: Any) -> None:
    for read in (usage_of_timings, usage_of_openai, usage_of_messages, usage_of_native):
        assert read(junk) == Usage()
    assert usage_of_answer(junk) is None


@pytest.mark.parametrize("count", [-1, "7", True, 1.5e300, float("nan"), float("inf"), None, [7]])
def test_a_count_that_is_none_counts_nothing(count: Any) -> None:
    assert usage_of_openai({"prompt_tokens": count}).input_tokens == 0
    assert usage_of_timings({"prompt_ms": "1"}).prompt_ms == 0
    assert usage_of_timings({"prompt_ms": -1.0}).prompt_ms == 0


def test_a_count_may_be_written_as_a_fraction() -> None:
    assert usage_of_openai({"prompt_tokens": 7.0}).input_tokens == 7


@pytest.mark.parametrize(
    ("answer", "usage"),
    [
        ({"choices": [], "usage": OPENAI, "timings": TIMINGS}, ALL),
        ({"object": "response", "usage": RESPONSES}, COUNTS),
        ({"type": "message", "usage": MESSAGES}, COUNTS),
        (NATIVE, ALL),
        ([NATIVE, NATIVE], ALL + ALL),
        (
            {"object": "list", "usage": {"prompt_tokens": 8, "total_tokens": 8}},
            Usage(input_tokens=8),
        ),
        ([{"index": 0, "embedding": [[0.1]]}], None),
        ({"error": {"code": 500}}, None),
        ({"usage": {}}, None),
    ],
)
def test_a_whole_answer_of_any_shape_counts(answer: Any, usage: Usage | None) -> None:
    assert usage_of_answer(answer) == usage


ANSWERS: list[Any] = [
    {"choices": [], "usage": OPENAI, "timings": TIMINGS},
    {"type": "message", "usage": MESSAGES},
    {"object": "list", "usage": {"prompt_tokens": 8}, "data": [{"embedding": [0.1]}]},
    {"index": 0, "content": "tokens_evaluated", "stop": True, **NATIVE},
    [NATIVE, NATIVE],
    [{"index": 0, "embedding": [[0.1]]}],
    {"error": {"code": 500, "message": '{"usage":{"prompt_tokens":9}}'}},
    ["usage"],
    "usage",
]


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_body_counts_what_its_answer_counts(answer: Any) -> None:
    usage = usage_of_answer(answer)
    assert usage_of_body(json.dumps(answer).encode()) == usage
    assert usage_of_body(b"  " + json.dumps(answer, indent=1).encode() + b"\n") == usage


# More than is read as a whole.
MUCH = [0.5] * 400_000


@pytest.mark.parametrize(
    ("answer", "usage"),
    [
        (
            {"model": "m", "object": "list", "usage": {"prompt_tokens": 8}, "data": MUCH},
            Usage(input_tokens=8),
        ),
        ({"model": "m", "usage": OPENAI, "results": MUCH}, COUNTS),
        ({"data": MUCH, "model": "m", "usage": OPENAI}, COUNTS),
        ({"choices": MUCH, "id": "x", "usage": OPENAI, "timings": TIMINGS}, ALL),
        ({"type": "message", "content": MUCH, "usage": MESSAGES}, COUNTS),
        ({"content": "x", **NATIVE, "completion_probabilities": MUCH}, ALL),
        (
            {"tokens_predicted": 17, "tokens_evaluated": 42, "prompt": "x" * 70_000, "probs": MUCH},
            Usage(input_tokens=42, output_tokens=17),
        ),
        ({"content": "x", "tokens": MUCH, **NATIVE}, ALL),
        ({"choices": MUCH, "usage": OPENAI, "__verbose": "x" * 70_000, "timings": TIMINGS}, ALL),
        ({"choices": [{"usage": OPENAI}], "data": MUCH}, None),
        ({"data": MUCH, "choices": [{"usage": OPENAI}]}, None),
        ({"data": MUCH, "choices": {"timings": TIMINGS}}, None),
        ({"text": '"usage":{"prompt_tokens":9}}', "data": MUCH}, None),
        ({"data": MUCH, "text": '"usage":{"prompt_tokens":9}}'}, None),
        ([NATIVE, MUCH, NATIVE], None),
        ({"data": MUCH}, None),
        (MUCH, None),
    ],
)
def test_a_large_body_counts_what_stands_at_its_beginning_or_end(
    answer: Any, usage: Usage | None
) -> None:
    body = json.dumps(answer, separators=(",", ":")).encode()
    assert len(body) > WHOLE_BODY_BYTES
    assert usage_of_body(body) == usage


@given(st.binary(max_size=30), st.sampled_from([b"", b'{"usage":{', b'{"tokens_evaluated":']))
def test_no_bytes_raise(noise: bytes, mark: bytes) -> None:
    for body in (mark + noise, mark + noise + b" " * WHOLE_BODY_BYTES + mark + noise):
        usage = usage_of_body(body)
        assert usage is None or isinstance(usage, Usage)


@given(
    st.recursive(
        st.none() | st.integers() | st.floats() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from([*OPENAI, *RESPONSES, *MESSAGES, *NATIVE, *TIMINGS, "usage"]), inner
            )
        ),
        max_leaves=8,
    )
)
def test_any_answer_is_read(answer: Any) -> None:
    usage = usage_of_answer(answer)
    assert usage is None or min(usage.input_tokens, usage.output_tokens, usage.prompt_ms) >= 0
    assert json.dumps(usage is None)
