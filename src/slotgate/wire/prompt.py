"""What the prompt of a request asks for: how many slots at once, how much text, whose turn it is.

*Width* is the number of sequences that one request starts.  llama-server runs one sequence for
each prompt of a list, each of the `n` completions, each embedding input and each document to rank,
and takes a slot for each at the same time.  A list that contains a whole number is one prompt of
tokens (and maybe strings between them): `[1, 2, 3]` is one prompt, `["a", "b"]` and `[[1, 2], [3]]`
are two.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from slotgate.errors import BadRequestError
from slotgate.wire.fields import flag, has, items, kind_of, size_of, text, value_of, whole
from slotgate.wire.routes import Shape

if TYPE_CHECKING:
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
# An image or a sound inside JSON is base64; it becomes some hundred tokens, whatever its size.
_MEDIA = re.compile(rb"[A-Za-z0-9+/=]{4096,}")
_MEDIA_BYTES = 4096

_NUMBER_STARTS = "-0123456789"


def count_prompts(raw: msgspec.Raw, name: str) -> int:
    """Count the prompts in a string, an object, or any list of them.

    Raises BadRequestError, naming the field, when it is none of these.
    """
    kind = kind_of(raw)
    if kind == "[":
        return _count_list(raw)
    if kind in '"{':
        return 1
    raise BadRequestError(f"'{name}' must be a string, an array or an object", param=name)


def _count_list(raw: msgspec.Raw) -> int:
    # Without looking at each of a hundred thousand tokens.
    start = bytes(memoryview(raw)[1:64]).lstrip()[:1].decode("ascii", "replace")
    if start in _NUMBER_STARTS:
        return 1
    elements = items(raw)
    if any(kind_of(element) in _NUMBER_STARTS for element in elements):
        return 1
    return max(1, len(elements))


def width_of(shape: Shape, fields: Fields) -> int:
    """Return the number of slots the request takes at once, at least 1."""
    if shape in {Shape.COMPLETION, Shape.OPENAI_COMPLETION}:
        prompts = count_prompts(fields["prompt"], "prompt") if has(fields, "prompt") else 1
        return prompts * _completions(fields)
    if shape in {Shape.CHAT, Shape.RESPONSES}:
        return _completions(fields)
    if shape is Shape.EMBEDDING:
        name = "input" if "input" in fields else "content"
        return count_prompts(fields[name], name) if has(fields, name) else 1
    if shape is Shape.RERANK:
        return _count_items(fields, "documents" if "documents" in fields else "texts")
    return _count_items(fields, "questions") if shape is Shape.DECISION else 1


def _completions(fields: Fields) -> int:
    """Read `n_cmpl`, or else its alias `n`; less than one is for llama-server to refuse."""
    n = whole(fields, "n_cmpl", strict=True)
    if n is None:
        n = whole(fields, "n", strict=True)
    return 1 if n is None else max(1, n)


def _count_items(fields: Fields, name: str) -> int:
    raw = fields.get(name)
    if raw is None or kind_of(raw) != "[":
        return 1
    return max(1, len(items(raw)))


def text_bytes_of(shape: Shape, fields: Fields) -> int:
    """Return the size of the prompt's text in bytes: no prompt has more tokens than this.

    Media inside the text count as a few thousand bytes each, whatever their size.
    """
    names = PROMPT_FIELDS.get(shape, ())
    size = size_of(fields, *names)
    if shape is Shape.RERANK:
        # Every document is read together with the query.
        size += size_of(fields, "query") * (width_of(shape, fields) - 1)
    if size <= _MEDIA_BYTES:
        return size
    for name in names:
        if name in fields:
            size -= _media_excess(fields[name])
    return size


def _media_excess(raw: msgspec.Raw) -> int:
    view = memoryview(raw)
    if b"base64" not in bytes(view) and b'"data"' not in bytes(view):
        return 0
    return sum(len(found.group()) - _MEDIA_BYTES for found in _MEDIA.finditer(view))


def output_tokens_of(shape: Shape, fields: Fields) -> int | None:
    """Return the client's own bound on each sequence's output; None when it set none.

    `n_predict` wins over `max_completion_tokens`, and that over `max_tokens`.
    """
    if shape in {Shape.EMBEDDING, Shape.RERANK, Shape.DECISION}:
        return 0
    if shape is Shape.MESSAGES:
        # llama-server's own default there, and the only name that it knows there.
        bound = 4096 if "max_tokens" not in fields else whole(fields, "max_tokens")
    else:
        bound = _first_bound(shape, fields)
    return None if bound is None or bound < 0 else bound


def _first_bound(shape: Shape, fields: Fields) -> int | None:
    # The responses route renames `max_output_tokens` to `max_tokens` before it looks.
    last = "max_tokens"
    if shape is Shape.RESPONSES and "max_output_tokens" in fields:
        last = "max_output_tokens"
    for name in ("n_predict", "max_completion_tokens", last):
        if has(fields, name):
            return whole(fields, name)
    return None


def is_prefilled(fields: Fields) -> bool:
    """Tell whether the assistant's own unfinished turn comes last, to be continued."""
    if has(fields, "continue_final_message") and not flag(fields, "add_generation_prompt"):
        return True
    raw = fields.get("messages")
    if raw is None or kind_of(raw) != "[":
        return False
    view = memoryview(raw)
    if b'"assistant"' not in bytes(view[-4096:]) and len(view) <= 4096:
        return False
    messages = items(raw)
    return bool(messages) and b'"assistant"' in bytes(memoryview(messages[-1]))


def affinity_of(shape: Shape, fields: Fields) -> str | None:
    """Return a key that requests with a common beginning share, None when nothing tells.

    What the client says goes first (`prompt_cache_key`, `safety_identifier`, `user`, Anthropic's
    `metadata.user_id`); else it is a hash of the messages up to the first of the user.
    """
    for name in ("prompt_cache_key", "safety_identifier", "user"):
        key = text(fields, name)
        if key:
            return key
    if shape is Shape.MESSAGES and "metadata" in fields:
        metadata = value_of(fields, "metadata")
        user = metadata.get("user_id") if isinstance(metadata, dict) else None
        if isinstance(user, str) and user:
            return user
    return _hash_of_opening(fields)


def _hash_of_opening(fields: Fields) -> str | None:
    raw = fields.get("messages")
    if raw is None or kind_of(raw) != "[":
        return None
    digest = hashlib.blake2b(digest_size=8)
    for message in items(raw)[:4]:
        view = memoryview(message)
        digest.update(view[:4096])
        if b'"user"' in bytes(view[:64]):
            break
    return digest.hexdigest()
