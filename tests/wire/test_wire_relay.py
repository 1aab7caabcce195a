"""A stream passes byte for byte, and the relay knows the truth about it however it was cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slotgate.wire.relay import StreamRelay
from slotgate.wire.request import Prepared
from slotgate.wire.routes import Shape
from slotgate.wire.usage import usage_of_answer
from tests.wire.cases import CASES, Case
from tests.wire.compare import settled_stream
from tests.wire.record import prepared_of
from tests.wire.replay import BY_NAME, RECORDINGS, pieces_of, shape_of

STREAMS = [case for case in CASES if RECORDINGS[case.name].streamed_upstream[0] == 200]
# Where the gateway's stream differs from what the server sends without `return_progress`.
OWN_FRAME_FOR_WHAT_THE_TEMPLATE_BEGAN = ["chat_prefilled_and_echoed", "chat_reasoning_unparsed"]
WITHOUT_THE_SERVERS_REPETITIONS = ["responses_emoji_first"]
DIFFERENT = [*OWN_FRAME_FOR_WHAT_THE_TEMPLATE_BEGAN, *WITHOUT_THE_SERVERS_REPETITIONS]

PASSING = Prepared(body=b"", wants_stream=True, upstream_stream=True)
FILTERING = Prepared(body=b"", wants_stream=True, upstream_stream=True, upstream_progress=True)


def relayed(relay: StreamRelay, pieces: list[bytes]) -> bytes:
    return b"".join([*[relay.feed(piece) for piece in pieces], relay.finish()])


def relay_of(case: Case) -> tuple[StreamRelay, bytes]:
    relay = StreamRelay(shape_of(case), prepared_of(case, stream=True))
    return relay, RECORDINGS[case.name].streamed_upstream[1].encode()


def facts_of(relay: StreamRelay) -> tuple[Any, ...]:
    return (
        relay.token_frames,
        relay.has_started,
        relay.has_terminator,
        relay.error,
        relay.has_failed_early,
        relay.has_untold_error,
        relay.has_begun,
        relay.is_between_frames,
        relay.has_exact_usage,
        relay.usage(),
    )


def parametrize(cases: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


# What real servers sent.


@parametrize([case for case in STREAMS if case.name not in DIFFERENT])
def test_the_client_gets_the_frames_it_would_get_from_the_server(case: Case) -> None:
    relay, stream = relay_of(case)
    # For each prompt of a list but the first, the server sends a frame that says nothing.
    wanted = RECORDINGS[case.name].streamed[1].replace("data: null\n\n", "")
    assert settled_stream(relayed(relay, [stream])) == settled_stream(wanted)


@pytest.mark.parametrize("name", OWN_FRAME_FOR_WHAT_THE_TEMPLATE_BEGAN)
def test_what_the_template_began_comes_before_the_first_token(name: str) -> None:
    relay, stream = relay_of(BY_NAME[name])
    got = [json.loads(line[6:]) for line in _data_lines(relayed(relay, [stream]))]
    wanted = [json.loads(line[6:]) for line in _data_lines(RECORDINGS[name].streamed[1].encode())]
    assert _text_of(got) == _text_of(wanted)
    assert len(got) == len(wanted) + 1
    assert [chunk["choices"][0]["delta"].get("role") for chunk in got].count("assistant") == 1
    assert b"prompt_progress" not in relayed(StreamRelay(Shape.CHAT, FILTERING), [stream])


def _data_lines(stream: bytes) -> list[bytes]:
    return [line for line in stream.split(b"\n") if line.startswith(b"data: {")]


def _text_of(chunks: list[dict[str, Any]]) -> str:
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)


@pytest.mark.parametrize("name", WITHOUT_THE_SERVERS_REPETITIONS)
def test_a_response_is_created_once(name: str) -> None:
    relay, stream = relay_of(BY_NAME[name])
    assert relayed(relay, [stream]).count(b"event: response.created\n") == 1
    assert RECORDINGS[name].streamed[1].count("event: response.created\n") > 1


@parametrize(STREAMS)
def test_a_whole_stream_has_its_terminator_and_exact_usage(case: Case) -> None:
    relay, stream = relay_of(case)
    relayed(relay, [stream])
    assert relay.has_terminator
    assert relay.has_started or b"tokens_predicted" in stream or "no_" in case.name
    assert relay.error is None
    assert relay.has_exact_usage or case.body.get("response_fields")
    assert relay.is_between_frames


@parametrize(STREAMS)
def test_a_stream_cut_short_has_no_terminator(case: Case) -> None:
    relay, stream = relay_of(case)
    last_frame = stream.rstrip(b"\n").rfind(b"\n\n") + 2
    relayed(relay, [stream[: last_frame + 4]])
    assert not relay.has_terminator


@parametrize([c for c in STREAMS if prepared_of(c, stream=True).width == 1])
def test_the_usage_of_a_stream_is_the_usage_of_the_answer(case: Case) -> None:
    relay, stream = relay_of(case)
    relayed(relay, [stream])
    said = usage_of_answer(json.loads(RECORDINGS[case.name].answer[1]))
    is_known = case.name != "messages_emoji_first" and not case.body.get("response_fields")
    if said is not None and is_known:
        assert relay.usage().input_tokens == said.input_tokens
        assert relay.usage().output_tokens == said.output_tokens


def test_a_client_that_asked_for_progress_gets_it() -> None:
    prepared = Prepared(
        body=b"",
        wants_stream=True,
        upstream_stream=True,
        upstream_progress=True,
        wants_progress=True,
    )
    stream = RECORDINGS["chat_one_token"].streamed_upstream[1].encode()
    relay = StreamRelay(Shape.CHAT, prepared)
    assert relayed(relay, [stream]) == stream
    assert b"prompt_progress" in stream
    assert relay.token_frames == 2  # a token and the end


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(STREAMS),
    st.lists(st.integers(min_value=0, max_value=1 << 20), max_size=40),
)
def test_cuts_change_neither_bytes_nor_facts(case: Case, cuts: list[int]) -> None:
    whole, stream = relay_of(case)
    cut, _ = relay_of(case)
    assert relayed(cut, pieces_of(stream, cuts)) == relayed(whole, [stream])
    assert facts_of(cut) == facts_of(whole)


# What no server should send.

FRAGMENTS = [
    b'data: {"a":1}\n\n',
    b'data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}\n\n',
    b'data: {"choices":[{"finish_reason":null,"index":0,'
    b'"delta":{"role":"assistant","content":null}}]}\n\n',
    b'data: {"choices":[{"finish_reason":null,"index":0,'
    b'"delta":{"role":"assistant","content":null}}],"prompt_progress":{"total":1}}\n\n',
    b'data: {"choices":[{"finish_reason":null,"index":0,'
    b'"delta":{"content":"<think>"}}],"timings":{},"prompt_progress":{"total":1}}\n\n',
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"timings":{"predicted_n":3}}'
    b"\n\n",
    b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\n',
    b"data: [DONE]\n\n",
    b'data: {"index":0,"content":"a","stop":false}\n\n',
    b'data: {"index":0,"content":"","stop":true,"tokens_predicted":4,"tokens_evaluated":2}\n\n',
    b'data: {"error":{"code":500,"message":"Compute error.","type":"server_error"}}\n\n',
    b'event: error\ndata: {"code":500,"message":"x","type":"server_error"}\n\n',
    b'error: {"code":500,"message":"x"}\n\n',
    b"proxy error: Failed to read connection",
    b'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":3}}}'
    b"\n\n",
    b'event: content_block_delta\ndata: {"type":"content_block_delta"}\n\n',
    b'event: message_delta\ndata: {"type":"message_delta","usage":{"output_tokens":3}}\n\n',
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
    b'event: response.created\ndata: {"type":"response.created"}\n\n',
    b'event: response.in_progress\ndata: {"type":"response.in_progress","prompt_progress":{}}\n\n',
    b'event: response.output_text.delta\ndata: {"delta":"x"}\n\n',
    b'event: response.completed\ndata: {"type":"response.completed","response":{"usage":'
    b'{"input_tokens":1}}}\n\n',
    b": ping\n\n",
    b":}\n\n",
    b":\n\n",
    b"id: 3}\n\n",
    b"data: null\n\n",
    b'data: {"text":"an error occurred"}\n\n',
    b'data: {"a"',
    b"\n",
    b"\r\n",
    b"\r",
    b'data: {"choices":[{"finish_reason":null,"index":0,"delta":{"content":"x"}}],"created":1,'
    b'"object":"chat.completion.chunk"}\n\n',
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
    b'"delta":{"type":"text_delta","text":"L"}}\n\n',
    b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","item_id":"i",'
    b'"delta":"x"}\n\n',
    b"}\n\n",
    b"data: }\r\n\r\n",
    b"\xff\xfe",
    b"",
]


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(list(Shape)),
    st.booleans(),
    st.integers(min_value=1, max_value=2),
    st.lists(st.sampled_from(FRAGMENTS), max_size=12),
    st.lists(st.integers(min_value=0, max_value=1 << 12), max_size=20),
)
@example(Shape.CHAT, False, 1, [b"id: 3}\n\n"], [])
@example(Shape.CHAT, True, 1, [FRAGMENTS[2], FRAGMENTS[4], FRAGMENTS[1]], [])
def test_whatever_comes_passes_the_same_however_cut(
    shape: Shape, filters: bool, width: int, fragments: list[bytes], cuts: list[int]
) -> None:
    prepared = Prepared(body=b"", width=width, upstream_progress=filters)
    stream = b"".join(fragments)
    whole, cut = StreamRelay(shape, prepared), StreamRelay(shape, prepared)
    assert relayed(cut, pieces_of(stream, cuts)) == relayed(whole, [stream])
    assert facts_of(cut) == facts_of(whole)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(list(Shape)),
    st.lists(st.sampled_from(FRAGMENTS), max_size=12),
    st.lists(st.integers(min_value=0, max_value=1 << 12), max_size=20),
)
def test_a_stream_without_a_filter_passes_untouched_and_at_once(
    shape: Shape, fragments: list[bytes], cuts: list[int]
) -> None:
    relay = StreamRelay(shape, PASSING)
    for piece in pieces_of(b"".join(fragments), cuts):
        assert relay.feed(piece) == piece
    assert relay.finish() == b""


@pytest.mark.parametrize(
    ("shape", "stream", "message"),
    [
        (Shape.CHAT, FRAGMENTS[10], "Compute error."),
        (Shape.RESPONSES, FRAGMENTS[10], "Compute error."),
        (Shape.MESSAGES, FRAGMENTS[11], "x"),
        (Shape.COMPLETION, FRAGMENTS[12], "x"),
        (Shape.COMPLETION, b'error: {"error":{"message":"y"}}\n\ndata: [DONE]\n\n', "y"),
        (Shape.CHAT, FRAGMENTS[13], "proxy error: Failed to read connection"),
        (Shape.CHAT, FRAGMENTS[13] + b"\n", "proxy error: Failed to read connection"),
    ],
)
def test_an_error_inside_a_stream_is_seen(shape: Shape, stream: bytes, message: str) -> None:
    relay = StreamRelay(shape, PASSING)
    relay.feed(FRAGMENTS[1] if shape is Shape.CHAT else b"")
    before = relay.token_frames
    relay.feed(stream)
    relay.finish()
    assert relay.error is not None
    assert relay.error["message"] == message
    assert relay.token_frames == before


@pytest.mark.parametrize(
    ("error", "is_untold"),
    [
        (FRAGMENTS[10], False),
        (FRAGMENTS[12], True),
        (FRAGMENTS[13] + b"\n\n", True),
        (FRAGMENTS[13] + b"\n\n" + FRAGMENTS[10], False),
        (FRAGMENTS[1], False),
    ],
)
def test_an_error_that_is_no_event_is_told_apart(error: bytes, is_untold: bool) -> None:
    relay = StreamRelay(Shape.CHAT, PASSING)
    relay.feed(error)
    assert relay.has_untold_error is is_untold


def test_an_error_after_a_token_comes_late_though_both_come_together() -> None:
    late, early = StreamRelay(Shape.CHAT, PASSING), StreamRelay(Shape.CHAT, PASSING)
    late.feed(FRAGMENTS[1] + FRAGMENTS[10])
    early.feed(FRAGMENTS[2] + FRAGMENTS[10])
    assert not late.has_failed_early
    assert early.has_failed_early


def test_a_stream_has_begun_with_a_token_or_a_whole_frame() -> None:
    relay = StreamRelay(Shape.CHAT, PASSING)
    relay.feed(FRAGMENTS[13] + b"\n")
    assert not relay.has_begun
    relay.feed(b"\n")
    assert relay.has_begun
    relay = StreamRelay(Shape.CHAT, PASSING)
    relay.feed(FRAGMENTS[1] + b"data: {")
    assert relay.has_begun


@pytest.mark.parametrize("shape", list(Shape))
def test_talk_of_errors_is_none(shape: Shape) -> None:
    relay = StreamRelay(shape, PASSING)
    relay.feed(b'data: {"delta":"an error: \\"error\\":{ event: error"}\n\n')
    relay.feed(b'data: {"error":null}\n\n')
    relay.feed(b"data: error\n\n")
    assert relay.error is None


def test_an_error_before_the_first_token_reaches_a_client_that_got_nothing_yet() -> None:
    relay = StreamRelay(Shape.CHAT, FILTERING)
    assert relay.feed(FRAGMENTS[3]) == b""
    assert not relay.has_started
    assert relay.feed(FRAGMENTS[10]) == FRAGMENTS[10]
    assert not relay.has_started


def test_a_broken_stream_releases_nothing_that_was_held_back() -> None:
    relay = StreamRelay(Shape.CHAT, FILTERING)
    assert relayed(relay, [FRAGMENTS[2], b'data: {"cho']) == b""
    assert relay.is_between_frames


def test_pings_pass_at_once_while_progress_is_taken_out() -> None:
    relay = StreamRelay(Shape.CHAT, FILTERING)
    assert relay.feed(b":\n\n") == b":\n\n"
    assert not relay.has_started


def test_the_beginning_of_one_sequence_is_not_taken_for_anothers() -> None:
    other = FRAGMENTS[2].replace(b'"index":0', b'"index":1')
    relay = StreamRelay(Shape.CHAT, Prepared(body=b"", width=2, upstream_progress=True))
    assert relay.feed(other) == b""
    assert relay.feed(FRAGMENTS[4]) == b""
    out = relay.feed(FRAGMENTS[1])
    assert out.startswith(other)
    assert out.endswith(b'"delta":{"content":"<think>"}}]}\n\n' + FRAGMENTS[1])


def test_from_the_first_token_on_bytes_pass_before_their_frame_is_whole() -> None:
    relay = StreamRelay(Shape.CHAT, FILTERING)
    assert relay.feed(FRAGMENTS[1] + b"data: {") == FRAGMENTS[1] + b"data: {"
    assert not relay.is_between_frames
    assert relay.feed(b'"b"') == b'"b"'


def test_a_stream_that_broke_inside_a_frame_says_so() -> None:
    relay = StreamRelay(Shape.CHAT, PASSING)
    relay.feed(b'data: {"a":1}\n\ndata: {"cho')
    relay.finish()
    assert not relay.is_between_frames


def test_before_the_backend_has_counted_frames_are_counted() -> None:
    relay = StreamRelay(Shape.MESSAGES, PASSING)
    relay.feed(FRAGMENTS[14])
    for _ in range(5):
        relay.feed(FRAGMENTS[15])
    assert not relay.has_exact_usage
    assert relay.usage().input_tokens == 3
    assert relay.usage().output_tokens == 5


def test_an_old_build_that_counts_nothing_is_counted_by_frames() -> None:
    relay = StreamRelay(Shape.CHAT, PASSING)
    relay.feed(FRAGMENTS[1] * 4 + b"data: [DONE]\n\n")
    assert relay.has_terminator
    assert not relay.has_exact_usage
    assert relay.usage().output_tokens == 4


def test_each_sequence_of_a_native_request_must_end() -> None:
    relay = StreamRelay(Shape.COMPLETION, Prepared(body=b"", width=2))
    relay.feed(FRAGMENTS[9])
    assert not relay.has_terminator
    relay.feed(FRAGMENTS[9].replace(b'"index":0', b'"index":1'))
    assert relay.has_terminator
    assert relay.usage().output_tokens == 8


@pytest.mark.parametrize(
    ("shape", "start"),
    [
        (Shape.CHAT, b'data: {"choices":[{"finish_reason":null,"index":0'),
        (Shape.MESSAGES, b'event: content_block_delta\ndata: {"type":"content_block_delta","i'),
        (Shape.RESPONSES, b"event: response.output_text.delta\ndata: {"),
    ],
)
def test_tokens_are_counted_one_by_one_or_many_at_once(shape: Shape, start: bytes) -> None:
    token = next(fragment for fragment in reversed(FRAGMENTS) if fragment.startswith(start))
    alone, together = StreamRelay(shape, PASSING), StreamRelay(shape, PASSING)
    for _ in range(3):
        assert alone.feed(token) == token
    assert together.feed(token * 3) == token * 3
    assert alone.token_frames == together.token_frames == 3


@pytest.mark.parametrize("shape", list(Shape))
def test_comments_are_no_tokens(shape: Shape) -> None:
    relay = StreamRelay(shape, PASSING)
    relay.feed(b": {}\n\n")
    assert not relay.has_started
    relay.feed(b'data: {"a":1}\n\n: {}\n\n')
    assert relay.token_frames <= 1


def test_sequences_still_to_come_leave_the_count_a_guess() -> None:
    relay = StreamRelay(Shape.CHAT, Prepared(body=b"", width=2, completions=2))
    relay.feed(FRAGMENTS[6])
    assert not relay.has_exact_usage
    relay.feed(FRAGMENTS[6])
    assert relay.has_exact_usage
    assert relay.usage().input_tokens == 3
    assert relay.usage().output_tokens == 4


def test_a_server_that_counts_all_sequences_at_once_is_believed_at_the_end() -> None:
    relay = StreamRelay(Shape.CHAT, Prepared(body=b"", width=2))
    relay.feed(FRAGMENTS[6] + b"data: [DONE]\n\n")
    assert relay.has_exact_usage
    assert relay.usage().output_tokens == 2


@pytest.mark.parametrize("shape", [Shape.COMPLETION, Shape.RESPONSES, Shape.MESSAGES])
def test_the_end_mark_of_another_shape_is_none(shape: Shape) -> None:
    relay = StreamRelay(shape, PASSING)
    relay.feed(b"data: [DONE]\n\ndata: [DONE]\nid: error\n\n")
    assert not relay.has_terminator


def test_the_last_frame_counts_without_its_blank_line() -> None:
    relay = StreamRelay(Shape.CHAT, PASSING)
    relay.feed(b"data: [DONE]")
    relay.finish()
    assert relay.has_terminator


def test_a_transcription_is_whole_with_its_end_mark() -> None:
    relay = StreamRelay(Shape.TRANSCRIPTION, PASSING)
    relay.feed(b'data: {"type":"transcript.text.delta","delta":"a"}\n\n')
    relay.feed(
        b'data: {"type":"transcript.text.done","text":"a","usage":{"type":"tokens",'
        b'"input_tokens":7,"output_tokens":1,"total_tokens":8}}\n\ndata: [DONE]\n\n'
    )
    assert relay.has_terminator
    assert relay.usage().input_tokens == 7
