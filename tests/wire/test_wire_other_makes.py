"""Servers of other makes: what they are sent, and what their streams say."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from slotgate.errors import BrokenAnswerError
from slotgate.wire.assemble import assembler
from slotgate.wire.llama_cpp import Props, parse_props
from slotgate.wire.models import ListedModel, parse_models
from slotgate.wire.other_makes import adapted, model_for
from slotgate.wire.relay import StreamRelay
from slotgate.wire.request import Prepared, prepare
from slotgate.wire.routes import Shape, find_route
from tests.wire import other_makes as seen

LISTED = parse_models(seen.MODELS)
HELLO = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
UNMARKED = Prepared(body=b"", has_end_mark=False)
TWO = replace(UNMARKED, width=2, completions=2)


def prepared(path: str, fields: dict[str, object]) -> Prepared:
    route = find_route("POST", path)
    assert route is not None
    return prepare(route, json.dumps(fields).encode(), content_type="application/json")


def sent(fields: dict[str, object], *, listed: tuple[ListedModel, ...] = LISTED) -> object:
    asked = prepared("/v1/chat/completions", fields)
    return json.loads(adapted(Shape.CHAT, asked, listed).body)


# What they are sent.


def test_nothing_of_llama_servers_own_is_added() -> None:
    assert sent({**HELLO, "model": seen.MODEL, "stream": True}) == {
        **HELLO,
        "model": seen.MODEL,
        "stream": True,
    }
    assert sent({**HELLO, "model": seen.MODEL}) == {
        **HELLO,
        "model": seen.MODEL,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_a_begun_turn_of_the_assistant_brings_no_echo() -> None:
    begun: dict[str, object] = {"messages": [{"role": "assistant", "content": "I"}]}
    assert "echo" in json.loads(prepared("/v1/chat/completions", begun).body)
    assert "echo" not in json.dumps(sent(begun))


def test_what_the_client_asks_for_itself_is_left_to_the_server() -> None:
    asked: dict[str, object] = {**HELLO, "return_progress": True, "echo": True}
    fields = {**asked, "model": seen.MODEL, "stream": True}
    assert sent(fields) == fields


def test_a_body_that_needs_no_change_is_the_same_bytes() -> None:
    asked = Prepared(body=b'{ "model":"/models/tiny" }', model=seen.MODEL)
    assert adapted(Shape.CHAT, asked, LISTED).body is asked.body
    form = Prepared(body=b"--x", model="nope")
    assert adapted(Shape.TRANSCRIPTION, form, LISTED) is form


@pytest.mark.parametrize(
    ("asked", "listed", "model"),
    [
        ("nope", ["a"], "a"),
        (None, ["a"], "a"),
        ("b", ["a", "b"], "b"),
        ("nope", ["a", "b"], "nope"),
        (None, ["a", "b"], None),
        ("nope", [], "nope"),
        (None, [], None),
        ("tiny", ["other", "/models/tiny.gguf"], "/models/tiny.gguf"),
    ],
)
def test_the_model_is_called_by_the_servers_own_name(
    asked: str | None, listed: list[str], model: str | None
) -> None:
    assert model_for(asked, [ListedModel(id=name) for name in listed]) == model


def test_a_llama_server_is_told_by_what_its_props_have() -> None:
    assert not Props().is_llama_cpp
    # What LM Studio says of any path that it does not know, with status 200.
    assert not parse_props(b'{"error":"Unexpected endpoint or method. (GET /props)"}').is_llama_cpp
    for told in (b'{"total_slots":4}', b'{"role":"router"}', b'{"build_info":"b1-x"}'):
        assert parse_props(told).is_llama_cpp


# What they answer.


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
@pytest.mark.parametrize(
    ("shape", "stream"), [(Shape.CHAT, seen.CHAT), (Shape.RESPONSES, seen.RESPONSES)]
)
def test_a_stream_without_an_end_mark_is_whole_when_all_its_choices_have_ended(
    shape: Shape, stream: bytes, size: int
) -> None:
    relay = StreamRelay(shape, UNMARKED)
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    out = b"".join([*[relay.feed(piece) for piece in pieces], relay.finish()])
    assert out.strip() == stream.strip()
    assert relay.is_whole
    assert relay.counted is not None
    assert (relay.counted.input_tokens, relay.counted.output_tokens) == (19, 4)


def test_of_a_llama_server_the_end_mark_is_expected() -> None:
    """A router ends the stream of a backend that died cleanly too."""
    relay = StreamRelay(Shape.CHAT, Prepared(body=b""))
    relay.feed(seen.CHAT)
    assert not relay.has_terminator
    relay.feed(b"data: [DONE]\n\n")
    assert relay.has_terminator


def test_the_role_alone_is_no_token() -> None:
    relay = StreamRelay(Shape.CHAT, UNMARKED)
    relay.feed(seen.ROLE)
    assert not relay.has_started
    relay.feed(seen.TOKENS[0])
    assert relay.token_frames == 1


def test_tokens_of_events_without_names_are_counted() -> None:
    relay = StreamRelay(Shape.RESPONSES, UNMARKED)
    relay.feed(seen.RESPONSES)
    assert relay.token_frames == 2


@pytest.mark.parametrize("stream", [seen.ROLE, seen.ROLE + seen.TOKENS[0]])
def test_a_stream_that_ends_before_its_choices_do_is_broken(stream: bytes) -> None:
    relay = StreamRelay(Shape.CHAT, UNMARKED)
    relay.feed(stream)
    relay.finish()
    assert not relay.has_terminator
    assembly = assembler(Shape.CHAT, UNMARKED)
    assembly.feed(stream)
    with pytest.raises(BrokenAnswerError):
        assembly.finish()


def test_a_server_that_gives_fewer_choices_than_were_asked_for_is_believed() -> None:
    relay = StreamRelay(Shape.CHAT, TWO)
    relay.feed(seen.CHAT)
    assert relay.has_terminator
    assembly = assembler(Shape.CHAT, TWO)
    assembly.feed(seen.CHAT)
    assert len(json.loads(assembly.finish().body)["choices"]) == 1


def test_each_choice_that_began_must_have_ended() -> None:
    relay = StreamRelay(Shape.CHAT, TWO)
    relay.feed(seen.ROLE + seen.ROLE.replace(b'"index":0', b'"index":1') + seen.END)
    assert not relay.has_terminator
    relay.feed(seen.END.replace(b'"index":0', b'"index":1'))
    assert relay.has_terminator


def test_each_of_several_choices_must_have_ended() -> None:
    relay = StreamRelay(Shape.CHAT, TWO)
    relay.feed(seen.END)
    assert not relay.has_terminator
    relay.feed(seen.END.replace(b'"index":0', b'"index":1'))
    assert relay.has_terminator


@pytest.mark.parametrize(
    ("shape", "stream", "text"),
    [
        (Shape.CHAT, seen.CHAT, "O\ufffdO"),
        (Shape.OPENAI_COMPLETION, seen.TEXT, "N"),
        (Shape.RESPONSES, seen.RESPONSES, "OO"),
    ],
)
def test_a_whole_answer_is_put_together(shape: Shape, stream: bytes, text: str) -> None:
    assembly = assembler(shape, UNMARKED)
    assembly.feed(stream)
    whole = assembly.finish()
    answer = json.loads(whole.body)
    match shape:
        case Shape.CHAT:
            assert answer["choices"][0]["message"] == {"role": "assistant", "content": text}
            assert answer["choices"][0]["finish_reason"] == "length"
        case Shape.RESPONSES:
            assert answer["output"][0]["content"][0]["text"] == text
            assert answer["status"] == "completed"
        case _:
            assert answer["choices"][0]["text"] == text
    assert whole.usage is not None
    assert whole.usage.output_tokens == 4
