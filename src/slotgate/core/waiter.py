"""A ticket while the scheduler has it in hand, and what it needs of a deployment."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from slotgate.core.order import OrderPolicy
    from slotgate.core.ticket import Ticket


class Shape(NamedTuple):
    """What a ticket needs of a deployment; tickets of one shape fit in the same places.

    `context` is not the ticket's own number of tokens, but the smallest context of any of the
    model's deployments that holds them, and `size` the octave of its prompt beyond what is short,
    so that a model has few shapes.  `holdback` is the part of the slots that its class leaves.
    `failed_on` is the deployment that it comes back from, with its revivals then: it runs
    elsewhere, if it may run elsewhere.  `awaits` is the one deployment for which it is held back
    for a while, though it may run elsewhere.
    """

    width: int
    context: int
    size: int = 0
    holdback: float = 0.0
    failed_on: tuple[str, int] | None = None
    awaits: str | None = None


# Prompts up to this length are read beside others; it is a quarter of llama-server's batch.
SHORT_PROMPT_TOKENS = 512
# The context of tickets that no known context holds.
BEYOND = 1 << 62


@dataclass(slots=True, eq=False, kw_only=True)
class Waiter:
    """A ticket, its place in the order of arrivals, and what happened to it while it waited.

    It outlives the wait: a ticket that is requeued comes back as the same waiter, hence to the
    same place.  `bypassed` counts who overtook it, and `bypassed_since` is when the first did.
    One that goes on with a broken answer has `written` tokens of it in each sequence, and its
    prompt `is_paid`.  `start_by` is when it must start to meet its deadline, `weight` its tenant's
    times its class's.  What is expected of it, as of its arrival: its `toll`, by which it moves its
    tenant on; `service`, seconds in its slots; how many go `ahead` of it, and its `position` so,
    from 1 (0: it did not have to wait); `wait`, as computed, with the `turnover` of slots then,
    `predicted_wait`, which three of four do not exceed, and its `chance` to start in time (None:
    unknown).  `rank` is its place among its tenant's, by the order `ranked_by`.  It lingers, if it
    does, until `lingers_until`, and not any more once its `patience_ends`.
    """

    ticket: Ticket
    number: int
    since: float
    shape: Shape
    start_by: float
    weight: float = 1.0
    rank: tuple[float, int] = (0.0, 0)
    ranked_by: OrderPolicy | None = None
    toll: float = 0.0
    service: float = 0.0
    ahead: float = 0.0
    position: int = 0
    wait: float | None = None
    turnover: float = 0.0
    predicted_wait: float | None = None
    chance: float | None = None
    bypassed: int = 0
    bypassed_since: float = 0.0
    written: int = 0
    is_paid: bool = False
    lingers_until: float = 0.0
    patience_ends: float = inf

    def go_on(self, rest: Ticket, written: int, now: float) -> None:
        """Ask for the rest of an answer, of which so many tokens were written, from now on."""
        self.ticket = rest
        self.written += written
        self.is_paid = True
        self.since = now
        self.start_by = rest.deadline
