"""A request's place in the queue: all that the core sees of a request."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """Made once, when a request has been read and understood; never changed.

    Times are seconds of the core's clock.  `width` is the number of slots that the request takes
    at once.  `input_tokens` is the prompt's length, an estimate unless `input_is_exact`, and 0
    where nothing is known; `output_tokens` is the client's own bound for each sequence (None:
    none).
    """

    id: str
    arrival: float
    deadline: float
    tenant: str = "default"
    priority_class: str = "standard"
    model: str = ""
    width: int = 1
    input_tokens: int = 0
    input_is_exact: bool = False
    output_tokens: int | None = None
    size_bytes: int = 0
    affinity: str | None = None
