"""Our errors look as each route's clients expect, and the official clients raise them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anthropic
import httpx2
import openai
import pytest

from slotgate.wire.errors import error_body, error_in, event_of_error, stream_error
from slotgate.wire.routes import Shape

if TYPE_CHECKING:
    from collections.abc import Iterator

QUEUE_FULL: dict[str, Any] = {
    "message": "64 requests wait already",
    "type": "rate_limit_error",
    "code": "queue_full",
}
BROKEN: dict[str, Any] = {"message": "the backend died", "type": "api_error", "code": "broken"}


@pytest.mark.parametrize("shape", [None, *[s for s in Shape if s is not Shape.MESSAGES]])
def test_everywhere_the_envelope_is_openais(shape: Shape | None) -> None:
    body = error_body(shape, **QUEUE_FULL, param="n", extra={"limit": 64})
    assert json.loads(body) == {
        "error": {**QUEUE_FULL, "param": "n", "limit": 64},
        "src": "slotgate",
    }


def test_on_messages_the_envelope_is_anthropics() -> None:
    body = error_body(Shape.MESSAGES, **QUEUE_FULL, extra={"limit": 64})
    assert json.loads(body) == {
        "type": "error",
        "error": {**QUEUE_FULL, "limit": 64},
        "src": "slotgate",
    }


def test_on_messages_a_parameter_is_named_when_there_is_one() -> None:
    body = error_body(Shape.MESSAGES, message="m", type="invalid_request_error", param="n")
    assert json.loads(body)["error"]["param"] == "n"


@pytest.mark.parametrize(
    ("type", "code", "wanted"),
    [
        ("overloaded_error", "queue_full", "overloaded_error"),
        ("invalid_request_error", None, "invalid_request_error"),
        ("server_error", "queue_full", "overloaded_error"),
        ("server_error", "tenant_limit", "rate_limit_error"),
        ("server_error", "backend_timeout", "timeout_error"),
        ("server_error", "context_length_exceeded", "invalid_request_error"),
        ("unavailable_error", 503, "overloaded_error"),
        ("exceed_context_size_error", 400, "invalid_request_error"),
        ("server_error", 500, "api_error"),
        ("anything", None, "api_error"),
    ],
)
def test_on_messages_types_are_anthropics_own(type: str, code: Any, wanted: str) -> None:
    error = json.loads(error_body(Shape.MESSAGES, message="m", type=type, code=code))["error"]
    assert error["type"] == wanted


@pytest.mark.parametrize("shape", [None, *Shape])
def test_an_error_in_a_stream_is_one_frame(shape: Shape | None) -> None:
    frame = stream_error(shape, message="two\n\nlines", type="api_error", code=None)
    assert frame.endswith(b"\n\n")
    assert frame.count(b"\n\n") == 1


def client_of(stream: bytes, status: int = 200) -> httpx2.Client:
    headers = {"content-type": "text/event-stream" if status == 200 else "application/json"}

    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(status, content=stream, headers=headers, request=request)

    return httpx2.Client(transport=httpx2.MockTransport(answer))


@pytest.fixture
def openai_client(request: pytest.FixtureRequest) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url="http://gateway", api_key="k", http_client=client_of(*request.param), max_retries=0
    ) as client:
        yield client


@pytest.fixture
def anthropic_client(request: pytest.FixtureRequest) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(
        base_url="http://gateway", api_key="k", http_client=client_of(*request.param), max_retries=0
    ) as client:
        yield client


CHAT_CHUNK = (
    b'data: {"choices":[{"finish_reason":null,"index":0,"delta":{"content":"Hi"}}],"created":1,'
    b'"id":"c","model":"m","object":"chat.completion.chunk"}\n\n'
)
TEXT_CHUNK = (
    b'data: {"choices":[{"text":"Hi","index":0,"logprobs":null,"finish_reason":null}],"created":1,'
    b'"id":"c","model":"m","object":"text_completion"}\n\n'
)
RESPONSE_EVENT = (
    b"event: response.output_text.delta\n"
    b'data: {"type":"response.output_text.delta","item_id":"i","delta":"Hi"}\n\n'
)
MESSAGE_START = (
    b"event: message_start\n"
    b'data: {"type":"message_start","message":{"id":"c","type":"message","role":"assistant",'
    b'"content":[],"model":"m","stop_reason":null,"stop_sequence":null,'
    b'"usage":{"cache_read_input_tokens":0,"input_tokens":1,"output_tokens":0}}}\n\n'
)


@pytest.mark.parametrize(
    "openai_client", [(CHAT_CHUNK + stream_error(Shape.CHAT, **BROKEN),)], indirect=True
)
def test_openais_client_raises_an_error_inside_a_chat(openai_client: openai.OpenAI) -> None:
    stream = openai_client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "Hi"}], stream=True
    )
    assert next(stream).choices[0].delta.content == "Hi"
    with pytest.raises(openai.APIError, match="the backend died") as raised:
        next(stream)
    assert raised.value.code == "broken"
    assert raised.value.type == "api_error"


@pytest.mark.parametrize(
    "openai_client",
    [(TEXT_CHUNK + stream_error(Shape.OPENAI_COMPLETION, **BROKEN),)],
    indirect=True,
)
def test_openais_client_raises_an_error_inside_a_completion(openai_client: openai.OpenAI) -> None:
    stream = openai_client.completions.create(model="m", prompt="Hi", stream=True)
    assert next(stream).choices[0].text == "Hi"
    with pytest.raises(openai.APIError, match="the backend died"):
        next(stream)


@pytest.mark.parametrize(
    "openai_client", [(RESPONSE_EVENT + stream_error(Shape.RESPONSES, **BROKEN),)], indirect=True
)
def test_openais_client_raises_an_error_inside_a_response(openai_client: openai.OpenAI) -> None:
    stream = openai_client.responses.create(model="m", input="Hi", stream=True)
    assert next(stream).type == "response.output_text.delta"
    with pytest.raises(openai.APIError, match="the backend died"):
        next(stream)


def test_the_event_inside_a_response_is_also_the_documented_one() -> None:
    frame = stream_error(Shape.RESPONSES, **BROKEN)
    assert frame.startswith(b"event: error\n")
    event = json.loads(frame.split(b"data: ")[1])
    assert (event["type"], event["code"], event["message"], event["param"]) == (
        "error",
        "broken",
        "the backend died",
        None,
    )


@pytest.mark.parametrize(
    ("error", "message", "type", "code"),
    [
        ({"code": 500, "message": "Boo", "type": "exhausted"}, "Boo", "exhausted", 500),
        ({"code": [500], "message": "Boo"}, "Boo", "server_error", None),
        ({"why": "Boo"}, '{"why":"Boo"}', "server_error", None),
    ],
)
def test_a_backends_error_is_an_event_in_its_own_words(
    error: dict[str, Any], message: str, type: str, code: object
) -> None:
    data = json.loads(event_of_error(Shape.CHAT, error).removeprefix(b"data: "))
    said = data["error"]
    assert (said["message"], said["type"], said["code"]) == (message, type, code)


@pytest.mark.parametrize(
    "anthropic_client", [(MESSAGE_START + stream_error(Shape.MESSAGES, **BROKEN),)], indirect=True
)
def test_anthropics_client_raises_an_error_inside_a_message(
    anthropic_client: anthropic.Anthropic,
) -> None:
    stream = anthropic_client.messages.create(
        model="m", max_tokens=1, messages=[{"role": "user", "content": "Hi"}], stream=True
    )
    assert next(stream).type == "message_start"
    with pytest.raises(anthropic.APIError, match="the backend died") as raised:
        next(stream)
    assert json.loads(json.dumps(raised.value.body))["error"]["type"] == "api_error"


@pytest.mark.parametrize(
    "openai_client", [(error_body(Shape.CHAT, **QUEUE_FULL), 429)], indirect=True
)
def test_openais_client_reads_a_refusal(openai_client: openai.OpenAI) -> None:
    with pytest.raises(openai.RateLimitError, match="64 requests wait") as raised:
        openai_client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "Hi"}]
        )
    assert raised.value.code == "queue_full"


@pytest.mark.parametrize(
    "anthropic_client", [(error_body(Shape.MESSAGES, **QUEUE_FULL), 529)], indirect=True
)
def test_anthropics_client_reads_a_refusal(anthropic_client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.APIStatusError, match="64 requests wait") as raised:
        anthropic_client.messages.create(
            model="m", max_tokens=1, messages=[{"role": "user", "content": "Hi"}]
        )
    assert raised.value.status_code == 529


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error":{"code":400,"message":"Too long","type":"x"}}', "Too long"),
        (b'{"error":"no"}', "the backend answered 400"),
        (b'["error"]', "the backend answered 400"),
        (b"7", "the backend answered 400"),
        (b"\xff", "the backend answered 400"),
        (b"", "the backend answered 400"),
    ],
)
def test_an_error_answer_says_its_error_or_at_least_its_status(body: bytes, message: str) -> None:
    error = error_in(400, body)
    assert (error["code"], error["message"]) == (400, message)
