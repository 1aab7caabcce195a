"""Requests whose answers must have one shape, whoever answers; the shapes are in skeletons.json."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.contracts.wire import Answer, Server

TEXT = "Hello my"
MESSAGES = [{"role": "user", "content": "hi"}]
LONG = [{"role": "user", "content": "one two three four five six seven " * 10}]
# Of these the values count, not only the types.
TELLING = frozenset(
    {"object", "type", "role", "stop_type", "finish_reason", "stop_reason", "status", "owned_by"}
    | {"index", "tokens_predicted", "completion_tokens", "output_tokens", "predicted_n"}
)


@dataclass(frozen=True)
class Case:
    """A request: GET without a body, else POST."""

    name: str
    path: str
    body: dict[str, Any] | None = None

    def send(self, server: Server) -> Answer:
        return server.request("GET" if self.body is None else "POST", self.path, self.body)


def _pair(name: str, path: str, body: dict[str, Any]) -> list[Case]:
    """The same request as one answer and as a stream."""
    return [Case(name, path, body), Case(f"{name}, streamed", path, body | {"stream": True})]


_native = {"prompt": TEXT, "n_predict": 3, "temperature": 0}
_openai = {"prompt": TEXT, "max_tokens": 3, "temperature": 0}
_chat = {"messages": MESSAGES, "max_tokens": 3, "temperature": 0}
_responses = {"input": "hi", "max_output_tokens": 3, "temperature": 0}
_progress = {"stream": True, "return_progress": True, "messages": LONG, "cache_prompt": False}

CASES = [
    Case("health", "/health"),
    Case("health under /v1", "/v1/health"),
    Case("props", "/props"),
    Case("models", "/models"),
    Case("models under /v1", "/v1/models"),
    Case("lora adapters", "/lora-adapters"),
    Case("tokenize", "/tokenize", {"content": "hello world"}),
    Case("tokenize with pieces", "/tokenize", {"content": "hello world", "with_pieces": True}),
    Case("tokenize nothing", "/tokenize", {}),
    Case("detokenize", "/detokenize", {"tokens": [28120, 905]}),
    Case("template", "/apply-template", {"messages": MESSAGES}),
    Case("count chat", "/v1/chat/completions/input_tokens", {"messages": MESSAGES}),
    Case("count chat, short path", "/chat/completions/input_tokens", {"messages": MESSAGES}),
    Case("count responses", "/v1/responses/input_tokens", {"input": "hi"}),
    Case("count messages", "/v1/messages/count_tokens", {"messages": MESSAGES, "max_tokens": 3}),
    *_pair("native", "/completion", _native),
    *_pair("native, plural", "/completions", _native),
    *_pair("native, two prompts", "/completion", _native | {"prompt": [TEXT, "abc def"]}),
    *_pair("native, two answers", "/completion", _native | {"n": 2}),
    *_pair("native, empty prompt", "/completion", _native | {"prompt": ""}),
    *_pair("native, tokens", "/completion", _native | {"prompt": [1000, 2000, 3000]}),
    *_pair("native, nothing asked", "/completion", _native | {"n_predict": 0}),
    Case(
        "native, timings on each token",
        "/completion",
        _native | {"stream": True, "timings_per_token": True},
    ),
    Case(
        "native, progress",
        "/completion",
        _native | {"stream": True, "return_progress": True, "prompt": "one two three " * 32},
    ),
    *_pair("completion", "/v1/completions", _openai),
    *_pair("completion, two prompts", "/v1/completions", _openai | {"prompt": [TEXT, "abc def"]}),
    *_pair("completion, two answers", "/v1/completions", _openai | {"n": 2}),
    Case(
        "completion, usage asked",
        "/v1/completions",
        _openai | {"stream": True, "stream_options": {"include_usage": True}},
    ),
    Case(
        "completion, progress",
        "/v1/completions",
        _openai | {"stream": True, "return_progress": True, "prompt": "two three four " * 32},
    ),
    *_pair("chat", "/v1/chat/completions", _chat),
    *_pair("chat, short path", "/chat/completions", _chat),
    *_pair("chat, two answers", "/v1/chat/completions", _chat | {"n": 2}),
    Case(
        "chat, usage asked",
        "/v1/chat/completions",
        _chat | {"stream": True, "stream_options": {"include_usage": True}},
    ),
    Case("chat, progress", "/v1/chat/completions", _chat | _progress),
    *_pair("responses", "/v1/responses", _responses),
    *_pair("responses, short path", "/responses", _responses),
    Case(
        "responses, progress",
        "/v1/responses",
        _responses
        | {"stream": True, "return_progress": True, "input": "six seven eight nine " * 15},
    ),
    *_pair("messages", "/v1/messages", _chat),
    Case("messages, progress", "/v1/messages", _chat | _progress),
]


def skeleton(answer: Answer) -> dict[str, Any]:
    """What of an answer must be the same: headers, framing, keys in their order, telling values."""
    is_stream = (answer.head.get("Content-Type") or "").startswith("text/event-stream")
    return {
        "status": answer.status,
        "headers": [_header(name, value) for name, value in answer.head.headers],
        "was_closed": answer.was_closed,
        "body": sorted([[name, bones(data)] for name, data in answer.frames], key=_place)
        if is_stream
        else bones(answer.json),
    }


def _place(frame: list[Any]) -> int:
    """Of several answers in one stream it does not matter whose frame came first."""
    data = frame[1]
    if not isinstance(data, dict):
        return -1 if data is None else 99
    found = data.get("choices", [data])
    return int(found[0].get("index", 0)) if found else 98


def _header(name: str, value: str) -> str:
    return f"{name}: {'...' if name == 'Content-Length' else value}"


def bones(value: Any, key: str = "") -> Any:
    """Take the values out of JSON; of a list only the first item stays."""
    if isinstance(value, dict):
        return {name: bones(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [bones(item, key) for item in (value if key in {"choices", ""} else value[:1])]
    if isinstance(value, bool) or value is None or key in TELLING or value == "[DONE]":
        return value
    return "number" if isinstance(value, int | float) else "text"
