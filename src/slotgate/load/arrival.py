"""One request that a client wants served."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """What a client asks for, when, and how it behaves.

    `at` is in seconds from the start of the load.  `output_tokens` is where the model would stop
    by itself, `max_tokens` the client's own bound.  A client leaves `patience` seconds after the
    start of an attempt if no first token has come, as SDKs time out, and `leaves_after` seconds
    after the first attempt whatever has come.
    `reading_rate` is the tokens a second that a slow reader takes; None takes them at once.

    Prompts of one `session` begin alike, as far as the shorter goes; those of "" have nothing in
    common with others.  `then` is what its client asks next, once it has been served: `at` seconds
    after the end of the answer.
    """

    at: float
    tenant: str = "default"
    priority_class: str = "standard"
    input_tokens: int
    output_tokens: int
    max_tokens: int | None = None
    width: int = 1
    patience: float = inf
    leaves_after: float | None = None
    reading_rate: float | None = None
    session: str = ""
    then: Arrival | None = None

    @property
    def wanted_tokens(self) -> int:
        """How many tokens a full answer has."""
        if self.max_tokens is None:
            return self.output_tokens
        return min(self.output_tokens, self.max_tokens)
