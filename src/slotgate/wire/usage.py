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
    is_messages = fields.get("type") == "message"
    return (
        usage_of_messages(usage) if is_messages else usage_of_openai(usage, fields.get("timings"))
    )
