"""A ticket while the scheduler has it in hand, and what it needs of a deployment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from slotgate.core.ticket import Ticket


class Shape(NamedTuple):
    """What a ticket needs of a deployment; tickets of one shape fit in the same places.

    `context` is not the ticket's own number of tokens, but the smallest context of any of the
    model's deployments that holds them, so that a model has few shapes.
    """

    width: int
    context: int


# The context of tickets that no known context holds.
BEYOND = 1 << 62


@dataclass(slots=True, eq=False, kw_only=True)
class Waiter:
    """A ticket, its place in the order of arrivals, and what happened to it while it waited.

    It outlives the wait: a ticket that is requeued comes back as the same waiter, hence to the
    same place.  `bypassed` counts who overtook it, and `bypassed_since` is when the first did.
    `failed_on` is the deployment that it comes back from.
    """

    ticket: Ticket
    number: int
    since: float
    shape: Shape
    bypassed: int = 0
    bypassed_since: float = 0.0
    failed_on: str | None = None
