"""A request is understood, changed only where it must be, and refused clearly when it is wrong."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotgate.errors import BadRequestError
from slotgate.wire.fields import parse_fields, small_value, whole
from slotgate.wire.request import Prepared, prepare
from slotgate.wire.routes import Route, find_route

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
NATIVE = "/completion"
RESPONSES = "/v1/responses"
MESSAGES = "/v1/messages"
EMBEDDINGS = "/v1/embeddings"
RERANK = "/v1/rerank"
DECISION = "/v1/systemone"
TRANSCRIPTIONS = "/v1/audio/transcriptions"
GENERATIONS = [CHAT, TEXT, NATIVE, RESPONSES, MESSAGES, "/infill"]
JSON_ROUTES = [*GENERATIONS, EMBEDDINGS, RERANK, DECISION]
HELLO = [{"role": "user", "content": "Hello"}]


def route_of(path: str, method: str = "POST") -> Route:
    route = find_route(method, path)
    assert route is not None
    return route


def prepared(path: str, body: bytes | dict[str, Any]) -> Prepared:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return prepare(route_of(path), raw, content_type="application/json")


def outcome(path: str, body: bytes) -> Prepared | BadRequestError:
    try:
        return prepared(path, body)
    except BadRequestError as error:
        return error


def sent(path: str, **body: Any) -> dict[str, Any]:
    fields = json.loads(prepared(path, body).body)
    assert isinstance(fields, dict)
    return fields


# What goes upstream.


@pytest.mark.parametrize("path", GENERATIONS)
def test_one_answer_is_asked_for_as_a_stream(path: str) -> None:
    result = prepared(path, {"messages": HELLO, "prompt": "a"})
    assert (result.wants_stream, result.upstream_stream) == (False, True)
    assert json.loads(result.body)["stream"] is True


@pytest.mark.parametrize("stream", [False, None])
def test_a_stream_that_was_declined_is_asked_for_all_the_same(stream: bool | None) -> None:
    assert sent(CHAT, messages=HELLO, stream=stream)["stream"] is True


@pytest.mark.parametrize("path", [p for p in GENERATIONS if p != MESSAGES])
@pytest.mark.parametrize("stream", [False, True])
def test_progress_is_asked_for_so_that_leaving_is_noticed(path: str, stream: bool) -> None:
    result = prepared(path, {"messages": HELLO, "prompt": "a", "stream": stream})
    assert json.loads(result.body)["return_progress"] is True
    assert result.upstream_progress
    assert not result.wants_progress


def test_the_messages_route_knows_no_progress() -> None:
    result = prepared(MESSAGES, {"messages": HELLO, "stream": True})
    assert not result.upstream_progress
    assert "return_progress" not in json.loads(result.body)


def test_a_client_that_wants_progress_is_known() -> None:
    body = b'{"messages":[], "stream":true, "return_progress":true}'
    result = prepared(CHAT, body)
    assert result.wants_progress
    assert result.body is body


def test_progress_without_a_stream_is_not_wanted() -> None:
    assert not prepared(CHAT, {"messages": HELLO, "return_progress": True}).wants_progress


def test_usage_is_asked_for_to_put_a_chat_together() -> None:
    fields = sent(CHAT, messages=HELLO, stream_options={"include_usage": False})
    assert fields["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("path", [p for p in GENERATIONS if p != CHAT])
def test_other_streams_count_without_being_asked(path: str) -> None:
    assert "stream_options" not in sent(path, messages=HELLO, prompt="a")


def test_a_stream_keeps_its_own_options() -> None:
    fields = sent(CHAT, messages=HELLO, stream=True)
    assert "stream_options" not in fields
    result = prepared(
        CHAT, {"messages": HELLO, "stream": True, "stream_options": {"include_usage": True}}
    )
    assert result.wants_usage


@pytest.mark.parametrize("options", [None, 3, [], {"include_usage": "yes"}, {}])
def test_strange_stream_options_ask_for_no_usage(options: Any) -> None:
    result = prepared(CHAT, {"messages": HELLO, "stream": True, "stream_options": options})
    assert not result.wants_usage


@pytest.mark.parametrize("path", JSON_ROUTES)
@pytest.mark.parametrize("stream", [False, True])
def test_no_slot_can_be_named(path: str, stream: bool) -> None:
    body = {"messages": HELLO, "prompt": "a", "input": "a", "id_slot": 1, "stream": stream}
    assert "id_slot" not in json.loads(prepared(path, body).body)


def test_a_slot_named_with_an_escaped_key_is_still_taken_out() -> None:
    result = prepared(EMBEDDINGS, b'{"input":"a","id\\u005fslot":1}')
    assert json.loads(result.body) == {"input": "a"}


@pytest.mark.parametrize("path", [EMBEDDINGS, RERANK, DECISION])
def test_what_cannot_stream_passes_untouched(path: str) -> None:
    body = b'{ "input" : ["a"], "documents": ["b"], "stream": "anything", "x": 1.50 }'
    result = prepared(path, body)
    assert result.body is body
    assert (result.wants_stream, result.upstream_stream, result.output_tokens) == (False, False, 0)


def test_numbers_and_unknown_fields_pass_in_their_own_bytes() -> None:
    extra = b'"temperature":0.800000011920929,"seed":18446744073709551615,"x":{"y":[1e400,-0]}'
    result = prepared(CHAT, b'{"messages":[],' + extra + b"}")
    assert extra in result.body


def test_text_passes_in_its_own_bytes() -> None:
    text = '[{"role":"user","content":"h\\u00e9 😀 \\n \\/ \\ud83d\\ude00"}]'
    result = prepared(CHAT, ('{"messages":' + text + "}").encode())
    assert text.encode() in result.body


def test_of_a_field_said_twice_the_last_counts() -> None:
    result = prepared(CHAT, b'{"messages":[],"stream":true,"n":2,"stream":false,"n":3}')
    assert (result.wants_stream, result.width) == (False, 3)


def test_a_byte_order_mark_is_allowed() -> None:
    assert prepared(CHAT, b'\xef\xbb\xbf{"messages":[],"model":"m"}').model == "m"


# What must go whole.


@pytest.mark.parametrize(
    ("path", "extra"),
    [
        (CHAT, {"logprobs": True}),
        (CHAT, {"logprobs": True, "top_logprobs": 0}),
        (CHAT, {"n_probs": 1}),
        (CHAT, {"verbose": True}),
        (CHAT, {"reasoning_format": "deepseek-legacy"}),
        (TEXT, {"logprobs": 1, "stop": ["x"]}),
        (TEXT, {"return_tokens": True}),
        (NATIVE, {"n_probs": 3, "stop": ["x"]}),
        (NATIVE, {"return_tokens": True}),
        (RESPONSES, {"n": 2}),
        (MESSAGES, {"messages": [*HELLO, {"role": "assistant", "content": "I"}]}),
    ],
)
def test_a_request_whose_stream_lacks_something_goes_as_it_came(
    path: str, extra: dict[str, Any]
) -> None:
    body = {"messages": HELLO, "prompt": "a", "input": "a", **extra}
    result = prepared(path, body)
    assert not result.upstream_stream
    assert json.loads(result.body) == body
    assert not result.upstream_progress or result.wants_stream


@pytest.mark.parametrize(
    ("path", "extra"),
    [
        (CHAT, {"logprobs": False}),
        (CHAT, {"logprobs": 0}),
        (CHAT, {"logprobs": "yes"}),
        (CHAT, {"n_probs": 0, "logprobs": True}),
        (CHAT, {"reasoning_format": "none"}),
        (TEXT, {"logprobs": 1}),
        (TEXT, {"logprobs": 1, "stop": None}),
        (TEXT, {"stop": ["x"]}),
        (NATIVE, {"n_probs": 0, "stop": ["x"]}),
        (RESPONSES, {"n": 1}),
    ],
)
def test_everything_else_is_streamed(path: str, extra: dict[str, Any]) -> None:
    body = {"messages": HELLO, "prompt": "a", "input": "a", **extra}
    assert prepared(path, body).upstream_stream


@pytest.mark.parametrize(
    "extra",
    [{"logprobs": True}, {"n_probs": 1, "stop": ["x"]}, {"return_tokens": True}, {"n": 2}],
)
@pytest.mark.parametrize("path", GENERATIONS)
def test_a_client_that_wants_a_stream_gets_one_whatever_else_it_asks(
    path: str, extra: dict[str, Any]
) -> None:
    body = {"messages": HELLO, "prompt": "a", "stream": True, **extra}
    assert prepared(path, body).upstream_stream


PREFILLED = [*HELLO, {"role": "assistant", "content": "I"}]


def test_the_assistants_own_beginning_is_echoed_when_a_chat_is_put_together() -> None:
    assert sent(CHAT, messages=PREFILLED)["echo"] is True
    assert sent(CHAT, messages=HELLO, continue_final_message=True)["echo"] is True
    assert "echo" not in sent(CHAT, messages=HELLO)
    assert "echo" not in sent(CHAT, messages=PREFILLED, stream=True)
    assert "echo" not in sent(
        CHAT, messages=HELLO, continue_final_message=True, add_generation_prompt=True
    )


def test_fields_of_the_answer_are_chosen_here_when_it_is_put_together() -> None:
    result = prepared(NATIVE, {"prompt": "a", "response_fields": ["content"]})
    assert result.response_fields == ("content",)
    assert "response_fields" not in json.loads(result.body)


def test_fields_of_a_stream_are_chosen_by_the_server() -> None:
    result = prepared(NATIVE, {"prompt": "a", "response_fields": ["content"], "stream": True})
    assert result.response_fields == ("content",)
    assert json.loads(result.body)["response_fields"] == ["content"]


@pytest.mark.parametrize("names", [None, [], "content", [1], {"a": 1}])
def test_fields_that_are_no_list_of_names_choose_nothing(names: Any) -> None:
    assert prepared(NATIVE, {"prompt": "a", "response_fields": names}).response_fields == ()


# Width.


@pytest.mark.parametrize(
    ("prompt", "width"),
    [
        ("a", 1),
        ([1, 2, 3], 1),
        ([-1], 1),
        (["a", "b"], 2),
        ([[1, 2], [3]], 2),
        (["a"], 1),
        (["a", 5], 1),
        (["a", "b", 5, "c"], 1),
        ([["a", 5], "b", [1]], 3),
        ([{"prompt_string": "a"}, "b"], 2),
        ({"prompt_string": "a"}, 1),
        ([], 1),
        ([[]], 1),
        (None, 1),
        (list(range(5000)), 1),
        (["a"] * 5000, 5000),
    ],
)
@pytest.mark.parametrize("path", [TEXT, NATIVE])
def test_each_prompt_of_a_list_takes_a_slot(path: str, prompt: Any, width: int) -> None:
    assert prepared(path, {"prompt": prompt}).width == width
    assert prepared(path, json.dumps({"prompt": prompt}, indent=1).encode()).width == width


@pytest.mark.parametrize(
    ("name", "value", "width"),
    [
        ("input", "a", 1),
        ("input", ["a", "b", "c"], 3),
        ("input", [1, 2, 3], 1),
        ("input", [[1], [2]], 2),
        ("input", [{"content": []}, {"content": []}], 2),
        ("content", ["a", "b"], 2),
        ("input", None, 1),
    ],
)
def test_each_input_takes_a_slot(name: str, value: Any, width: int) -> None:
    assert prepared(EMBEDDINGS, {name: value}).width == width


def test_inputs_win_over_content() -> None:
    assert prepared(EMBEDDINGS, {"input": ["a", "b"], "content": "a"}).width == 2


@pytest.mark.parametrize(
    ("body", "width"),
    [
        ({"documents": ["a", "b", "c"]}, 3),
        ({"texts": ["a", "b"]}, 2),
        ({"documents": ["a"], "texts": ["a", "b"]}, 1),
        ({"documents": "a"}, 1),
        ({"documents": []}, 1),
        ({}, 1),
    ],
)
def test_each_document_takes_a_slot(body: dict[str, Any], width: int) -> None:
    assert prepared(RERANK, {"query": "q", **body}).width == width


def test_each_question_takes_a_slot() -> None:
    assert prepared(DECISION, {"questions": [{}, {}]}).width == 2


@pytest.mark.parametrize(
    ("body", "completions"),
    [
        ({}, 1),
        ({"n": 3}, 3),
        ({"n": None}, 1),
        ({"n_cmpl": 2, "n": 3}, 2),
        ({"n_cmpl": None, "n": 3}, 3),
        ({"n": 1.9}, 1),
        ({"n": 2.5}, 2),
        ({"n": 0}, 1),
        ({"n": -4}, 1),
        ({"n": 10**30}, 1),
    ],
)
@pytest.mark.parametrize("path", [CHAT, TEXT, NATIVE, RESPONSES])
def test_each_completion_takes_a_slot(path: str, body: dict[str, Any], completions: int) -> None:
    result = prepared(path, {"messages": HELLO, "prompt": "a", **body})
    assert (result.width, result.completions) == (completions, completions)


def test_prompts_and_completions_multiply() -> None:
    result = prepared(TEXT, {"prompt": ["a", "b"], "n": 3})
    assert (result.width, result.completions) == (6, 3)


def test_the_messages_route_drops_n() -> None:
    assert prepared(MESSAGES, {"messages": HELLO, "n": 3}).width == 1


# Bounds.


@pytest.mark.parametrize(
    ("body", "bound"),
    [
        ({}, None),
        ({"max_tokens": 5}, 5),
        ({"max_tokens": 5, "max_completion_tokens": 6}, 6),
        ({"max_tokens": 5, "max_completion_tokens": 6, "n_predict": 7}, 7),
        ({"max_tokens": 5, "max_completion_tokens": None}, 5),
        ({"max_tokens": -1}, None),
        ({"max_tokens": 0}, 0),
        ({"max_tokens": "5"}, None),
        ({"max_tokens": 5.7}, 5),
        ({"max_tokens": 10**40}, None),
        ({"max_output_tokens": 5}, None),
    ],
)
@pytest.mark.parametrize("path", [CHAT, TEXT, NATIVE])
def test_the_bound_of_the_output(path: str, body: dict[str, Any], bound: int | None) -> None:
    assert prepared(path, {"messages": HELLO, "prompt": "a", **body}).output_tokens == bound


@pytest.mark.parametrize(
    ("body", "bound"),
    [
        ({"max_output_tokens": 5}, 5),
        ({"max_output_tokens": 5, "max_tokens": 6}, 5),
        ({"max_tokens": 6}, 6),
        ({"max_output_tokens": 5, "n_predict": 7}, 7),
        ({"max_output_tokens": None, "max_tokens": 6}, None),
    ],
)
def test_the_bound_of_a_response(body: dict[str, Any], bound: int | None) -> None:
    assert prepared(RESPONSES, {"input": "a", **body}).output_tokens == bound


@pytest.mark.parametrize(
    ("body", "bound"),
    [({}, 4096), ({"max_tokens": 7}, 7), ({"n_predict": 7}, 4096), ({"max_tokens": None}, None)],
)
def test_the_bound_of_a_message(body: dict[str, Any], bound: int | None) -> None:
    assert prepared(MESSAGES, {"messages": HELLO, **body}).output_tokens == bound


def test_the_texts_size_bounds_its_tokens() -> None:
    text = "word " * 500
    bodies: list[tuple[str, dict[str, Any]]] = [
        (CHAT, {"messages": [{"role": "user", "content": text}]}),
        (CHAT, {"messages": [], "tools": [text]}),
        (TEXT, {"prompt": text}),
        (NATIVE, {"prompt": text}),
        ("/infill", {"input_prefix": text, "input_suffix": ""}),
        (RESPONSES, {"input": text}),
        (RESPONSES, {"input": "a", "instructions": text}),
        (MESSAGES, {"messages": [], "system": text}),
        (EMBEDDINGS, {"input": [text]}),
        (RERANK, {"query": text, "documents": ["a"]}),
        (DECISION, {"state": text}),
    ]
    for path, body in bodies:
        assert 2500 <= prepared(path, body).text_bytes <= 2600


def test_other_fields_are_no_text() -> None:
    assert prepared(CHAT, {"messages": HELLO, "grammar": "x" * 9000}).text_bytes < 100


def test_a_query_is_read_with_every_document() -> None:
    one = prepared(RERANK, {"query": "q" * 100, "documents": ["a"]}).text_bytes
    two = prepared(RERANK, {"query": "q" * 100, "documents": ["a", "b"]}).text_bytes
    assert two > one + 100


@pytest.mark.parametrize(
    ("path", "content"),
    [
        (
            CHAT,
            {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 90_000}},
        ),
        (CHAT, {"type": "input_audio", "input_audio": {"data": "A" * 90_000, "format": "wav"}}),
        (MESSAGES, {"type": "image", "source": {"type": "base64", "data": "A" * 90_000}}),
    ],
)
def test_an_image_counts_little(path: str, content: dict[str, Any]) -> None:
    body = {"messages": [{"role": "user", "content": [content, content]}]}
    assert 8000 < prepared(path, body).text_bytes < 9000


def test_an_image_without_end_is_no_trouble() -> None:
    assert prepared(CHAT, {"messages": HELLO, "x": "base64,"}).text_bytes < 100
    large = {"messages": [{"role": "user", "content": "base64," + "x " * 4000}]}
    assert prepared(CHAT, large).text_bytes >= 4096


# Affinity and model.


@pytest.mark.parametrize(
    ("path", "body", "key"),
    [
        (CHAT, {"prompt_cache_key": "a", "user": "b"}, "a"),
        (CHAT, {"safety_identifier": "s", "user": "b"}, "s"),
        (CHAT, {"user": "b"}, "b"),
        (RESPONSES, {"prompt_cache_key": "a"}, "a"),
        (MESSAGES, {"metadata": {"user_id": "m"}}, "m"),
        (TEXT, {}, None),
        (RESPONSES, {"user": ""}, None),
        (RESPONSES, {"user": 3}, None),
    ],
)
def test_what_the_client_says_it_belongs_to(path: str, body: dict[str, Any], key: Any) -> None:
    request = {"prompt": "a", "input": "a", "messages": HELLO, **body}
    assert prepared(path, request).affinity == key


@pytest.mark.parametrize("metadata", [3, {}, {"user_id": 3}, {"user_id": ""}, [1]])
def test_strange_metadata_tells_nothing(metadata: Any) -> None:
    body = {"messages": HELLO, "metadata": metadata}
    assert prepared(MESSAGES, body).affinity == prepared(MESSAGES, {"messages": HELLO}).affinity


def test_the_turns_of_one_conversation_belong_together() -> None:
    opening = [{"role": "system", "content": "s" * 5000}, *HELLO]
    later = [*opening, {"role": "assistant", "content": "Hi"}, {"role": "user", "content": "Bye"}]
    first = prepared(CHAT, {"messages": opening}).affinity
    assert first is not None
    assert prepared(CHAT, {"messages": later}).affinity == first
    other = [opening[0], {"role": "user", "content": "Other"}]
    assert prepared(CHAT, {"messages": other}).affinity != first


def test_messages_of_no_user_belong_together_too() -> None:
    system = {"messages": [{"role": "system", "content": "s"}]}
    assert prepared(CHAT, system).affinity == prepared(CHAT, system).affinity is not None


def test_what_is_said_before_the_messages_tells_conversations_apart() -> None:
    keys = [
        prepared(path, {name: said, field: HELLO}).affinity
        for path, name, field in (
            (MESSAGES, "system", "messages"),
            (RESPONSES, "instructions", "input"),
        )
        for said in ("You code.", "You cook.")
    ]
    assert None not in keys
    assert keys[0] != keys[1]
    assert keys[2] != keys[3]


@pytest.mark.parametrize(("path", "field"), [(TEXT, "prompt"), (RESPONSES, "input")])
def test_a_text_that_grows_stays_one_session_and_a_short_one_is_none(path: str, field: str) -> None:
    beginning = "Once upon a time " * 100
    first, later, other, short = (
        prepared(path, {field: text}).affinity
        for text in (beginning, beginning + "there was", "Then " + beginning, "Once")
    )
    assert first == later is not None
    assert other not in (first, None)
    assert short is None


def test_tokens_and_nothing_belong_nowhere() -> None:
    assert prepared(RESPONSES, {"input": []}).affinity is None
    assert prepared(RESPONSES, {"instructions": "Be brief."}).affinity is None
    assert prepared(TEXT, {"prompt": [1, 2, 3]}).affinity is None


@pytest.mark.parametrize("messages", [None, []])
def test_no_messages_belong_nowhere(messages: Any) -> None:
    assert prepared(CHAT, {"messages": messages}).affinity is None


@pytest.mark.parametrize("path", JSON_ROUTES)
def test_the_model_is_found(path: str) -> None:
    body = {"messages": HELLO, "prompt": "a", "model": "m\u00e9"}
    assert prepared(path, body).model == "m\u00e9"
    assert prepared(path, {"messages": HELLO, "model": None}).model is None


# Paths without slots, and forms.


def test_a_free_path_passes_whatever_it_is() -> None:
    for body in (b"", b"[1]", b"{", b"\xff", b'{"content":"a","id_slot":1}'):
        result = prepare(route_of("/tokenize"), body, content_type="")
        assert result.body is body
        assert (result.model, result.output_tokens) == (None, 0)


def test_a_free_path_may_name_a_model() -> None:
    route = route_of("/apply-template")
    assert prepare(route, b'{"model":"m"}', content_type="").model == "m"
    assert prepare(route, b'{"model":3}', content_type="").model is None


def form(*parts: tuple[str, str]) -> bytes:
    lines = [f'--b\r\nContent-Disposition: form-data; name="{n}"\r\n\r\n{v}\r\n' for n, v in parts]
    return ("".join(lines) + "--b--\r\n").encode()


def test_a_form_passes_untouched() -> None:
    body = form(("file", "RIFF"), ("model", "whisper"), ("stream", "true"))
    result = prepare(route_of(TRANSCRIPTIONS), body, content_type="multipart/form-data; boundary=b")
    assert result.body is body
    assert result.model == "whisper"
    assert (result.wants_stream, result.upstream_stream, result.width) == (True, True, 1)


@pytest.mark.parametrize("value", ["false", "1", "TRUEISH", ""])
def test_a_form_without_a_stream(value: str) -> None:
    body = form(("stream", value))
    result = prepare(route_of(TRANSCRIPTIONS), body, content_type="Multipart/Form-Data; boundary=b")
    assert (result.wants_stream, result.upstream_stream, result.model) == (False, False, None)


def test_a_transcription_that_is_no_form_is_refused() -> None:
    with pytest.raises(BadRequestError, match="multipart/form-data"):
        prepare(route_of(TRANSCRIPTIONS), b"{}", content_type="application/json")


# Refusals.


@pytest.mark.parametrize("path", JSON_ROUTES)
@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "no body"),
        (b" \r\n", "no body"),
        (b"{", "not valid JSON"),
        (b'{"a":1,}', r"not valid JSON.*byte 7"),
        (b'{"a":NaN}', "not valid JSON"),
        (b'{"a":Infinity}', "not valid JSON"),
        (b'{"a":01}', "not valid JSON"),
        (b"{'a':1}", "not valid JSON"),
        (b'{"a":1} x', "not valid JSON"),
        (b'{"a":"\n"}', "not valid JSON"),
        (b'{"a":"\\ud800"}', "not valid JSON"),
        (b"[1]", "must be a JSON object"),
        (b'"text"', "must be a JSON object"),
        (b"null", "must be a JSON object"),
        (b'{"a":"\xff"}', r"not valid UTF-8.*byte 6"),
        (b'{"\xc3\x28":1}', "not valid UTF-8"),
        (b'{"a":' + b"[" * 100_000, "nested too deeply"),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"a":' * 100_000, "nested too deeply"),
    ],
)
def test_what_is_no_json_object_is_refused(path: str, body: bytes, message: str) -> None:
    with pytest.raises(BadRequestError, match=message) as refused:
        prepared(path, body)
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("path", "name", "value"),
    [
        (CHAT, "stream", "true"),
        (CHAT, "stream", 1),
        (CHAT, "stream", {}),
        (CHAT, "n", "2"),
        (CHAT, "n", True),
        (CHAT, "n", [2]),
        (CHAT, "n_cmpl", {}),
        (CHAT, "model", 3),
        (CHAT, "model", ["m"]),
        (CHAT, "messages", "Hello"),
        (CHAT, "messages", {}),
        (MESSAGES, "messages", 3),
        (MESSAGES, "model", 3),
        (TEXT, "prompt", 3),
        (TEXT, "prompt", True),
        (NATIVE, "prompt", 1.5),
        (EMBEDDINGS, "input", 3),
        (EMBEDDINGS, "content", False),
        (EMBEDDINGS, "model", 3),
    ],
)
def test_a_field_of_a_wrong_type_is_named(path: str, name: str, value: Any) -> None:
    body = {"messages": HELLO, "prompt": "a", name: value}
    with pytest.raises(BadRequestError, match=f"'{name}' must be") as refused:
        prepared(path, body)
    assert refused.value.param == name


@pytest.mark.parametrize("path", JSON_ROUTES)
def test_what_llama_server_refuses_itself_is_left_to_it(path: str) -> None:
    assert prepared(path, {}).width == 1
    assert prepared(path, {"temperature": "hot", "stop": 3, "tools": "x"}).width == 1


def test_a_bomb_inside_a_small_field_is_no_trouble() -> None:
    bomb = b"[" * 900 + b"]" * 900
    body = b'{"messages":[],"stream":true,"stream_options":' + bomb + b"}"
    assert not prepared(CHAT, body).wants_usage
    assert small_value({"x": msgspec.Raw(b"[" * 100_000)}, "x") is None


def test_a_request_does_not_show_its_text() -> None:
    shown = repr(prepared(CHAT, {"messages": [{"role": "user", "content": "a secret"}]}))
    assert "secret" not in shown
    assert "width=1" in shown


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
NAMES = st.sampled_from(
    [
        "stream",
        "n",
        "n_cmpl",
        "prompt",
        "messages",
        "input",
        "model",
        "max_tokens",
        "stream_options",
        "response_fields",
        "logprobs",
        "n_probs",
        "metadata",
        "user",
        "documents",
        "id_slot",
        "x",
    ]
)


@given(st.sampled_from(JSON_ROUTES), st.dictionaries(NAMES, JSON_VALUES, max_size=8))
def test_any_object_is_understood_or_refused_clearly(path: str, body: dict[str, Any]) -> None:
    raw = json.dumps(body).encode()
    result = outcome(path, raw)
    if isinstance(result, BadRequestError):
        assert result.param in body or b"NaN" in raw or b"Infinity" in raw
        return
    assert result.width >= 1
    upstream = json.loads(result.body)
    ours = {"stream", "stream_options", "return_progress", "id_slot", "echo", "response_fields"}
    for name in set(body) - ours:
        assert json.dumps(upstream[name]) == json.dumps(body[name])


@given(st.sampled_from(JSON_ROUTES), st.binary(max_size=40))
def test_any_bytes_are_understood_or_refused_clearly(path: str, body: bytes) -> None:
    result = outcome(path, b'{"a":' + body + b"}")
    if isinstance(result, BadRequestError):
        assert str(result).startswith(("the request", "'"))


def test_a_number_beyond_all_bounds_is_none() -> None:
    fields = parse_fields(b'{"a":1e999,"b":' + b"9" * 400 + b"}")
    assert whole(fields, "a") is None
    assert whole(fields, "b") is None
    assert math.isinf(float("1e999"))


def test_a_request_cannot_be_changed() -> None:
    result = prepared(CHAT, {"messages": HELLO})
    with pytest.raises(AttributeError):
        result.width = 2  # type: ignore[misc]
    assert msgspec.structs.replace(result, width=2).width == 2


@pytest.mark.parametrize("path", ["/completion", "/v1/completions"])
def test_several_choices_of_an_empty_prompt_are_refused_for_they_are_never_answered(
    path: str,
) -> None:
    route = find_route("POST", path)
    assert route is not None
    with pytest.raises(BadRequestError, match="empty prompt") as refused:
        prepare(route, b'{"prompt":"","n":2}', content_type="application/json")
    assert refused.value.param == "prompt"
    assert prepare(route, b'{"prompt":"","n":1}', content_type="application/json").width == 1
    assert prepare(route, b'{"prompt":"a","n":2}', content_type="application/json").width == 2
