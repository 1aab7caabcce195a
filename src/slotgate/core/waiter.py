"""A ticket while the scheduler has it in hand, and what it needs of a deployment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from slotgate.core.ticket import Ticket


class Shape(NamedTuple):
    """What a ticket needs of a deployment; tickets of one shape fit in the same places.

    `context` is not the ticket's own number of tokens, but the smallest context of any of the
    model's deployments that holds them, and `size` the octave of its prompt beyond what is short,
    so that a model has few shapes.  `holdback` is the part of the slots that its class leaves.
    """

    width: int
    context: int
    size: int = 0
    holdback: float = 0.0


# Prompts up to this length are read beside others; it is a quarter of llama-server's batch.
SHORT_PROMPT_TOKENS = 512
# The context of tickets that no known context holds.
BEYOND = 1 << 62


@dataclass(slots=True, eq=False, kw_only=True)
class Waiter:
    """A ticket, its place in the order of arrivals, and what happened to it while it waited.

    It outlives the wait: a ticket that is requeued comes back as the same waiter, hence to the
    same place.  `bypassed` counts who overtook it, and `bypassed_since` is when the first did.
    `failed_on` is the deployment that it comes back from.  `start_by` is when it must start to
    meet its deadline, `weight` its tenant's times its class's.  What is expected of it, as of its
    arrival: `cost` by the billing, over the weight; `service`, seconds in its slots; how many go
    `ahead` of it; `wait`, as computed, with the `turnover` of slots then, `predicted_wait`, which
    three of four do not exceed, and `likely_wait`, which two of three do not (None: unknown).
    """

    ticket: Ticket
    number: int
    since: float
    shape: Shape
    start_by: float
    weight: float = 1.0
    rank: tuple[float, int] = (0.0, 0)
    cost: float = 0.0
    service: float = 0.0
    ahead: float = 0.0
    wait: float | None = None
    turnover: float = 0.0
    predicted_wait: float | None = None
    likely_wait: float | None = None
    bypassed: int = 0
    bypassed_since: float = 0.0
    failed_on: str | None = None
