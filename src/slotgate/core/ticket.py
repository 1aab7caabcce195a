"""A request's place in the queue: all that the core sees of a request."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """Made once, when a request has been read and understood; never changed.

    Times are seconds of the core's clock.  `width` is the number of slots that the request takes
    at once.  `input_tokens` is an estimate, `output_tokens` the client's own bound (None: none).
    """

    id: str
    arrival: float
    deadline: float
    tenant: str = "default"
    priority_class: str = "standard"
    model: str = ""
    width: int = 1
    input_tokens: int = 0
    output_tokens: int | None = None
    size_bytes: int = 0
    affinity: str | None = None
