"""Streams that the recorded server never sent: broken, old, foreign, hostile."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotgate.errors import BrokenAnswerError
from slotgate.wire.assemble import Assembled, assembler
from slotgate.wire.request import Prepared
from slotgate.wire.routes import Shape
from slotgate.wire.usage import Usage
from tests.wire.replay import BY_NAME, RECORDINGS, pieces_of, shape_of
from tests.wire.test_wire_relay import FRAGMENTS

GENERATIONS = [
    Shape.COMPLETION,
    Shape.OPENAI_COMPLETION,
    Shape.CHAT,
    Shape.RESPONSES,
    Shape.MESSAGES,
]
DONE = b"data: [DONE]\n\n"
FAILED = {"code": 500, "message": "Context size has been exceeded.", "type": "server_error"}


def event(name: str, **data: Any) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), json.dumps({"type": name, **data}).encode())


def frame(**data: Any) -> bytes:
    return b"data: " + json.dumps(data, separators=(",", ":")).encode() + b"\n\n"


def delta(finish_reason: str | None = None, index: int = 0, **fields: Any) -> bytes:
    choice = {"finish_reason": finish_reason, "index": index, "delta": fields}
    return frame(choices=[choice], created=1, id="c", model="m", object="chat.completion.chunk")


def assembled(shape: Shape, *pieces: bytes, **options: Any) -> Assembled:
    assembly = assembler(shape, Prepared(body=b"", **options))
    for piece in pieces:
        assembly.feed(piece)
    return assembly.finish()


def answer(shape: Shape, *pieces: bytes, **options: Any) -> Any:
    result = assembled(shape, *pieces, **options)
    assert result.status == 200
    return json.loads(result.body)


# Errors and ends.


@pytest.mark.parametrize("shape", GENERATIONS)
@pytest.mark.parametrize(
    "error",
    [
        frame(error=FAILED),
        b"event: error\ndata: " + json.dumps(FAILED).encode() + b"\n\n",
        b"error: " + json.dumps(FAILED).encode() + b"\n\n" + DONE,
        b"error: " + json.dumps({"error": FAILED}).encode() + b"\r\n\r\n",
    ],
)
def test_an_error_inside_the_stream_is_the_answer_the_server_gives(
    shape: Shape, error: bytes
) -> None:
    result = assembled(shape, error, b"data: what comes after it is not looked at\n\n")
    assert result.status == 500
    assert json.loads(result.body) == {"error": FAILED}
    assert result.usage is None


@pytest.mark.parametrize(("code", "status"), [(503, 503), (200, 500), ("x", 500), (None, 500)])
def test_an_error_without_a_status_is_a_servers_fault(code: Any, status: int) -> None:
    assert assembled(Shape.CHAT, frame(error={"message": "m", "code": code})).status == status


@pytest.mark.parametrize("shape", GENERATIONS)
def test_a_router_whose_backend_died_ends_the_stream_with_a_bare_line(shape: Shape) -> None:
    result = assembled(shape, b": ping\n\nproxy error: Failed to read connection")
    assert result.status == 500
    message = json.loads(result.body)["error"]["message"]
    assert message == "proxy error: Failed to read connection"


@pytest.mark.parametrize("name", ["chat_two_calls", "native_list", "messages_two_calls"])
def test_an_answer_without_its_end_is_broken(name: str) -> None:
    case = BY_NAME[name]
    stream = RECORDINGS[name].upstream[1].encode()
    frames = [piece + b"\n\n" for piece in stream.split(b"\n\n") if piece]
    for end in range(len(frames) - 1):
        with pytest.raises(BrokenAnswerError, match="ended before"):
            assembled(shape_of(case), *frames[:end], width=2 if "list" in name else 1)


@pytest.mark.parametrize("shape", GENERATIONS)
@pytest.mark.parametrize("stream", [b"", b" \n", b": ping\n\n", b"data:\n\n", b"data: null\n\n"])
def test_an_empty_stream_is_broken(shape: Shape, stream: bytes) -> None:
    with pytest.raises(BrokenAnswerError):
        assembled(shape, stream)


@pytest.mark.parametrize(
    ("shape", "stream"),
    [
        (Shape.CHAT, b"data: nonsense\n\n"),
        (Shape.CHAT, b'data: {"choices":3}\n\n'),
        (Shape.CHAT, b'data: {"choices":[{"index":"0"}]}\n\n'),
        (Shape.CHAT, b'data: {"choices":[{"delta":{"content":3}}]}\n\n'),
        (Shape.CHAT, b'data: {"choices":[{"delta":{"tool_calls":[3]}}]}\n\n'),
        (Shape.CHAT, b'data: {"choices":[{"delta":{"content":"\xff"}}]}\n\n'),
        (Shape.CHAT, b"data: " + b"[" * 100_000 + b"\n\n"),
        (Shape.OPENAI_COMPLETION, b'data: {"choices":[{"text":[]}]}\n\n'),
        (Shape.COMPLETION, b"data: [1]\n\n"),
        (Shape.COMPLETION, b'data: {"content":3}\n\n'),
        (Shape.RESPONSES, b"event: response.completed\ndata: {}\n\n"),
        (Shape.RESPONSES, b'event: response.completed\ndata: {"response":{"output":3}}\n\n'),
        (Shape.MESSAGES, b'data: {"type":"message_start","message":3}\n\n'),
        (Shape.MESSAGES, b"data: [1]\n\n"),
    ],
)
def test_an_event_that_is_none_is_a_broken_answer(shape: Shape, stream: bytes) -> None:
    with pytest.raises(BrokenAnswerError, match="sent an event that is none"):
        assembled(shape, stream)


@pytest.mark.parametrize("pieces", [[b'{"x":1}'], [b"", b' \n{"x"', b":1}"], [b"{", b'"x":1}']])
def test_an_answer_that_is_no_stream_is_the_answer(pieces: list[bytes]) -> None:
    result = assembled(Shape.CHAT, *pieces)
    assert (result.status, json.loads(result.body)) == (200, {"x": 1})


def test_an_answer_that_is_no_stream_is_counted() -> None:
    result = assembled(Shape.CHAT, b'{"usage":{"prompt_tokens":3,"completion_tokens":2}}')
    assert result.usage == Usage(input_tokens=3, output_tokens=2)
    assert assembled(Shape.COMPLETION, b'[{"tokens_evaluated":3}]').usage == Usage(input_tokens=3)


def test_an_error_that_is_no_stream_keeps_its_status() -> None:
    result = assembled(Shape.CHAT, b'{"error":{"code":400,"message":"m"}}')
    assert result.status == 400


@pytest.mark.parametrize("body", [b"{", b"[1,", b'{"a":"\xff"}', b"[" * 100_000])
def test_an_answer_that_is_neither_is_broken(body: bytes) -> None:
    with pytest.raises(BrokenAnswerError, match="not JSON"):
        assembled(Shape.CHAT, body)


# Chat.


def test_an_old_build_without_usage_is_put_together_all_the_same() -> None:
    found = answer(
        Shape.CHAT, delta(role="assistant", content="Hi"), delta("stop"), b"data: [DONE]\r\n\r\n"
    )
    assert found["choices"] == [
        {
            "finish_reason": "stop",
            "index": 0,
            "message": {"role": "assistant", "content": "Hi"},
        }
    ]
    assert found["object"] == "chat.completion"
    assert "usage" not in found
    assert "timings" not in found


def test_names_of_calls_are_replaced_and_arguments_added() -> None:
    def call(**fields: Any) -> bytes:
        return delta(tool_calls=[{"index": 0, **fields}])

    found = answer(
        Shape.CHAT,
        call(id="a", type="function", function={"name": "get"}),
        call(id="b", function={"name": "get_weather", "arguments": '{"a'}),
        call(function={"arguments": '":1}'}),
        call(),
        delta("tool_calls"),
        DONE,
    )
    assert found["choices"][0]["message"] == {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {
                "type": "function",
                "function": {"name": "get_weather", "arguments": '{"a":1}'},
                "id": "b",
            }
        ],
    }


def test_a_call_without_an_id_has_none() -> None:
    calls = [{"index": 1, "function": {"name": "b"}}, {"index": 0, "function": {"name": "a"}}]
    found = answer(Shape.CHAT, delta(tool_calls=calls), delta("tool_calls"), DONE)
    names = [call["function"]["name"] for call in found["choices"][0]["message"]["tool_calls"]]
    assert names == ["a", "b"]
    assert "id" not in found["choices"][0]["message"]["tool_calls"][0]


def test_choices_come_in_their_order_and_the_first_is_counted() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 1}
    found = answer(
        Shape.CHAT,
        delta(index=1, content="b"),
        delta("stop", index=1),
        frame(choices=[], usage=usage | {"completion_tokens": 9}, timings={"predicted_n": 9}),
        delta(index=0, content="a"),
        delta("length", index=0),
        frame(choices=[], usage=usage, timings={"predicted_n": 1}),
        DONE,
    )
    texts = [choice["message"]["content"] for choice in found["choices"]]
    assert texts == ["a", "b"]
    assert found["usage"] == usage
    assert found["timings"] == {"predicted_n": 1}


def test_the_first_choice_is_counted_though_another_ends_after_it() -> None:
    found = answer(
        Shape.CHAT,
        delta(index=0, content="a"),
        delta("length", index=0),
        frame(choices=[], usage={"completion_tokens": 1}, timings={"predicted_n": 1}),
        delta(index=1, content="b"),
        delta("stop", index=1),
        frame(choices=[], usage={"completion_tokens": 9}, timings={"predicted_n": 9}),
        DONE,
    )
    assert found["usage"] == {"completion_tokens": 1}
    assert found["timings"] == {"predicted_n": 1}


def test_probabilities_of_a_foreign_server_are_kept() -> None:
    logprobs = {"content": [{"token": "Hi", "logprob": -1e-05}]}
    choice = {"index": 0, "delta": {"content": "Hi"}, "logprobs": logprobs, "finish_reason": None}
    empty = {"index": 0, "delta": {}, "logprobs": {"content": None}, "finish_reason": "stop"}
    found = answer(Shape.CHAT, frame(choices=[choice]), frame(choices=[empty]), DONE)
    assert found["choices"][0]["logprobs"] == logprobs


def test_fields_that_are_new_are_kept() -> None:
    found = answer(
        Shape.CHAT, frame(choices=[{"index": 0, "finish_reason": "stop"}], service_tier="x"), DONE
    )
    assert found["service_tier"] == "x"


def test_a_stream_of_nothing_but_its_end_is_an_answer_without_choices() -> None:
    assert answer(Shape.CHAT, DONE) == {"choices": [], "object": "chat.completion"}
    assert answer(Shape.OPENAI_COMPLETION, DONE) == {"choices": []}


# llama.cpp's own.


def final(**fields: Any) -> bytes:
    return frame(index=0, content="", stop=True, **fields)


def test_the_tokens_of_a_character_that_never_ended_are_shown_as_one() -> None:
    found = answer(
        Shape.COMPLETION,
        frame(index=0, content="a", stop=False, tokens_predicted=1),
        final(tokens_predicted=3),
    )
    assert found["content"] == "a\N{REPLACEMENT CHARACTER}"


def test_settings_say_that_there_was_no_stream() -> None:
    settings = {"stop": ['"stream":true'], "stream": True, "n_probs": 0}
    found = answer(Shape.COMPLETION, final(generation_settings=settings))
    assert found["generation_settings"] == settings | {"stream": False}


def test_paths_choose_what_the_client_wants() -> None:
    found = answer(
        Shape.COMPLETION,
        frame(index=0, content="a", stop=False),
        final(generation_settings={"n_predict": 3, "deep": {"er": [1]}}, prompt=None),
        response_fields=(
            "content",
            "generation_settings/n_predict",
            "generation_settings/deep/er",
            "generation_settings/n_predict/x",
            "generation_settings/nothing",
            "nothing",
            "prompt",
            "",
        ),
    )
    assert found == {
        "content": "a",
        "generation_settings/n_predict": 3,
        "generation_settings/deep/er": [1],
        "prompt": None,
    }


# Anthropic's.


START = event(
    "message_start",
    message={
        "id": "c",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": "m",
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"cache_read_input_tokens": 1, "input_tokens": 2, "output_tokens": 0},
    },
)
END = event(
    "message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage={"x": 1}
) + event("message_stop")


def block(index: int, kind: str, **fields: Any) -> bytes:
    return event("content_block_start", index=index, content_block={"type": kind, **fields})


def more(index: int, kind: str, **fields: Any) -> bytes:
    return event("content_block_delta", index=index, delta={"type": kind, **fields})


def test_blocks_are_found_by_their_kind() -> None:
    found = answer(
        Shape.MESSAGES,
        START,
        block(0, "text", text=""),
        more(0, "text_delta", text="a"),
        block(1, "tool_use", id="t1", name="get"),
        more(1, "input_json_delta", partial_json='{"a":'),
        block(1, "text", text=""),
        more(1, "text_delta", text="b"),
        block(2, "tool_use", id="t1", name="get_weather"),
        more(2, "input_json_delta", partial_json=" 1 }"),
        block(0, "thinking", thinking=""),
        more(0, "thinking_delta", thinking="hm"),
        more(0, "signature_delta", signature="s"),
        block(3, "tool_use", id="t2", name="get_time"),
        more(3, "input_json_delta", partial_json='{"cut'),
        block(4, "redacted_thinking", data="x"),
        event("ping"),
        END,
    )
    assert found["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": ""},
        {"type": "text", "text": "ab"},
        {"type": "tool_use", "id": "t1", "name": "get_weather", "input": {"a": 1}},
        {"type": "tool_use", "id": "t2", "name": "get_time", "input": {}},
    ]
    assert found["stop_reason"] == "end_turn"
    assert found["usage"] == {
        "cache_read_input_tokens": 1,
        "input_tokens": 2,
        "output_tokens": 0,
        "x": 1,
    }


def test_a_piece_without_its_block_begins_one() -> None:
    found = answer(
        Shape.MESSAGES,
        START,
        more(0, "text_delta", text="a"),
        more(0, "text_delta", text=None),
        more(1, "input_json_delta", partial_json="{}"),
        END,
    )
    assert found["content"][0] == {"type": "text", "text": "a"}
    assert found["content"][1]["input"] == {}


def test_a_message_that_was_never_started_has_an_id_all_the_same() -> None:
    stream = block(0, "text", text="") + more(0, "text_delta", text="😀") + END
    found = answer(Shape.MESSAGES, stream, model="wanted")
    assert found["id"].startswith("chatcmpl-")
    assert (found["model"], found["type"], found["role"]) == ("wanted", "message", "assistant")
    assert found["content"] == [{"type": "text", "text": "😀"}]
    assert answer(Shape.MESSAGES, END)["content"] == []


# Responses.


def test_a_response_that_ended_early_is_given_as_it_is() -> None:
    response = {"id": "r", "status": "incomplete", "incomplete_details": {"reason": "x"}}
    found = answer(Shape.RESPONSES, event("response.incomplete", response=response))
    assert found == response | {"output": []}


def test_items_of_an_unknown_kind_are_kept() -> None:
    output = [{"type": "web_search_call", "id": "w"}, {"id": "untyped"}]
    response = {"created_at": 5, "output": output, "usage": {"input_tokens": 1}}
    found = answer(Shape.RESPONSES, event("response.completed", response=response))
    assert found["output"] == output
    assert found["completed_at"] == 5


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(GENERATIONS),
    st.lists(st.sampled_from(FRAGMENTS), max_size=12),
    st.lists(st.integers(min_value=0, max_value=1 << 12), max_size=20),
)
def test_whatever_comes_gives_one_outcome_however_cut(
    shape: Shape, fragments: list[bytes], cuts: list[int]
) -> None:
    stream = b"".join(fragments)

    def outcome(pieces: list[bytes]) -> Assembled | None:
        with suppress(BrokenAnswerError):
            return assembled(shape, *pieces)
        return None

    assert outcome(pieces_of(stream, cuts)) == outcome([stream])
