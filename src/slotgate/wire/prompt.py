"""What the prompt of a request asks for: how many slots at once, how much text, whose turn it is.

*Width* is the number of sequences that one request starts.  llama-server runs one sequence for
each prompt of a list, each of the `n` completions, each embedding input and each document to rank,
and takes a slot for each at the same time.  A list that contains a whole number is one prompt of
tokens (and maybe strings between them): `[1, 2, 3]` is one prompt, `["a", "b"]` and `[[1, 2], [3]]`
are two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from slotgate.errors import BadRequestError
from slotgate.wire.fields import (
    first_byte,
    flag,
    has,
    is_array,
    is_number,
    items,
    size_of,
    small_value,
    text,
    whole,
)
from slotgate.wire.routes import Shape

if TYPE_CHECKING:
    from collections.abc import Sequence

    import msgspec

    from slotgate.wire.fields import Fields

# Where the prompt is, by shape; the sizes of these fields together bound the prompt's tokens,
# since a token is at least a byte and JSON never shortens text.
PROMPT_FIELDS: dict[Shape, tuple[str, ...]] = {
    Shape.COMPLETION: ("prompt", "input_prefix", "input_suffix", "input_extra"),
    Shape.OPENAI_COMPLETION: ("prompt",),
    Shape.CHAT: ("messages", "tools", "functions"),
    Shape.RESPONSES: ("input", "instructions", "tools"),
    Shape.MESSAGES: ("system", "messages", "tools"),
    Shape.EMBEDDING: ("input", "content"),
    Shape.RERANK: ("query", "documents", "texts"),
    Shape.DECISION: ("state", "questions", "messages"),
}
_OF_TEXT = frozenset({Shape.COMPLETION, Shape.OPENAI_COMPLETION})
_OF_MESSAGES = frozenset({Shape.CHAT, Shape.MESSAGES})
# Anthropic's route drops `n`.
_SEVERAL = frozenset({*_OF_TEXT, Shape.CHAT, Shape.RESPONSES})

# An image or a sound inside JSON is base64; it becomes some hundred tokens, whatever its size.
_MEDIA_MARKS = (b"base64,", b'"data":"', b'"data": "')
_MEDIA_BYTES = 4096
_STRING_STARTS = frozenset(b'"{')
_QUOTE = ord('"')
_OPENING_BYTES = 1024
_OPENING_MESSAGES = 4


def count_prompts(raw: msgspec.Raw, name: str) -> int:
    """Count the prompts in a string, an object, or any list of them.

    Raises BadRequestError, naming the field, when it is none of these.
    """
    if is_array(raw):
        return _count_list(raw)
    if first_byte(raw) in _STRING_STARTS:
        return 1
    raise BadRequestError(f"'{name}' must be a string, an array or an object", param=name)


def _count_list(raw: msgspec.Raw) -> int:
    # Without looking at each of a hundred thousand tokens.
    start = bytes(memoryview(raw)[1:64]).lstrip()[:1]
    if start.isdigit():
        return 1
    elements = items(raw)
    if any(is_number(element) for element in elements):
        return 1
    return max(1, len(elements))


def prompts_of(shape: Shape, fields: Fields) -> int:
    """Count the prompts, inputs, documents or questions; at least 1."""
    if shape in _OF_TEXT:
        return count_prompts(fields["prompt"], "prompt") if has(fields, "prompt") else 1
    if shape is Shape.EMBEDDING:
        name = "input" if "input" in fields else "content"
        return count_prompts(fields[name], name) if has(fields, name) else 1
    if shape is Shape.RERANK:
        return _count_items(fields, "documents" if "documents" in fields else "texts")
    return _count_items(fields, "questions") if shape is Shape.DECISION else 1


def _count_items(fields: Fields, name: str) -> int:
    raw = fields.get(name)
    return max(1, len(items(raw))) if raw is not None and is_array(raw) else 1


def completions_of(shape: Shape, fields: Fields) -> int:
    """Read `n_cmpl`, or else its alias `n`; less than one is for llama-server to refuse."""
    if shape not in _SEVERAL:
        return 1
    n = whole(fields, "n_cmpl", strict=True)
    if n is None:
        n = whole(fields, "n", strict=True)
    return 1 if n is None else max(1, n)


def text_bytes_of(shape: Shape, fields: Fields, body: bytes) -> int:
    """Return the size of the prompt's text in bytes: no prompt has more tokens than this.

    Media inside the text count as a few thousand bytes each, whatever their size.
    """
    size = size_of(fields, PROMPT_FIELDS[shape])
    if shape is Shape.RERANK:
        # Every document is read together with the query.
        size += size_of(fields, ("query",)) * (prompts_of(shape, fields) - 1)
    return max(0, size - _media_excess(body)) if size > _MEDIA_BYTES else size


def _media_excess(body: bytes) -> int:
    excess = 0
    for mark in _MEDIA_MARKS:
        found = body.find(mark)
        while found >= 0:
            start = found + len(mark)
            end = body.find(b'"', start)
            excess += max(0, end - start - _MEDIA_BYTES)
            found = body.find(mark, max(end, start))
    return excess


def output_tokens_of(shape: Shape, fields: Fields) -> int | None:
    """Return the client's own bound on each sequence's output; None when it set none.

    `n_predict` wins over `max_completion_tokens`, and that over `max_tokens`.
    """
    if shape is Shape.MESSAGES and "max_tokens" not in fields:
        return 4096  # llama-server's own default there
    name = bound_name(shape, fields)
    bound = None if name is None else whole(fields, name)
    return None if bound is None or bound < 0 else bound


def bound_name(shape: Shape, fields: Fields) -> str | None:
    """Return the name of the client's own bound on the output that counts; None without one."""
    if shape is Shape.MESSAGES:
        # The only name that llama-server knows there.
        return "max_tokens" if "max_tokens" in fields else None
    # The responses route renames `max_output_tokens` to `max_tokens` before it looks.
    last = "max_tokens"
    if shape is Shape.RESPONSES and "max_output_tokens" in fields:
        last = "max_output_tokens"
    for name in ("n_predict", "max_completion_tokens", last):
        if name in fields and has(fields, name):
            return name
    return None


def messages_of(shape: Shape, fields: Fields) -> Sequence[msgspec.Raw]:
    """Return the messages of a chat.  Raises BadRequestError when they are no array."""
    if shape not in _OF_MESSAGES or not has(fields, "messages"):
        return ()
    raw = fields["messages"]
    if not is_array(raw):
        raise BadRequestError("'messages' must be an array", param="messages")
    return items(raw)


def is_prefilled(fields: Fields, messages: Sequence[msgspec.Raw]) -> bool:
    """Tell whether the assistant's own unfinished turn comes last, to be continued.

    Maybe so when its role is only mentioned there: what follows is right for any message.
    """
    if has(fields, "continue_final_message") and not flag(fields, "add_generation_prompt"):
        return True
    return bool(messages) and b'"assistant"' in bytes(messages[-1])


def affinity_of(shape: Shape, fields: Fields, messages: Sequence[msgspec.Raw]) -> str | None:
    """Return what requests with a common beginning share, None when nothing tells.

    What the client says goes first (`prompt_cache_key`, `safety_identifier`, `user`, Anthropic's
    `metadata.user_id`); else it is a checksum of how the prompt begins: its messages up to the
    first of the user, or the first KiB of a text.
    """
    for name in ("prompt_cache_key", "safety_identifier", "user"):
        if name in fields and (key := text(fields, name)):
            return key
    if shape is Shape.MESSAGES and "metadata" in fields:
        metadata = small_value(fields, "metadata")
        user = metadata.get("user_id") if isinstance(metadata, dict) else None
        if isinstance(user, str) and user:
            return user
    if shape is Shape.RESPONSES:
        return _opening_of_responses(fields)
    if shape in _OF_TEXT:
        return _opening_of_text(fields, "prompt")
    return _opening_of_messages(messages, fields.get("system")) if messages else None


def _opening_of_responses(fields: Fields) -> str | None:
    if "input" in fields and is_array(fields["input"]):
        turns = items(fields["input"])
        return _opening_of_messages(turns, fields.get("instructions")) if turns else None
    return _opening_of_text(fields, "input")


def _opening_of_text(fields: Fields, name: str) -> str | None:
    """Text grows at its end, without a mark where a turn begins; a short one is not worth it."""
    raw = fields.get(name)
    if raw is None or first_byte(raw) != _QUOTE or len(memoryview(raw)) <= _OPENING_BYTES:
        return None
    return f"{crc32(memoryview(raw)[:_OPENING_BYTES]):08x}"


def _opening_of_messages(messages: Sequence[msgspec.Raw], system: msgspec.Raw | None) -> str:
    """Prompts that begin alike for so long are worth having together, whoever sends them."""
    checksum = 0 if system is None else crc32(memoryview(system)[:_OPENING_BYTES])
    for message in messages[:_OPENING_MESSAGES]:
        opening = bytes(memoryview(message)[:_OPENING_BYTES])
        checksum = crc32(opening, checksum)
        if b'"user"' in opening:
            break
    return f"{checksum:08x}"
