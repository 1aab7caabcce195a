"""How a backend is asked for a prompt's length in tokens, without a slot.

Chats go as they are to a route that lays them out and counts.  There is none for text; but
`/tokenize` makes tokens of a text as the completion routes do, if it is told to add what begins a
prompt, and takes text and tokens mixed.  What is tokens already needs only to be counted.

`/infill` is left out: llama-server cuts its parts to what a batch holds and puts marks between
them, and only some models have such marks; so a count of the parts would not be exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from slotgate.wire.fields import first_byte, has, is_array, is_number, items, parse_fields
from slotgate.wire.routes import Shape

if TYPE_CHECKING:
    import msgspec

    from slotgate.wire.routes import Route

_TARGETS = {
    Shape.CHAT: "/v1/chat/completions/input_tokens",
    Shape.RESPONSES: "/v1/responses/input_tokens",
    Shape.MESSAGES: "/v1/messages/count_tokens",
}
TOKENIZE = "/tokenize"
_OF_TEXT = frozenset({Shape.COMPLETION, Shape.OPENAI_COMPLETION})
_TOKENIZABLE = frozenset(b'"[')
# Each prompt of a list takes a round trip; of more, the estimate must do.
_MOST_PROMPTS = 16


class Question(NamedTuple):
    """What to ask: a body for each prompt that must be counted, and lengths that are known."""

    target: str
    bodies: tuple[bytes, ...]
    known: tuple[int, ...] = ()


def question_of(route: Route, body: bytes) -> Question | None:
    """Return what to ask about a request's prompts; None if nothing tells their length."""
    if route.shape in _OF_TEXT:
        return None if route.path == "/infill" else _question_of_text(body)
    target = None if route.shape is None else _TARGETS.get(route.shape)
    return None if target is None else Question(target, (body,))


def _question_of_text(body: bytes) -> Question | None:
    fields = parse_fields(body)
    if not has(fields, "prompt"):
        return None
    prompts = _prompts(fields["prompt"])
    if len(prompts) > _MOST_PROMPTS:
        return None
    bodies: list[bytes] = []
    known: list[int] = []
    for prompt in prompts:
        if first_byte(prompt) not in _TOKENIZABLE:
            return None  # with media; or for llama-server to refuse
        if (length := _length_of_tokens(prompt)) is not None:
            known.append(length)
        else:
            bodies.append(b'{"content":%b,"add_special":true}' % bytes(prompt))
    return Question(TOKENIZE, tuple(bodies), tuple(known))


def _prompts(raw: msgspec.Raw) -> list[msgspec.Raw]:
    """Return the prompts of a completion: a list is one if there is a number in it."""
    if not is_array(raw):
        return [raw]
    elements = items(raw)
    return [raw] if any(is_number(element) for element in elements) else elements


def _length_of_tokens(prompt: msgspec.Raw) -> int | None:
    elements = items(prompt) if is_array(prompt) else []
    return len(elements) if elements and all(map(is_number, elements)) else None
