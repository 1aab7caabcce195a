"""Token counts, in our words, from every shape in which a backend reports them.

Our `input_tokens` counts the whole prompt, the cached part included, as OpenAI does; Anthropic's
`input_tokens` and llama.cpp's `timings.prompt_n` do not, so the cached part is added back here.
Anything missing or of a wrong type counts as zero: a report is never worth failing a request for.
"""

from __future__ import annotations

from typing import Any

import msgspec

# What JSON's numbers become; a bool is none of them.
_NUMBERS = frozenset({int, float})
# A body up to this size is read as a whole, which takes half a millisecond at most: what counts
# nothing is passed over.  Of a larger one only the first and the last part are looked at.
WHOLE_BODY_BYTES = 1 << 18
_PART_BYTES = 1 << 16
# What begins the counts near the beginning of a large body, where they may end, and what would
# close the object there.  A quote inside a string has a backslash, so these stand in no text.
_AT_THE_BEGINNING = (
    (b'"usage":', b"}", b"}}"),
    (b'"timings":', b"}", b"}}"),
    (b'"tokens_evaluated":', b",", b"}"),
)
_AT_THE_END = (b'"usage":', b'"timings":')
# A usage has one object inside at most.
_ENDS_TRIED = 3


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What one request took.  Times are milliseconds, zero where the backend told none."""

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    prompt_ms: float = 0.0
    predicted_ms: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        """Sum the parts of a request that took several slots."""
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            prompt_ms=self.prompt_ms + other.prompt_ms,
            predicted_ms=self.predicted_ms + other.predicted_ms,
        )


def as_mapping(value: Any) -> dict[str, Any]:
    """Return the object, or an empty one for anything that is not an object."""
    return value if isinstance(value, dict) else {}


def as_count(value: Any) -> int:
    """Return the whole number, or zero for anything that is not a count."""
    return int(value) if type(value) in _NUMBERS and 0 <= value < 1 << 62 else 0


def _milliseconds(value: Any) -> float:
    return float(value) if type(value) in _NUMBERS and 0 <= value < 1e15 else 0.0


def usage_of_timings(timings: Any) -> Usage:
    """Read llama.cpp's `timings`; it counts exactly what its `usage` counts."""
    fields = as_mapping(timings)
    cached = as_count(fields.get("cache_n"))
    return Usage(
        input_tokens=cached + as_count(fields.get("prompt_n")),
        cached_tokens=cached,
        output_tokens=as_count(fields.get("predicted_n")),
        prompt_ms=_milliseconds(fields.get("prompt_ms")),
        predicted_ms=_milliseconds(fields.get("predicted_ms")),
    )


def usage_of_openai(usage: Any, timings: Any = None) -> Usage:
    """Read the `usage` of chat, completions, embeddings and rerank, and of responses."""
    fields = as_mapping(usage)
    times = as_mapping(timings)
    details = as_mapping(
        fields.get("prompt_tokens_details") or fields.get("input_tokens_details") or {}
    )
    return Usage(
        input_tokens=as_count(fields.get("prompt_tokens", fields.get("input_tokens"))),
        cached_tokens=as_count(details.get("cached_tokens")),
        output_tokens=as_count(fields.get("completion_tokens", fields.get("output_tokens"))),
        prompt_ms=_milliseconds(times.get("prompt_ms")),
        predicted_ms=_milliseconds(times.get("predicted_ms")),
    )


def usage_of_messages(usage: Any) -> Usage:
    """Read the `usage` of Anthropic's messages, whole or as in `message_start`."""
    fields = as_mapping(usage)
    cached = as_count(fields.get("cache_read_input_tokens"))
    created = as_count(fields.get("cache_creation_input_tokens"))
    return Usage(
        input_tokens=cached + created + as_count(fields.get("input_tokens")),
        cached_tokens=cached,
        output_tokens=as_count(fields.get("output_tokens")),
    )


def usage_of_native(final: Any) -> Usage:
    """Read the final object of llama.cpp's own `/completion`."""
    fields = as_mapping(final)
    timings = usage_of_timings(fields.get("timings"))
    return Usage(
        input_tokens=as_count(fields.get("tokens_evaluated")) or timings.input_tokens,
        cached_tokens=timings.cached_tokens,
        output_tokens=as_count(fields.get("tokens_predicted")) or timings.output_tokens,
        prompt_ms=timings.prompt_ms,
        predicted_ms=timings.predicted_ms,
    )


def usage_of_answer(answer: Any) -> Usage | None:
    """Read a whole answer of any shape, decoded; None when it counts nothing."""
    if isinstance(answer, list):
        parts = [part for part in map(usage_of_answer, answer) if part is not None]
        return sum(parts, Usage()) if parts else None
    fields = as_mapping(answer)
    if "tokens_evaluated" in fields:
        return usage_of_native(fields)
    usage = as_mapping(fields.get("usage"))
    if not usage:
        return None
    is_messages = fields.get("type") == "message" or "cache_read_input_tokens" in usage
    return (
        usage_of_messages(usage) if is_messages else usage_of_openai(usage, fields.get("timings"))
    )


class _Counted(msgspec.Struct, omit_defaults=True):
    """The fields of a whole answer that count; all others are passed over when it is decoded."""

    type: Any = None
    usage: Any = None
    timings: Any = None
    tokens_evaluated: Any = None
    tokens_predicted: Any = None


_DECODER = msgspec.json.Decoder(_Counted | list[_Counted])


def usage_of_body(body: bytes) -> Usage | None:
    """Read a whole answer as it came; None when it counts nothing, or is no JSON at all.

    In one that is too large to be read, the counts are found where servers write them: before the
    vectors and scores, or after the choices.  The lists of a large answer to many prompts are not.
    """
    if len(body) <= WHOLE_BODY_BYTES:
        return usage_of_answer(_fields_of(body))
    return _usage_at_beginning(body[:_PART_BYTES]) or _usage_at_end(body[-_PART_BYTES:])


def _fields_of(text: bytes) -> Any:
    try:
        return msgspec.to_builtins(_DECODER.decode(text))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _usage_at_beginning(text: bytes) -> Usage | None:
    # Closed there, it is whole JSON only if the counts are the answer's own and not a part's.
    for mark, end, closing in _AT_THE_BEGINNING:
        at = text.find(mark)
        for _ in range(_ENDS_TRIED):
            at = text.find(end, at + 1) if at >= 0 else -1
            usage = usage_of_answer(_fields_of(text[:at] + closing)) if at >= 0 else None
            if usage is not None:
                return usage
    return None


def _usage_at_end(text: bytes) -> Usage | None:
    # Likewise: opened there, the rest is whole JSON only if what ends there is the answer itself.
    for mark in _AT_THE_END:
        at = text.rfind(mark)
        fields = as_mapping(_fields_of(b"{" + text[at:])) if at >= 0 else {}
        if fields:
            return usage_of_answer(fields) or usage_of_timings(fields.get("timings"))
    return None
