"""The requests whose answers are compared: one each way llama-server can answer.

Each is sent to a real server as the client would send it, and as `prepare` sends it; the answer
put together from the stream must equal the answer to the client's own request.  `grammar` makes a
tiny model say what a case needs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

COMMON = {"temperature": 0, "seed": 1, "cache_prompt": False}
PLAIN = "plain"
TOOLS = "tools"

SERVERS: dict[str, dict[str, Any]] = {
    PLAIN: {"n_parallel": 4, "n_ctx": 2048, "n_batch": 32, "model_alias": ["small"]},
    TOOLS: {
        "n_parallel": 4,
        "n_ctx": 4096,
        "n_batch": 128,
        "model_alias": ["small"],
        "chat_template": (Path(__file__).parent / "tools.jinja").read_text(),
    },
}


@dataclass(frozen=True, slots=True)
class Case:
    """One request: `body` without what all have in common; None leaves a field out."""

    name: str
    path: str
    body: dict[str, Any]
    server: str = PLAIN
    common: dict[str, Any] = field(default_factory=lambda: dict(COMMON))

    @property
    def finds_itself_cached(self) -> bool:
        """Send it once before: what is in the cache is a part of the answer."""
        return bool(self.body.get("cache_prompt"))

    @property
    def request(self) -> dict[str, Any]:
        return {k: v for k, v in (self.common | self.body).items() if v is not None}


def _user(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


CAPITAL = _user("What is the capital of France?")
EMOJI = 'root ::= "😀 né"'
SHORT = 'root ::= "It is."'
HASHES = 'root ::= "abc###"'

WEATHER = {
    "name": "get_weather",
    "description": "Weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}
TIME = {
    "name": "get_time",
    "description": "Time of a zone.",
    "parameters": {
        "type": "object",
        "properties": {"zone": {"type": "string"}},
        "required": ["zone"],
    },
}
CHAT_TOOLS = [{"type": "function", "function": WEATHER}, {"type": "function", "function": TIME}]
RESPONSES_TOOLS = [{"type": "function", **WEATHER}, {"type": "function", **TIME}]
MESSAGES_TOOLS = [
    {"name": t["name"], "description": t["description"], "input_schema": t["parameters"]}
    for t in (WEATHER, TIME)
]
NO_THINKING = {"chat_template_kwargs": {"enable_thinking": False}}
THINKING = {"chat_template_kwargs": {"enable_thinking": True}}


def _call(id: str, name: str, **arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": id, "type": "function", "function": function}


def _turn(
    question: str, says: str, calls: list[dict[str, Any]], thought: str = ""
) -> list[dict[str, Any]]:
    answer: dict[str, Any] = {"role": "assistant", "content": says, "tool_calls": calls}
    if thought:
        answer["reasoning_content"] = thought
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "fine"} for call in calls]
    return [{"role": "user", "content": question}, answer, *results]


ONE_CALL = [
    *_turn("Weather in Rome?", "I look.", [_call("a1", "get_weather", city="Rome")]),
    *_turn("Weather in Oslo?", "I look.", [_call("a2", "get_weather", city="Oslo")]),
    *_user("Weather in Paris?"),
]
ONE_SILENT_CALL = [
    *_turn("Weather in Rome?", "", [_call("a1", "get_weather", city="Rome")]),
    *_turn("Weather in Oslo?", "", [_call("a2", "get_weather", city="Oslo")]),
    *_user("Weather in Paris?"),
]
TWO_CALLS = [
    *_turn(
        "Weather in Rome and time in CET?",
        "",
        [_call("a1", "get_weather", city="Rome"), _call("a2", "get_time", zone="CET")],
    ),
    *_turn(
        "Weather in Oslo and time in EST?",
        "",
        [_call("a3", "get_weather", city="Oslo"), _call("a4", "get_time", zone="EST")],
    ),
    *_user("Weather in Paris and time in UTC?"),
]
THOUGHTFUL_CALL = [
    *_turn("Weather in Rome?", "", [_call("a1", "get_weather", city="Rome")], "I must look."),
    *_turn("Weather in Oslo?", "", [_call("a2", "get_weather", city="Oslo")], "I must look."),
    *_user("Weather in Paris?"),
]
SUMS = [
    *_user("1+1?"),
    {"role": "assistant", "content": "It is 2.", "reasoning_content": "Add one and one."},
    *_user("2+2?"),
    {"role": "assistant", "content": "It is 4.", "reasoning_content": "Add two and two."},
    *_user("3+3?"),
]
PREFILLED = [*CAPITAL, {"role": "assistant", "content": "The capital is"}]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
    "required": ["city"],
}


def _chat(name: str, server: str = PLAIN, /, **body: Any) -> Case:
    body.setdefault("messages", CAPITAL)
    body.setdefault("max_tokens", 6)
    return Case(f"chat_{name}", "/v1/chat/completions", body, server)


def _text(name: str, /, **body: Any) -> Case:
    body.setdefault("prompt", "Once upon a time")
    body.setdefault("max_tokens", 5)
    return Case(f"text_{name}", "/v1/completions", body)


def _native(name: str, /, **body: Any) -> Case:
    body.setdefault("prompt", "Once upon a time")
    body.setdefault("n_predict", 4)
    return Case(f"native_{name}", "/completion", body)


def _responses(name: str, server: str = PLAIN, /, **body: Any) -> Case:
    body.setdefault("input", "What is the capital of France?")
    body.setdefault("max_output_tokens", 6)
    return Case(f"responses_{name}", "/v1/responses", body, server)


def _messages(name: str, server: str = PLAIN, /, **body: Any) -> Case:
    body.setdefault("messages", CAPITAL)
    body.setdefault("max_tokens", 6)
    # This route passes neither `seed` nor `cache_prompt` on; cached tokens differ from run to run.
    return Case(f"messages_{name}", "/v1/messages", body, server, {"temperature": 0})


# What a stream cannot bring back; `wire.assemble` says why.
LOST = frozenset(
    {
        "chat_limit_inside_a_stop_word",
        "text_limit_inside_a_stop_word",
        "native_limit_inside_a_stop_word",
        "chat_cut_inside_a_character",
        "text_cut_inside_a_character",
        "chat_markup_cut_by_the_limit",
        "messages_emoji_first",
    }
)

CASES = (
    _chat("to_its_end", grammar=SHORT, max_tokens=40),
    _chat("cut_by_the_limit", max_tokens=3),
    _chat("not_a_stream", stream=False, max_tokens=2),
    _chat("slot_asked_for", id_slot=3, max_tokens=2),
    _chat("cached_tokens", cache_prompt=True, max_tokens=2),
    _chat("one_token", max_tokens=1),
    _chat("no_token", max_tokens=0),
    _chat("all_names_of_the_limit", max_tokens=9, max_completion_tokens=8, n_predict=4),
    _chat("stop_word", stop=["France"]),
    _chat("stop_word_as_text", stop="France"),
    _chat("stop_word_begun_at_the_end", grammar=HASHES, stop=["####"], max_tokens=30),
    _chat("limit_inside_a_stop_word", grammar=HASHES, stop=["######"], max_tokens=4),
    _chat("several_choices", n=2, max_tokens=5),
    _chat("several_different_choices", n=3, max_tokens=5, temperature=1.5, seed=11),
    _chat("several_choices_of_other_name", n_cmpl=2, max_tokens=3),
    _chat("more_choices_than_slots", n=9),
    _chat("json_object", response_format={"type": "json_object"}, max_tokens=24),
    _chat("markup_cut_by_the_limit", response_format={"type": "json_object"}, max_tokens=4),
    _chat(
        "json_schema",
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
        max_tokens=30,
    ),
    _chat("json_schema_of_llama_cpp", json_schema=SCHEMA, max_tokens=30),
    _chat("emoji_first", grammar=EMOJI, max_tokens=30),
    _chat("cut_inside_a_character", grammar=EMOJI, max_tokens=2),
    _chat("logprobs", logprobs=True, top_logprobs=2, grammar=SHORT, max_tokens=40),
    _chat("logprobs_without_top", logprobs=True, top_logprobs=0, max_tokens=3),
    _chat("native_probabilities", n_probs=1, max_tokens=3),
    _chat("top_logprobs_alone", top_logprobs=2),
    _chat("timings_per_token", timings_per_token=True, max_tokens=3),
    _chat("verbose", verbose=True, max_tokens=3),
    _chat("progress_asked_for_nothing", return_progress=True, max_tokens=3),
    _chat("usage_asked_for_nothing", stream_options={"include_usage": False}, max_tokens=3),
    _chat("prefilled", messages=PREFILLED, max_tokens=5),
    _chat("prefilled_and_echoed", messages=PREFILLED, max_tokens=5, echo=True),
    _chat("prefilled_several", messages=PREFILLED, max_tokens=4, n=2),
    _chat("ignored_end", ignore_eos=True, max_tokens=10),
    _chat("legacy_reasoning", TOOLS, messages=SUMS, reasoning_format="deepseek-legacy"),
    _chat("without_messages", messages=None),
    _chat("too_long", messages=_user("word " * 600)),
    _chat("bad_grammar", grammar="root ::= ("),
    _chat("one_call", TOOLS, messages=ONE_CALL, tools=CHAT_TOOLS, max_tokens=60, **NO_THINKING),
    _chat("two_calls", TOOLS, messages=TWO_CALLS, tools=CHAT_TOOLS, max_tokens=90, **NO_THINKING),
    _chat(
        "required_call",
        TOOLS,
        messages=ONE_SILENT_CALL,
        tools=CHAT_TOOLS,
        tool_choice="required",
        max_tokens=60,
        **NO_THINKING,
    ),
    _chat(
        "two_calls_several_choices",
        TOOLS,
        messages=TWO_CALLS,
        tools=CHAT_TOOLS,
        max_tokens=34,
        n=2,
        **NO_THINKING,
    ),
    _chat(
        "call_cut_by_the_limit",
        TOOLS,
        messages=ONE_CALL,
        tools=CHAT_TOOLS,
        max_tokens=18,
        **NO_THINKING,
    ),
    _chat(
        "call_with_logprobs",
        TOOLS,
        messages=ONE_CALL,
        tools=CHAT_TOOLS,
        logprobs=True,
        top_logprobs=1,
        max_tokens=12,
        **NO_THINKING,
    ),
    _chat("reasoning", TOOLS, messages=SUMS, max_tokens=40, **THINKING),
    _chat("reasoning_cut", TOOLS, messages=SUMS, max_tokens=4, **THINKING),
    _chat("reasoning_unparsed", TOOLS, messages=SUMS, max_tokens=40, reasoning_format="none"),
    _chat(
        "reasoning_and_call",
        TOOLS,
        messages=THOUGHTFUL_CALL,
        tools=CHAT_TOOLS,
        max_tokens=60,
        **THINKING,
    ),
    _text("plain"),
    _text(
        "to_its_end",
        prompt="<|im_start|>user\nCapital of France?<|im_end|>\n<|im_start|>assistant\n",
        max_tokens=40,
    ),
    _text("no_token", max_tokens=0),
    _text("stop_word", stop=[","]),
    _text("limit_inside_a_stop_word", grammar=HASHES, stop=["######"], max_tokens=4),
    _text("several_choices", n=2, temperature=1.5, seed=7),
    _text("list", prompt=["One two three", "The sky is"]),
    _text("list_of_one", prompt=["The sky is"]),
    _text("list_times_choices", prompt=["One two", "The sky"], n=2, max_tokens=3),
    _text("tokens", prompt=[504, 6632, 314]),
    _text("list_of_tokens", prompt=[[504, 6632, 314], [504, 2]]),
    _text("mixed", prompt=["The sky", 314, " very"]),
    _text("logprobs", logprobs=2, max_tokens=4),
    _text("logprobs_of_emoji", logprobs=1, grammar=EMOJI, max_tokens=20),
    _text("logprobs_and_stop_word", logprobs=1, stop=[","]),
    _text("logprobs_of_several", logprobs=1, n=2, max_tokens=3),
    _text("echo", echo=True),
    _text("verbose", verbose=True, max_tokens=3),
    _text("emoji_first", grammar=EMOJI, max_tokens=20),
    _text("cut_inside_a_character", grammar=EMOJI, max_tokens=2),
    _text("empty", prompt=""),
    _text("without_prompt", prompt=None),
    _native("plain"),
    _native(
        "to_its_end",
        prompt="<|im_start|>user\nCapital of France?<|im_end|>\n<|im_start|>assistant\n",
        n_predict=40,
    ),
    _native("no_token", n_predict=0),
    _native("one_token", n_predict=1),
    _native("stop_word", stop=[","], n_predict=20),
    _native("limit_inside_a_stop_word", grammar=HASHES, stop=["######"], n_predict=4),
    _native("list", prompt=["One two three", "The sky is"]),
    _native("list_of_one", prompt=["The sky is"]),
    _native("list_times_choices", prompt=["One two", "The sky"], n=2, n_predict=2),
    _native("several_choices", n=2, temperature=1.5, seed=7),
    _native("tokens", prompt=[504, 6632, 314]),
    _native("object", prompt={"prompt_string": "The sky is"}),
    _native("probabilities", n_probs=2, n_predict=3),
    _native("probabilities_after_sampling", n_probs=2, post_sampling_probs=True, n_predict=3),
    _native("probabilities_of_a_list", n_probs=1, prompt=["One two", "The sky"], n_predict=2),
    _native("probabilities_and_stop_word", n_probs=1, stop=[","]),
    _native("probabilities_of_emoji", n_probs=1, grammar=EMOJI, n_predict=20),
    _native("return_tokens", return_tokens=True),
    _native("return_tokens_of_emoji", return_tokens=True, grammar=EMOJI, n_predict=20),
    _native("response_fields", response_fields=["content", "generation_settings/n_predict", "x/y"]),
    _native(
        "response_fields_of_a_list", response_fields=["content", "stop"], prompt=["One", "Two"]
    ),
    _native("no_response_fields", response_fields=[]),
    _native("timings_per_token", timings_per_token=True, n_predict=3),
    _native("emoji_first", grammar=EMOJI, n_predict=20),
    _native("cut_inside_a_character", grammar=EMOJI, n_predict=2),
    _native("samplers", samplers=["top_k", "temperature"], top_k=5, logit_bias=[[15, -1]]),
    _native("new_lines", grammar='root ::= "a\\nb\\n"'),
    _native("too_long", prompt="word " * 600),
    _native("wrong_field", n_predict=-5),
    Case(
        "infill", "/infill", {"input_prefix": "def f(", "input_suffix": "return 1", "n_predict": 5}
    ),
    _responses("to_its_end", grammar=SHORT, max_output_tokens=40),
    _responses("cut_by_the_limit", max_output_tokens=3),
    _responses("no_token", max_output_tokens=0),
    _responses("instructions", instructions="Answer in one word."),
    _responses("messages", input=CAPITAL),
    _responses("emoji_first", grammar=EMOJI, max_output_tokens=20),
    _responses("without_input", input=None),
    _responses("several", n=2),
    _responses(
        "prefilled",
        input=[
            {"role": "user", "content": "What is the capital of France?"},
            {"type": "message", "role": "assistant", "content": "The capital is"},
        ],
    ),
    _responses(
        "two_calls",
        TOOLS,
        tools=RESPONSES_TOOLS,
        max_output_tokens=90,
        input=[
            {"role": "user", "content": "Weather in Rome and time in CET?"},
            {
                "type": "function_call",
                "call_id": "a1",
                "name": "get_weather",
                "arguments": '{"city": "Rome"}',
            },
            {
                "type": "function_call",
                "call_id": "a2",
                "name": "get_time",
                "arguments": '{"zone": "CET"}',
            },
            {"type": "function_call_output", "call_id": "a1", "output": "fine"},
            {"type": "function_call_output", "call_id": "a2", "output": "fine"},
            {"role": "user", "content": "Weather in Paris and time in UTC?"},
        ],
        **NO_THINKING,
    ),
    _responses("reasoning", TOOLS, input=SUMS[-1:], max_output_tokens=20, **THINKING),
    _messages("to_its_end", max_tokens=40),
    _messages("cut_by_the_limit", max_tokens=3),
    _messages("no_token", max_tokens=0),
    _messages("stop_sequence", stop_sequences=["France"]),
    _messages("system", system="Answer in one word."),
    _messages("system_blocks", system=[{"type": "text", "text": "Answer in one word."}]),
    _messages("prefilled", messages=PREFILLED),
    _messages(
        "emoji_first",
        messages=[*_user("Say 😀"), {"role": "assistant", "content": "😀"}, *_user("Say 😀")],
    ),
    _messages("without_messages", messages=None),
    _messages("reasoning", TOOLS, messages=SUMS[-1:], max_tokens=20, **THINKING),
    _messages(
        "two_calls",
        TOOLS,
        tools=MESSAGES_TOOLS,
        max_tokens=90,
        messages=[
            *_user("Weather in Rome and time in CET?"),
            {
                "role": "assistant",
                "content": [
                    {
                        "type": "tool_use",
                        "id": "a1",
                        "name": "get_weather",
                        "input": {"city": "Rome"},
                    },
                    {"type": "tool_use", "id": "a2", "name": "get_time", "input": {"zone": "CET"}},
                ],
            },
            *_user("Weather in Oslo and time in EST?"),
            {
                "role": "assistant",
                "content": [
                    {
                        "type": "tool_use",
                        "id": "a3",
                        "name": "get_weather",
                        "input": {"city": "Oslo"},
                    },
                    {"type": "tool_use", "id": "a4", "name": "get_time", "input": {"zone": "EST"}},
                ],
            },
            *_user("Weather in Paris and time in UTC?"),
        ],
        **NO_THINKING,
    ),
)
