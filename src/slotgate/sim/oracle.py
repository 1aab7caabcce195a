"""The oracle: the scheduler with the same rules, told how long each answer will be.

What it reaches is what better guesses of lengths could bring at most, and so what ours are
measured by.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from typing_extensions import override

from slotgate.core.lengths import Lengths, Residual

if TYPE_CHECKING:
    from slotgate.core import Ticket
    from slotgate.load.arrival import Arrival

_PLENTY = 1000


class Clairvoyant(Lengths):
    """Knows where the model will stop; it watches a rehearsal to learn what comes."""

    def __init__(self) -> None:
        super().__init__()
        # Ticket id -> where the model will stop.
        self._truth: dict[str, int] = {}

    def coming(self, ticket_id: str, arrival: Arrival) -> None:
        self._truth[ticket_id] = arrival.output_tokens

    @property
    @override
    def seen(self) -> int:
        """As many as one could wish: it can tell from the first request on."""
        return max(super().seen, _PLENTY)

    @override
    def residual(self, ticket: Ticket, written: int, bound: float = inf) -> Residual:
        ends = min(float(self._truth[ticket.id]), bound)
        if ticket.output_tokens is not None:
            ends = min(ends, ticket.output_tokens)
        return Residual(max(0.0, ends - written), 0.0)
