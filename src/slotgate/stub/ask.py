"""What a request's body asks for, read and checked as llama-server does.

Field types and ranges are checked here, before a slot; whether the prompt fits only later, in the
slot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from slotgate.slotsim import Prompt
from slotgate.stub.options import BYTES_PER_TOKEN
from slotgate.stub.shapes import Shape

if TYPE_CHECKING:
    from collections.abc import Callable

Json = Any
Body = dict[str, Json]

INT_MAX = 2147483647
WITHOUT_STREAM = frozenset({Shape.EMBEDDING, Shape.OPENAI_EMBEDDING, Shape.RERANK})


class AskError(Exception):
    """The body is not acceptable; `status` and `type` as llama-server has them."""

    def __init__(
        self, message: str, *, status: int = 400, type: str = "invalid_request_error"
    ) -> None:
        super().__init__(message)
        self.status = status
        self.type = type


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request, understood."""

    shape: Shape
    prompts: tuple[Prompt, ...]
    stream: bool = False
    max_tokens: int | None = None
    n: int = 1
    progress: bool = False
    ping_interval: float = 30.0
    slot: int | None = None
    include_usage: bool = False
    timings_per_token: bool = False
    uses_cache: bool = True


def read_json(body: bytes) -> Body:
    try:
        data = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        text = f"[json.exception.parse_error.101] parse error at line 1, column 1: {error}"
        raise AskError(text) from error
    if not isinstance(data, dict):
        kind = "array" if isinstance(data, list) else type(data).__name__
        raise AskError(f"[json.exception.type_error.304] cannot use at() with {kind}")
    return {key: value for key, value in data.items() if value is not None}


def read_ask(shape: Shape, body: bytes, *, slots: int, ping_interval: float) -> Ask:
    """Read the body of a route that takes a slot."""
    data = read_json(body)
    stream_options = data.get("stream_options", {})
    include_usage = isinstance(stream_options, dict) and stream_options.get("include_usage")
    return Ask(
        shape=shape,
        prompts=PROMPT_READERS[shape](data),
        stream=shape not in WITHOUT_STREAM and _flag(data, "stream"),
        max_tokens=_max_tokens(data, shape),
        n=_answers(data, slots),
        progress=_flag(data, "return_progress"),
        ping_interval=_number(data, "sse_ping_interval", -1, ping_interval),
        slot=_slot(data),
        include_usage=bool(include_usage),
        timings_per_token=_flag(data, "timings_per_token"),
        uses_cache=_flag(data, "cache_prompt", default=True),
    )


def count_tokens(text: str) -> Prompt:
    """Let the stub's tokenizer read a text."""
    data = text.encode()
    return Prompt(-(-len(data) // BYTES_PER_TOKEN), data)


# Fields.


def _flag(data: Body, name: str, *, default: bool = False) -> bool:
    value = data.get(name, default)
    if not isinstance(value, bool):
        raise _wrong_type(name, "boolean", value)
    return value


def _number(data: Body, name: str, minimum: float, default: float) -> float:
    value = data.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong_type(name, "number", value)
    if not minimum <= value <= INT_MAX:
        raise _out_of_range(name, int(minimum), INT_MAX, value)
    return value


def _wrong_type(name: str, wanted: str, value: Json) -> AskError:
    kinds = {str: "string", bool: "boolean", list: "array", dict: "object"}
    kind = kinds.get(type(value), "number")
    return AskError(
        f"Field '{name}': [json.exception.type_error.302] type must be {wanted}, but is {kind}"
    )


def _out_of_range(name: str, minimum: int, maximum: int, value: float) -> AskError:
    return AskError(
        f"Field '{name}': Value must be between {minimum} <= value <= {maximum}, but got {value:g}"
    )


def _max_tokens(data: Body, shape: Shape) -> int | None:
    """Of several names for it the first here wins; -1 is no bound."""
    names = ["n_predict", "max_completion_tokens", "max_tokens"]
    if shape is Shape.RESPONSES:
        names.insert(0, "max_output_tokens")
    for name in names:
        if name in data:
            value = int(_number(data, name, -1, -1))
            return None if value < 0 else value
    return None


def _answers(data: Body, slots: int) -> int:
    name = "n_cmpl" if "n_cmpl" in data else "n"
    value = _number(data, name, -INT_MAX, 1)
    if not 1 <= value <= slots:
        raise _out_of_range(name, 1, slots, value)
    return int(value)


def _slot(data: Body) -> int | None:
    value = data.get("id_slot")
    if isinstance(value, bool) or not isinstance(value, int | float) or int(value) == -1:
        return None
    return int(value)


# Prompts.


def _native_prompts(data: Body) -> tuple[Prompt, ...]:
    if "prompt" not in data:
        raise AskError("[json.exception.out_of_range.403] key 'prompt' not found")
    prompt = data["prompt"]
    if isinstance(prompt, list) and not prompt:
        raise AskError('"prompt" must not be empty')
    if isinstance(prompt, list) and not any(_is_token(item) for item in prompt):
        return tuple(_one_prompt(item) for item in prompt)
    return (_one_prompt(prompt),)


def _one_prompt(value: Json) -> Prompt:
    """A string, a list of tokens, or a list of both."""
    if isinstance(value, str):
        return count_tokens(value)
    if isinstance(value, dict) and isinstance(value.get("prompt_string"), str):
        return count_tokens(value["prompt_string"])
    if not isinstance(value, list) or not all(_is_token(i) or isinstance(i, str) for i in value):
        raise AskError(
            '"prompt" elements must be a string, a list of tokens, a JSON object containing a '
            "prompt string, or a list of mixed strings & tokens."
        )
    parts = [_piece(item) for item in value]
    return Prompt(sum(part.tokens for part in parts), b"".join(part.text for part in parts))


def _piece(item: Json) -> Prompt:
    if isinstance(item, str):
        return count_tokens(item)
    return Prompt(1, (item & 0xFFFFFFFF).to_bytes(4, "big"))


def _is_token(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def chat_text(data: Body) -> str:
    """Apply the stub's chat template."""
    if "messages" not in data:
        raise AskError("'messages' is required")
    messages = data["messages"]
    if not isinstance(messages, list):
        raise AskError("Expected 'messages' to be an array")
    return "".join(_turn(message) for message in messages) + "<|im_start|>assistant\n"


def _turn(message: Json) -> str:
    if not isinstance(message, dict):
        raise AskError("Expected 'messages' to be an array of objects")
    role = message.get("role", "user")
    content = message.get("content")
    if content is None:
        if role != "assistant":
            raise AskError("All non-assistant messages must contain 'content'")
        content = ""
    return f"<|im_start|>{role}\n{_content_text(content)}<|im_end|>\n"


def _content_text(content: Json) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise AskError("Invalid 'content' type")
    return "".join(_part_text(part) for part in content)


def _part_text(part: Json) -> str:
    kind = part.get("type", "text") if isinstance(part, dict) else ""
    if "image" in kind:
        raise AskError(
            "image input is not supported - hint: if this is unexpected, "
            "you may need to provide the mmproj",
            status=500,
            type="server_error",
        )
    text = part.get("text", part.get("content", "")) if isinstance(part, dict) else part
    return text if isinstance(text, str) else msgspec.json.encode(text).decode()


def responses_text(data: Body) -> str:
    if "input" not in data:
        raise AskError("'input' is required")
    given = data["input"]
    turns = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if "instructions" in data:
        turns = [{"role": "system", "content": data["instructions"]}, *turns]
    return chat_text({"messages": turns})


def messages_text(data: Body) -> str:
    """Read Anthropic's body; its errors are a 500 here."""
    if "messages" not in data:
        raise AskError("'messages' is required", status=500, type="server_error")
    turns = data["messages"]
    if "system" in data and isinstance(turns, list):
        turns = [{"role": "system", "content": data["system"]}, *turns]
    return chat_text({"messages": turns})


def _infill_prompts(data: Body) -> tuple[Prompt, ...]:
    for name in ("input_prefix", "input_suffix"):
        if name not in data:
            raise AskError(f'"{name}" is required')
        if not isinstance(data[name], str):
            raise AskError(f'"{name}" must be a string')
    return (count_tokens(data["input_prefix"] + data["input_suffix"]),)


def _embedding_prompts(data: Body) -> tuple[Prompt, ...]:
    given = data.get("input", data.get("content"))
    if given is None:
        raise AskError('"input" or "content" must be provided')
    return _native_prompts({"prompt": given})


def _rerank_prompts(data: Body) -> tuple[Prompt, ...]:
    query = data.get("query")
    if not isinstance(query, str):
        raise AskError('"query" must be provided')
    documents = data.get("documents", data.get("texts"))
    if not isinstance(documents, list) or not documents:
        raise AskError('"documents" must be a non-empty string array')
    return tuple(count_tokens(f"{query}{document}") for document in documents)


def _template(text: Callable[[Body], str]) -> Callable[[Body], tuple[Prompt, ...]]:
    return lambda data: (count_tokens(text(data)),)


PROMPT_READERS: dict[Shape, Callable[[Body], tuple[Prompt, ...]]] = {
    Shape.NATIVE: _native_prompts,
    Shape.COMPLETION: _native_prompts,
    Shape.INFILL: _infill_prompts,
    Shape.CHAT: _template(chat_text),
    Shape.RESPONSES: _template(responses_text),
    Shape.MESSAGES: _template(messages_text),
    Shape.EMBEDDING: _embedding_prompts,
    Shape.OPENAI_EMBEDDING: _embedding_prompts,
    Shape.RERANK: _rerank_prompts,
}
