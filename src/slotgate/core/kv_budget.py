"""Whether a deployment's KV cache has room for a ticket, and for how much output.

Where each slot has its own cache there is nothing to decide.  Where slots share one pool, an
overflow ends *every* stream on it (reference: llama-server fails all slots with "Context size has
been exceeded."), so two things are asked of a grant:

    hard   prompts + the most that each may still write <= pool (1 - watermark)
    chance expected use, sum(p + g + E[rest]), plus z sqrt(sum Var[rest]) <= the same

The first is kept by telling the backend how much it may write at most (`output_clamp`): estimates
that are not enforced on the wire overrun.  So nothing that is admitted can end the others, whatever
the answers turn out to be.  A clamp is generous: all that is left, less room for a typical request
in each slot that is still free; and at least what nearly all answers of the tenant need, else the
ticket waits.  Charging everybody the whole window instead would let four chats run one by one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import ceil, sqrt
from typing import TYPE_CHECKING, Protocol

from typing_extensions import override

if TYPE_CHECKING:
    from slotgate.core.lengths import Lengths
    from slotgate.core.pool import SlotPool
    from slotgate.core.ticket import Ticket

_WATERMARK = 0.03
# An answer is cut for want of room once in a hundred, at most.
_ENOUGH_QUANTILE = 0.99
_QUANTILE = 0.9
# Prompts that were only estimated are taken to be so much longer.
_ESTIMATE_MARGIN = 1.25


@dataclass(frozen=True, slots=True)
class Room:
    """There is room, for at most `output_clamp` tokens of output; None: for what it asks.

    `tokens` of the pool are then kept for it.
    """

    output_clamp: int | None = None
    tokens: int = 0


_NO_BUDGET = Room()


class KvBudget(Protocol):
    """Keeps a KV cache that slots share from overflowing, which would end all of them."""

    def fits(self, ticket: Ticket, pool: SlotPool, lengths: Lengths) -> Room | None:
        """Return the room for the ticket, None if it must wait for more."""


class NoBudget:
    """Whatever the slots share is taken to be enough."""

    def fits(self, ticket: Ticket, pool: SlotPool, lengths: Lengths) -> Room | None:
        """Say yes, without a clamp."""
        return _NO_BUDGET


class _Reserving(ABC):
    """What the budgets have in common: the hard bound, and the clamp that keeps it."""

    def __init__(self, *, watermark: float = _WATERMARK) -> None:
        self._watermark = watermark

    def fits(self, ticket: Ticket, pool: SlotPool, lengths: Lengths) -> Room | None:
        """Return the room for the ticket, None if it must wait for more."""
        if pool.kv_pool_tokens is None:
            return _NO_BUDGET
        # Alone, a request ends nobody but itself.
        watermark = 0.0 if pool.is_empty else self._watermark
        budget = int(pool.kv_pool_tokens * (1 - watermark))
        prompt = prompt_bound(ticket)
        wanted = self._wanted(ticket, pool, budget, prompt)
        enough = min(wanted, self._enough(ticket, pool, lengths, budget, wanted))
        left = budget - pool.kv_reserved - prompt
        if left < ticket.width * enough or not self._is_likely(ticket, pool, lengths, budget):
            return None
        output = min(
            wanted, max(enough, self._generous(pool, lengths, left, budget) // ticket.width)
        )
        asks = ticket.output_tokens
        clamp = None if asks is not None and output >= asks else output
        return Room(clamp, prompt + ticket.width * output)

    def _wanted(self, ticket: Ticket, pool: SlotPool, budget: int, prompt: int) -> int:
        """Return the most that each sequence could write, were it alone there."""
        context = pool.ctx_per_slot or budget
        alone = min(context - prompt, (budget - prompt) // ticket.width)
        return max(0, alone if ticket.output_tokens is None else min(alone, ticket.output_tokens))

    @abstractmethod
    def _enough(
        self, ticket: Ticket, pool: SlotPool, lengths: Lengths, budget: int, wanted: int
    ) -> int:
        """Return what each sequence must be able to write at least, for a grant."""

    def _is_likely(self, ticket: Ticket, pool: SlotPool, lengths: Lengths, budget: int) -> bool:
        return True

    def _generous(self, pool: SlotPool, lengths: Lengths, left: int, budget: int) -> int:
        """Return what may be given away without taking the room of those who may come."""
        typical = lengths.typical_total() or budget / pool.slots
        return left - (pool.headroom - 1) * ceil(typical)


class WholeBudget(_Reserving):
    """Room for all that a ticket may write: safe, and a half to a third of the throughput."""

    @override
    def _enough(
        self, ticket: Ticket, pool: SlotPool, lengths: Lengths, budget: int, wanted: int
    ) -> int:
        return wanted


class QuantileBudget(_Reserving):
    """Room for what nine answers of ten need."""

    _part = _QUANTILE

    @override
    def _enough(
        self, ticket: Ticket, pool: SlotPool, lengths: Lengths, budget: int, wanted: int
    ) -> int:
        histogram = lengths.of(ticket)
        if histogram is not None:
            return ceil(histogram.quantile(self._part))
        # Nothing is known yet: what it asks for, if that leaves half of the pool to others; else
        # its share, as if the slots had been split.
        return wanted if 2 * wanted * ticket.width <= budget else budget // (2 * pool.slots)


class ChanceBudget(QuantileBudget):
    """Room for what nearly all answers need, while what all are expected to use fits too."""

    _part = _ENOUGH_QUANTILE

    def __init__(self, *, z: float = 1.0, watermark: float = _WATERMARK) -> None:
        super().__init__(watermark=watermark)
        self._z = z

    @override
    def _is_likely(self, ticket: Ticket, pool: SlotPool, lengths: Lengths, budget: int) -> bool:
        rest = lengths.residual(ticket, 0)
        expected = prompt_bound(ticket) + ticket.width * rest.mean
        variance = ticket.width * rest.variance
        if pool.is_empty:
            return True
        for lease in pool.leases():
            running = lease.waiter.ticket
            rest = lengths.residual(running, lease.written, lease.output_bound)
            expected += prompt_bound(lease.waiter.ticket) + lease.width * (
                lease.written + rest.mean
            )
            variance += lease.width * rest.variance
        return expected + self._z * sqrt(variance) <= budget


def prompt_bound(ticket: Ticket) -> int:
    """Return the most tokens that the prompt can have, as far as is known."""
    if ticket.input_is_exact:
        return ticket.input_tokens
    if ticket.input_tokens:
        return ceil(ticket.input_tokens * _ESTIMATE_MARGIN)
    # A token has at least one byte.
    return ticket.size_bytes
