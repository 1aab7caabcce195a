"""The official Python SDKs get from the gateway what they get from a llama-server.

In front of the stub and of a real llama.cpp alike: only shapes are looked at here, the text is
compared with the backend's own in test_same_as_direct.py.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anthropic
import openai
import pytest

from tests.wire.cases import CHAT_TOOLS, NO_THINKING, ONE_CALL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.conftest import Pair

pytestmark = pytest.mark.anyio

HELLO: list[Any] = [{"role": "user", "content": "Say hello to the world."}]
SCHEMA: Any = {
    "type": "json_schema",
    "json_schema": {
        "name": "answer",
        "schema": {
            "type": "object",
            "properties": {"is_true": {"type": "boolean"}},
            "required": ["is_true"],
            "additionalProperties": False,
        },
    },
}


@pytest.fixture
def client(served: Pair) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as one:
        yield one


@pytest.fixture
def real(llama: Pair) -> Iterator[openai.OpenAI]:
    """For what the stub does not speak: probabilities and grammars."""
    with openai.OpenAI(base_url=f"{llama.url}/v1", api_key="none", max_retries=0) as one:
        yield one


@pytest.fixture
def claude(served: Pair) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=served.url, api_key="none", max_retries=0) as one:
        yield one


def test_a_chat_is_answered(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="any", messages=HELLO, max_tokens=8)

    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_a_streamed_chat_brings_the_text_of_the_whole_one_and_the_usage_asked_for(
    client: openai.OpenAI,
) -> None:
    fields: Any = {"model": "any", "messages": HELLO, "max_tokens": 8, "temperature": 0, "seed": 7}
    whole = client.chat.completions.create(**fields)
    with client.chat.completions.create(
        **fields, stream=True, stream_options={"include_usage": True}
    ) as stream:
        chunks = list(stream)

    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert [c.usage for c in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].usage is not None
    assert whole.usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


@pytest.mark.llama
@pytest.mark.process
def test_a_tool_is_called_in_both_ways(calling_llama: Pair) -> None:
    fields: Any = {
        "model": "any",
        "messages": ONE_CALL,
        "tools": CHAT_TOOLS,
        "max_tokens": 60,
        "temperature": 0,
        "seed": 1,
        "extra_body": NO_THINKING,
    }
    url = f"{calling_llama.url}/v1"
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        whole = client.chat.completions.create(**fields)
        with client.chat.completions.stream(**fields) as stream:
            for _event in stream:
                pass
            streamed = stream.get_final_completion()

    assert whole.choices[0].finish_reason == streamed.choices[0].finish_reason == "tool_calls"
    (call,) = whole.choices[0].message.tool_calls or []
    (again,) = streamed.choices[0].message.tool_calls or []
    assert call.type == again.type == "function"
    assert call.function.name == again.function.name == "get_weather"
    assert json.loads(call.function.arguments) == json.loads(again.function.arguments)


def test_several_choices_come_from_one_call(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="any", messages=HELLO, max_tokens=4, n=2)

    assert [choice.index for choice in answer.choices] == [0, 1]
    assert all(choice.message.content for choice in answer.choices)


@pytest.mark.llama
@pytest.mark.process
def test_a_chat_tells_the_probabilities_that_it_was_asked_for(real: openai.OpenAI) -> None:
    answer = real.chat.completions.create(
        model="any", messages=HELLO, max_tokens=4, temperature=0, logprobs=True, top_logprobs=2
    )

    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert len(logprobs.content) == 4
    assert all(len(token.top_logprobs) == 2 for token in logprobs.content)


@pytest.mark.llama
@pytest.mark.process
def test_a_schema_for_the_answer_is_kept(real: openai.OpenAI) -> None:
    answer = real.chat.completions.create(
        model="any", messages=HELLO, max_tokens=32, response_format=SCHEMA
    )

    value = json.loads(answer.choices[0].message.content or "")
    assert isinstance(value["is_true"], bool)


def test_completions_are_answered_in_both_ways(client: openai.OpenAI) -> None:
    fields: Any = {"model": "any", "prompt": "One, two,", "max_tokens": 6, "temperature": 0}
    whole = client.completions.create(**fields)
    with client.completions.create(**fields, stream=True) as stream:
        chunks = list(stream)

    assert whole.choices[0].finish_reason == chunks[-1].choices[0].finish_reason == "length"
    assert whole.choices[0].text == "".join(chunk.choices[0].text for chunk in chunks)


def test_several_prompts_have_an_answer_each(client: openai.OpenAI) -> None:
    prompts = ["One, two,", "A, b,", "Monday, Tuesday,"]
    answer = client.completions.create(model="any", prompt=prompts, max_tokens=4)

    assert [choice.index for choice in answer.choices] == [0, 1, 2]


def test_responses_are_answered_in_both_ways(client: openai.OpenAI) -> None:
    fields: Any = {"model": "any", "input": "Hello", "max_output_tokens": 6, "temperature": 0}
    whole = client.responses.create(**fields)
    with client.responses.create(**fields, stream=True) as stream:
        events = list(stream)

    assert whole.output_text
    assert events[0].type == "response.created"
    assert events[-1].type == "response.completed"
    assert events[-1].response.output_text == whole.output_text


@pytest.mark.process
def test_texts_are_embedded(swift: Pair) -> None:
    with openai.OpenAI(base_url=f"{swift.url}/v1", api_key="none", max_retries=0) as client:
        answer = client.embeddings.create(
            model="any", input=["a", "b", "c", "d", "e"], encoding_format="float"
        )

    assert [item.index for item in answer.data] == [0, 1, 2, 3, 4]
    assert all(item.embedding for item in answer.data)


def test_the_models_are_listed(client: openai.OpenAI, served: Pair) -> None:
    with openai.OpenAI(base_url=f"{served.direct}/v1", api_key="none") as direct:
        expected = [model.id for model in direct.models.list()]

    assert [model.id for model in client.models.list()] == expected


def test_messages_are_answered_in_both_ways(claude: anthropic.Anthropic) -> None:
    fields: Any = {"model": "any", "messages": HELLO, "max_tokens": 6}
    fields["extra_body"] = {"temperature": 0}
    whole = claude.messages.create(**fields)
    with claude.messages.stream(**fields) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()

    assert whole.content[0].type == "text"
    assert whole.content[0].text == text
    assert whole.stop_reason == final.stop_reason == "max_tokens"
    assert whole.usage.output_tokens == final.usage.output_tokens == 6


def test_tokens_of_messages_are_counted_as_they_are_charged(claude: anthropic.Anthropic) -> None:
    counted = claude.messages.count_tokens(model="any", messages=HELLO)
    answer = claude.messages.create(
        model="any", messages=HELLO, max_tokens=1, extra_body={"temperature": 0}
    )

    cached = answer.usage.cache_read_input_tokens or 0
    assert counted.input_tokens == answer.usage.input_tokens + cached


async def test_async_clients_are_served_alike(served: Pair) -> None:
    async with (
        openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client,
        anthropic.AsyncAnthropic(base_url=served.url, api_key="none", max_retries=0) as claude,
    ):
        chat = await client.chat.completions.create(model="any", messages=HELLO, max_tokens=4)
        parts = []
        stream = await client.chat.completions.create(
            model="any", messages=HELLO, max_tokens=4, stream=True
        )
        async with stream:
            parts = [chunk async for chunk in stream]
        message = await claude.messages.create(model="any", messages=HELLO, max_tokens=4)
        async with claude.messages.stream(model="any", messages=HELLO, max_tokens=4) as events:
            final = await events.get_final_message()

    assert chat.choices[0].finish_reason == parts[-1].choices[0].finish_reason == "length"
    assert message.stop_reason == final.stop_reason == "max_tokens"


async def test_what_a_client_asks_of_the_raw_response_is_there(served: Pair) -> None:
    async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none") as client:
        raw = await client.chat.completions.with_raw_response.create(
            model="any", messages=HELLO, max_tokens=2, extra_headers={"x-request-id": "mine-1"}
        )

    assert raw.request_id == "mine-1"
    assert raw.headers["content-type"] == "application/json; charset=utf-8"
    assert raw.headers["x-slotgate-backend"]
    assert int(raw.headers["x-slotgate-queue-ms"]) >= 0
