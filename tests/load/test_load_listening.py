"""What a client understands of a stream, and what it sends for one."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotgate.load.asking import Asking
from slotgate.load.listening import Listener, error_code
from tests.load.records import ARRIVAL


def event(**fields: object) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def delta(**fields: object) -> bytes:
    return event(choices=[{"delta": fields}])


STREAM = [
    delta(role="assistant", content=None),
    b": a comment\n\n",
    delta(content="one"),
    delta(content="two"),
    delta(reasoning_content="three"),
    event(choices=[{"delta": {}, "finish_reason": "length"}]),
    b"data: [DONE]\n\n",
]


def heard(*parts: bytes) -> Listener:
    listener = Listener()
    for at, part in enumerate(parts):
        listener.feed(part, float(at))
    return listener


def test_the_first_token_is_the_first_text_not_the_first_event() -> None:
    listener = heard(*STREAM)
    assert (listener.first_at, listener.last_at) == (2.0, 4.0)
    assert listener.output_tokens == 3
    assert listener.tpot == 1.0
    assert listener.is_finished


@given(st.lists(st.integers(0, 400), max_size=12))
def test_a_stream_is_understood_however_it_is_cut(cuts: list[int]) -> None:
    whole = b"".join(STREAM)
    places = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    parts = [whole[a:b] for a, b in pairwise(places)]
    listener = heard(*parts)
    assert listener.output_tokens == 3
    assert listener.is_finished


def test_the_servers_own_count_is_believed() -> None:
    usage = {"prompt_tokens": 17, "completion_tokens": 8}
    listener = heard(*STREAM, event(choices=[], usage=usage))
    assert (listener.input_tokens, listener.output_tokens) == (17, 8)


def test_an_error_within_a_stream_is_kept_and_the_stream_is_not_finished() -> None:
    listener = heard(delta(content="one"), event(error={"code": 500, "message": "context"}))
    assert listener.error == "500"
    assert not listener.is_finished


def test_what_is_no_event_is_an_error_or_nothing() -> None:
    assert heard(b"data: {oops\n\n").error == "malformed_event"
    listener = heard(b"data: 7\n\n", event(choices=[7, {"delta": 7}], usage=7), delta())
    assert (listener.output_tokens, listener.first_at, listener.tpot) == (0, None, None)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"error": {"code": "queue_full", "type": "busy"}}, "queue_full"),
        ({"error": {"type": "busy"}}, "busy"),
        ({"error": {"message": "no"}}, "error"),
        ({"error": "no"}, "error"),
        ({}, ""),
        (None, ""),
    ],
)
def test_the_reason_of_a_refusal_is_its_code(body: object, code: str) -> None:
    assert error_code(body) == code


def test_a_prompt_has_about_as_many_words_as_tokens_and_differs_each_time() -> None:
    dice, asking = Random(1), Asking(model="m", template_tokens=10)
    arrival = replace(ARRIVAL, input_tokens=500, output_tokens=30, max_tokens=20, width=2)
    bodies = [json.loads(asking.body(arrival, dice)) for _ in range(50)]
    prompts = [body["messages"][0]["content"] for body in bodies]
    assert all(len(prompt.split()) == 490 for prompt in prompts)
    assert len(set(prompts)) == 50
    # A server that keeps what it has read must not find a long common beginning.
    assert len({prompt[:40] for prompt in prompts}) > 40
    assert (bodies[0]["model"], bodies[0]["max_tokens"], bodies[0]["n"]) == ("m", 20, 2)
    assert "ignore_eos" not in bodies[0]


def test_exact_lengths_are_asked_for_in_the_words_of_llama_cpp() -> None:
    body = json.loads(Asking(exact_lengths=True).body(ARRIVAL, Random(1)))
    assert body["ignore_eos"] is True
    assert body["cache_prompt"] is False
    assert "model" not in body


def test_prompts_of_one_session_begin_alike_and_may_be_found_in_a_cache() -> None:
    asking = Asking(exact_lengths=True, template_tokens=0)
    arrival = replace(ARRIVAL, input_tokens=100, session="s")
    later, other = replace(arrival, input_tokens=150), replace(arrival, session="t")
    bodies = [json.loads(asking.body(each, Random(1))) for each in (arrival, later, other)]
    first, second, third = (body["messages"][0]["content"] for body in bodies)
    assert second.startswith(first)
    assert not third.startswith(first[:40])
    assert [body["prompt_cache_key"] for body in bodies] == ["s", "s", "t"]
    assert bodies[0]["cache_prompt"] is True
