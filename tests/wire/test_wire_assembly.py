"""An answer put together from a stream equals the answer of llama-server itself, case by case."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotgate.wire.assemble import Assembled, assembler
from slotgate.wire.relay import StreamRelay
from slotgate.wire.usage import usage_of_answer
from tests.wire.cases import CASES, LOST, Case
from tests.wire.compare import settled
from tests.wire.record import prepared_of
from tests.wire.replay import BY_NAME, RECORDINGS, pieces_of, shape_of

STREAMED = [case for case in CASES if prepared_of(case, stream=False).upstream_stream]
WHOLE = [case for case in CASES if not prepared_of(case, stream=False).upstream_stream]


def assembled(case: Case, cuts: list[int] | None = None) -> Assembled:
    stream = RECORDINGS[case.name].upstream[1].encode()
    assembly = assembler(shape_of(case), prepared_of(case, stream=False))
    for piece in pieces_of(stream, cuts or []):
        assembly.feed(piece)
    return assembly.finish()


def parametrize(cases: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


def test_every_case_is_recorded() -> None:
    assert set(RECORDINGS) == set(BY_NAME)


@parametrize([case for case in STREAMED if case.name not in LOST])
def test_the_answer_from_the_stream_is_the_servers_own(case: Case) -> None:
    status, answer = RECORDINGS[case.name].answer
    if RECORDINGS[case.name].upstream[0] != 200:
        assert settled(RECORDINGS[case.name].upstream[1]) == settled(answer)
        assert RECORDINGS[case.name].upstream[0] == status
        return
    result = assembled(case)
    assert result.status == status
    assert settled(result.body) == settled(answer)


@parametrize([case for case in STREAMED if RECORDINGS[case.name].upstream[0] == 200])
def test_tokens_are_counted_as_in_a_stream_that_passes(case: Case) -> None:
    stream = RECORDINGS[case.name].upstream[1].encode()
    assembly = assembler(shape_of(case), prepared_of(case, stream=False))
    assembly.feed(stream)
    relay = StreamRelay(shape_of(case), prepared_of(case, stream=False))
    relay.feed(stream)
    assert assembly.token_frames == relay.token_frames > 0
    assert relay.counted == (relay.usage() if relay.has_exact_usage else None)


@parametrize([BY_NAME[name] for name in sorted(LOST)])
def test_what_a_stream_loses_is_still_lost(case: Case) -> None:
    assert settled(assembled(case).body) != settled(RECORDINGS[case.name].answer[1])


@parametrize(WHOLE)
def test_a_request_whose_stream_loses_something_goes_upstream_as_it_came(case: Case) -> None:
    sent = json.loads(prepared_of(case, stream=False).body)
    assert sent == {k: v for k, v in case.request.items() if k != "id_slot"}


@parametrize([case for case in STREAMED if RECORDINGS[case.name].upstream[0] == 200])
def test_the_answer_is_compact_and_says_no_stream(case: Case) -> None:
    body = assembled(case).body
    plain = json.dumps(json.loads(body), separators=(",", ":"), ensure_ascii=False)
    assert len(body) <= len(plain.encode()) + 200  # exponents are written in two ways
    assert b'"stream":true' not in body
    assert b"prompt_progress" not in body


@parametrize([c for c in STREAMED if RECORDINGS[c.name].upstream[0] == 200 and c.name not in LOST])
def test_the_usage_is_what_the_answer_says(case: Case) -> None:
    usage = assembled(case).usage
    assert usage is not None
    said = usage_of_answer(json.loads(RECORDINGS[case.name].answer[1]))
    if (
        prepared_of(case, stream=False).width == 1
        and said is not None
        and not case.body.get("response_fields")
    ):
        assert usage.input_tokens == said.input_tokens
        assert usage.output_tokens == said.output_tokens
    assert usage.input_tokens > 0 or case.name == "text_empty"


def test_sequences_that_share_a_prompt_count_its_tokens_once() -> None:
    one = assembled(BY_NAME["chat_to_its_end"]).usage
    several = assembled(BY_NAME["chat_several_choices"]).usage
    assert one is not None
    assert several is not None
    assert several.input_tokens == one.input_tokens
    assert several.output_tokens == 10


def test_cached_tokens_are_counted_in_and_told_apart() -> None:
    usage = assembled(BY_NAME["chat_cached_tokens"]).usage
    assert usage is not None
    assert 0 < usage.cached_tokens < usage.input_tokens


def test_different_prompts_count_each() -> None:
    usage = assembled(BY_NAME["native_list"]).usage
    assert usage is not None
    answers = json.loads(RECORDINGS["native_list"].answer[1])
    assert usage.input_tokens == sum(answer["tokens_evaluated"] for answer in answers)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from([c for c in STREAMED if RECORDINGS[c.name].upstream[0] == 200]),
    st.lists(st.integers(min_value=0, max_value=1 << 20), max_size=40),
)
def test_the_answer_is_the_same_however_the_stream_was_cut(case: Case, cuts: list[int]) -> None:
    assert assembled(case, cuts) == assembled(case)


@pytest.mark.parametrize("name", ["chat_two_calls", "native_list", "messages_two_calls"])
def test_the_answer_is_the_same_byte_by_byte(name: str) -> None:
    case = BY_NAME[name]
    length = len(RECORDINGS[name].upstream[1].encode())
    assert assembled(case, list(range(length))) == assembled(case)


@pytest.mark.parametrize("name", ["chat_two_calls", "responses_reasoning", "messages_two_calls"])
def test_a_stream_with_crlf_and_comments_gives_the_same_answer(name: str) -> None:
    case = BY_NAME[name]
    stream = RECORDINGS[name].upstream[1].replace("\n\n", "\n\n: ping\n\n").replace("\n", "\r\n")
    assembly = assembler(shape_of(case), prepared_of(case, stream=False))
    assembly.feed(stream.encode())
    assert assembly.finish() == assembled(case)
