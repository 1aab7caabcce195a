"""A lower bound on an answer's length, put into a request that is ready to go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from slotgate.wire.fields import encode_fields, parse_fields
from slotgate.wire.prompt import bound_name
from slotgate.wire.routes import Shape

if TYPE_CHECKING:
    from slotgate.wire.request import Prepared

# What a generation's bound is called where the client named none: the name that every server of
# the route's shape knows.
_OWN_NAMES = {
    Shape.COMPLETION: "n_predict",
    Shape.OPENAI_COMPLETION: "max_tokens",
    Shape.CHAT: "max_tokens",
    Shape.RESPONSES: "max_output_tokens",
    Shape.MESSAGES: "max_tokens",
}


def lowers(shape: Shape, prepared: Prepared, clamp: int | None) -> bool:
    """Tell whether the clamp allows less than the client asked for."""
    if clamp is None or shape not in _OWN_NAMES:
        return False
    return prepared.output_tokens is None or clamp < prepared.output_tokens


def clamped(shape: Shape, body: bytes, tokens: int) -> bytes:
    """Return the body with the bound set, under the name that counts for its sender."""
    fields = parse_fields(body)
    name = bound_name(shape, fields) or _OWN_NAMES[shape]
    fields[name] = msgspec.Raw(b"%d" % tokens)
    return encode_fields(fields)
