"""A chat that breaks amid its answer goes on elsewhere as one clean stream, or not at all."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotgate.errors import BadRequestError
from slotgate.wire.request import Prepared, prepare
from slotgate.wire.resume import ResumableRelay, Written, rest_of
from slotgate.wire.routes import Shape, find_route
from tests.wire.replay import pieces_of

END = b"\n\n"
WORDS = ["The", " sea", " is", " vast", ",", " Ünder", " \u2014", " it", " lie", " ships", "."]
PROMPT_TOKENS = 31
DONE = b"data: [DONE]" + END
MESSAGES = [{"role": "user", "content": "About the sea?"}]


def frame(chunk: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(chunk, separators=(",", ":")).encode() + END


def server(words: list[str], *, name: str, prompt_tokens: int, usage: bool = True) -> list[bytes]:
    """Return what llama-server streams: progress, the role, the words, the end, the counts."""
    identity = {"created": 1, "id": f"chatcmpl-{name}", "model": name, "system_fingerprint": "b"}

    def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
        choice = {"finish_reason": finish, "index": 0, "delta": delta}
        return frame({"choices": [choice], **identity, **more})

    role = {"role": "assistant", "content": None}
    progress = {"total": prompt_tokens, "cache": 4, "processed": 9, "time_ms": 3}
    counted = {"completion_tokens": len(words), "prompt_tokens": prompt_tokens}
    times = {"prompt_n": prompt_tokens, "predicted_n": len(words), "prompt_ms": 5.0}
    frames = [chunk(role, prompt_progress=progress), chunk(role)]
    frames += [chunk({"content": word}) for word in words]
    frames.append(chunk({}, "stop", **({} if usage else {"timings": times})))
    if usage:
        frames.append(frame({"choices": [], **identity, "usage": counted, "timings": times}))
    return [*frames, DONE]


def prepared(**more: Any) -> Prepared:
    body = {"messages": MESSAGES, "stream": True, "resume": True, **more}
    route = find_route("POST", "/v1/chat/completions")
    assert route is not None
    return prepare(route, json.dumps(body).encode(), content_type="application/json")


def chunks_of(stream: bytes) -> list[dict[str, Any]]:
    frames = [part for part in stream.split(END) if part and part != DONE[:-2]]
    return [json.loads(part.removeprefix(b"data: ")) for part in frames]


def words_of(stream: bytes) -> list[str]:
    deltas = [c["choices"][0]["delta"] for c in chunks_of(stream) if c["choices"]]
    return [delta["content"] for delta in deltas if delta.get("content")]


def text_of(stream: bytes) -> str:
    return "".join(words_of(stream))


def passed(relay: ResumableRelay, pieces: list[bytes]) -> bytes:
    return b"".join(relay.feed(piece) for piece in pieces)


def broken(stream: bytes, cuts: list[int], length: int) -> tuple[bytes, ResumableRelay]:
    """Feed a stream that breaks after so many bytes; return what went on to the client."""
    relay = ResumableRelay(Shape.CHAT, prepared())
    sent = passed(relay, pieces_of(stream[:length], cuts))
    return sent + relay.finish(), relay


@given(st.data())
def test_the_client_sees_one_stream_wherever_it_broke_and_however_it_was_cut(
    data: st.DataObject,
) -> None:
    first = b"".join(server(WORDS, name="left", prompt_tokens=PROMPT_TOKENS)[:-3])
    cuts = data.draw(st.lists(st.integers(0, 1 << 20), max_size=6))
    sent, relay = broken(first, cuts, data.draw(st.integers(0, len(first))))
    written = relay.written()
    assert written is not None
    assert written.text == text_of(sent)
    assert written.tokens == len(words_of(sent))
    rest = WORDS[written.tokens :]
    second = b"".join(server(rest, name="right", prompt_tokens=PROMPT_TOKENS + written.tokens))
    after = ResumableRelay(Shape.CHAT, prepared(), written)
    whole = sent + passed(after, pieces_of(second, cuts)) + after.finish()

    assert text_of(whole) == "".join(WORDS)
    assert whole.endswith(DONE)
    assert len({chunk["id"] for chunk in chunks_of(whole)}) == 1
    assert whole.count(b'"role"') <= 1
    usage = chunks_of(whole)[-1]["usage"]
    assert usage["completion_tokens"] == len(WORDS)
    assert usage["prompt_tokens"] == PROMPT_TOKENS
    assert after.usage().output_tokens == len(WORDS)
    assert after.counted is not None
    assert after.counted.output_tokens == len(rest)  # what the second backend has done


def test_it_may_break_again() -> None:
    first = b"".join(server(WORDS, name="left", prompt_tokens=PROMPT_TOKENS))
    sent, relay = broken(first, [], first.index(b" vast"))
    once = relay.written()
    assert once is not None
    assert once.tokens == 3
    second = b"".join(server(WORDS[3:], name="right", prompt_tokens=PROMPT_TOKENS + 3))
    relay = ResumableRelay(Shape.CHAT, prepared(), once)
    sent += relay.feed(second[: second.index(b" it")])
    twice = relay.written()
    assert twice is not None
    assert (twice.tokens, twice.text) == (7, "".join(WORDS[:7]))
    assert (twice.input_tokens, twice.cached_tokens) == (PROMPT_TOKENS, 4)
    assert twice.identity["id"] == "chatcmpl-left"


def test_the_other_backend_is_asked_for_the_rest_alone() -> None:
    request = prepared(max_tokens=20, temperature=0.5)
    rest = rest_of(request, Written(text="The sea", tokens=2))
    assert rest is not None
    body = json.loads(rest.body)
    assert body["messages"] == [*MESSAGES, {"role": "assistant", "content": "The sea"}]
    assert body["max_tokens"] == rest.output_tokens == 18
    assert body["temperature"] == 0.5
    assert "resume" not in body


def test_without_a_bound_none_is_made_up_and_without_text_nothing_is_added() -> None:
    rest = rest_of(prepared(), Written())
    assert rest is not None
    body = json.loads(rest.body)
    assert body["messages"] == MESSAGES
    assert "max_tokens" not in body


def test_an_answer_at_its_bound_has_no_rest() -> None:
    assert rest_of(prepared(max_tokens=2), Written(text="The sea", tokens=2)) is None


@pytest.mark.parametrize(
    "delta",
    [{"reasoning_content": "Hm"}, {"tool_calls": [{"index": 0}]}, {"content": ["a part"]}],
)
def test_what_is_more_than_text_is_not_gone_on_from(delta: dict[str, Any]) -> None:
    relay = ResumableRelay(Shape.CHAT, prepared())
    relay.feed(frame({"choices": [{"finish_reason": None, "index": 0, "delta": delta}], "id": "a"}))
    assert relay.written() is None


def test_an_answer_whose_end_has_come_is_not_gone_on_from() -> None:
    frames = server(WORDS, name="left", prompt_tokens=PROMPT_TOKENS)
    relay = ResumableRelay(Shape.CHAT, prepared())
    relay.feed(b"".join(frames[:-2]))
    assert relay.written() is None


def test_an_error_is_kept_back_for_the_answer_may_go_on() -> None:
    relay = ResumableRelay(Shape.CHAT, prepared())
    frames = server(WORDS, name="left", prompt_tokens=PROMPT_TOKENS)
    error = frame({"error": {"code": 500, "message": "Compute error.", "type": "server_error"}})
    sent = relay.feed(b"".join(frames[:4]) + error)
    assert text_of(sent) == "The sea"
    assert b"Compute" not in sent
    assert relay.has_untold_error
    written = relay.written()
    assert written is not None
    assert written.text == "The sea"


def test_an_answer_from_one_backend_is_counted_as_it_counts() -> None:
    frames = server(WORDS, name="left", prompt_tokens=PROMPT_TOKENS)
    relay = ResumableRelay(Shape.CHAT, prepared())
    sent = relay.feed(b": a comment" + END + b"".join(frames)) + relay.finish()
    assert sent == b": a comment" + END + b"".join(frames[1:])
    assert relay.is_between_frames
    assert relay.usage() == relay.counted


def test_a_comment_is_no_part_of_the_text() -> None:
    relay = ResumableRelay(Shape.CHAT, prepared())
    relay.feed(server(WORDS, name="left", prompt_tokens=PROMPT_TOKENS)[2] + b": a comment" + END)
    written = relay.written()
    assert written is not None
    assert written.text == "The"


def test_times_of_a_part_are_not_shown_as_the_whole() -> None:
    relay = ResumableRelay(Shape.CHAT, prepared(), Written(text="The", tokens=1))
    frames = server(WORDS[1:], name="right", prompt_tokens=9, usage=False)
    sent = relay.feed(b": a comment" + END + b"".join(frames)) + relay.finish()
    assert b"timings" not in sent
    assert sent.startswith(b": a comment")
    assert relay.usage().output_tokens == len(WORDS)
    # Where the first backend told no size, what was written is taken off the second's.
    assert relay.usage().input_tokens == 8


def test_text_is_not_shown_by_what_remembers_it() -> None:
    assert "secret" not in repr(Written(text="secret", tokens=1))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tools", [{"type": "function"}]),
        ("grammar", "root ::= [a-z]"),
        ("json_schema", {"type": "object"}),
        ("response_format", {"type": "json_object"}),
        ("logprobs", True),
        ("n_probs", 3),
        ("n", 2),
        ("timings_per_token", True),
        ("messages", [*MESSAGES, {"role": "assistant", "content": "The"}]),
    ],
)
def test_what_cannot_be_exact_is_refused_by_its_name(field: str, value: Any) -> None:
    with pytest.raises(BadRequestError, match=field) as refusal:
        prepared(**{field: value})
    assert refusal.value.param == field


@pytest.mark.parametrize("field", ["tools", "logprobs", "n_probs", "grammar"])
def test_what_asks_for_nothing_is_not_in_the_way(field: str) -> None:
    nothing = {"tools": [], "logprobs": False, "n_probs": 0, "grammar": ""}[field]
    assert prepared(**{field: nothing}, response_format={"type": "text"}).may_resume


def test_only_chats_are_resumed() -> None:
    route = find_route("POST", "/completion")
    assert route is not None
    with pytest.raises(BadRequestError, match="chat"):
        prepare(route, b'{"prompt":"a","stream":true,"resume":true}', content_type="")


def test_a_whole_answer_needs_no_resuming() -> None:
    request = prepared(stream=False)
    assert not request.may_resume
    assert "resume" not in json.loads(request.body)
