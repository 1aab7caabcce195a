"""Whether a deployment's KV cache has room for a ticket, and for how much output.

Where each slot has its own cache there is nothing to decide.  Where slots share one pool, an
overflow ends *every* stream on it (reference: llama-server fails all slots with "Context size has
been exceeded."), so two things are asked of a grant:

    hard   prompts + the most that each may still write <= pool (1 - watermark)
    chance expected use, sum(p + g + E[rest]), plus z sqrt(sum Var[rest]) <= the same

The first is kept by telling the backend how much it may write at most (`output_clamp`): estimates
that are not enforced on the wire overrun.  So nothing that is admitted can end the others, whatever
the answers turn out to be.  Charging everybody the whole window instead would let four chats run
one by one.

How much a clamp leaves is a trade.  Who must be sure of what 99 answers of 100 need waits long for
it, and the room lies idle, since most answers are short.  So a grant needs what 80 of 100 need, and
then gets more of what is left: up to what 99 need of room that is too small for another typical
request anyway, and beyond that what typical requests in all free slots would not take.  In a pool
for six requests and eight clients this cuts 3 answers of 100 at 1.3 times the throughput of q99,
where q95 for all cuts 4 at 1.15 times (`python -m bench.kv_budget`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import ceil, sqrt
from typing import TYPE_CHECKING, NamedTuple, Protocol

from typing_extensions import override

if TYPE_CHECKING:
    from slotgate.core.lengths import Lengths
    from slotgate.core.pool import Lease, SlotPool
    from slotgate.core.ticket import Ticket

_WATERMARK = 0.03
_QUANTILE = 0.9
# By the chance constraint: for a grant; and from room that serves nobody else.
_ENOUGH_QUANTILE = 0.8
_AMPLE_QUANTILE = 0.99
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


class Left(NamedTuple):
    """Tokens that are left for output and for others, against what each sequence needs for a
    grant, and what a typical request takes."""

    tokens: int
    enough: int
    typical: int


class KvBudget(Protocol):
    """Keeps a KV cache that slots share from overflowing, which would end all of them."""

    def fits(self, ticket: Ticket, pool: SlotPool, lengths: Lengths) -> Room | None:
        """Return the room for the ticket, None if it must wait for more."""

    def need(self, lease: Lease, lengths: Lengths) -> int:
        """Return the tokens to keep for a lease that has no clamp, and so no certain end."""


class NoBudget:
    """Whatever the slots share is taken to be enough."""

    def fits(self, ticket: Ticket, pool: SlotPool, lengths: Lengths) -> Room | None:
        """Say yes, without a clamp."""
        return _NO_BUDGET

    def need(self, lease: Lease, lengths: Lengths) -> int:
        """Keep nothing."""
        return 0


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
        if pool.is_empty and budget - prompt < ticket.width:
            # So long a prompt fits if it is shorter than it may be; and nobody beside it.
            output = max(1, (budget - ticket.input_tokens) // ticket.width)
            return Room(_clamp(ticket, output), budget)
        wanted = self._wanted(ticket, pool, budget, prompt)
        enough = min(wanted, self._enough(ticket, pool, lengths, budget, wanted))
        left = budget - pool.kv_reserved - prompt
        if left < ticket.width * enough or not self._is_likely(ticket, pool, lengths, budget):
            return None
        typical = ceil(lengths.typical_total() or budget / pool.slots)
        generous = self._generous(ticket, pool, lengths, Left(left, enough, typical))
        output = min(wanted, max(enough, generous // ticket.width))
        return Room(_clamp(ticket, output), prompt + ticket.width * output)

    def need(self, lease: Lease, lengths: Lengths) -> int:
        """Return what it has in the cache, and what is expected of it besides."""
        ticket = lease.waiter.ticket
        prompt = lease.input_tokens or prompt_bound(ticket)
        rest = 0.0
        if lease.settles_by is None:
            rest = lengths.residual(ticket, lease.written, lease.output_bound).mean
        return prompt + lease.output_tokens + ceil(lease.width * rest)

    def _wanted(self, ticket: Ticket, pool: SlotPool, budget: int, prompt: int) -> int:
        """Return the most that each sequence could write, were it alone there."""
        context = pool.ctx_per_slot or budget
        alone = min(context - ticket.input_tokens, (budget - prompt) // ticket.width)
        asks = ticket.output_tokens
        # Not even one token: then there is no room for it here now.
        return max(1, alone) if asks is None else min(max(1, alone), asks)

    @abstractmethod
    def _enough(
        self, ticket: Ticket, pool: SlotPool, lengths: Lengths, budget: int, wanted: int
    ) -> int:
        """Return what each sequence must be able to write at least, for a grant."""

    def _is_likely(self, ticket: Ticket, pool: SlotPool, lengths: Lengths, budget: int) -> bool:
        return True

    def _generous(self, ticket: Ticket, pool: SlotPool, lengths: Lengths, left: Left) -> int:
        """Return what may be given away without taking the room of those who may come."""
        return left.tokens - max(0, pool.headroom - ticket.width) * left.typical


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
            return histogram.bound(self._part)
        # Nothing is known yet: what it asks for, if that leaves half of the pool to others; else
        # its share, as if the slots had been split.
        return wanted if 2 * wanted * ticket.width <= budget else budget // (2 * pool.slots)


class ChanceBudget(QuantileBudget):
    """Room for what most answers need, while what all are expected to use fits too."""

    _part = _ENOUGH_QUANTILE

    def __init__(self, *, z: float = 1.0, watermark: float = _WATERMARK) -> None:
        super().__init__(watermark=watermark)
        self._z = z

    @override
    def _is_likely(self, ticket: Ticket, pool: SlotPool, lengths: Lengths, budget: int) -> bool:
        if pool.is_empty:
            return True
        rest = lengths.residual(ticket, 0)
        expected = prompt_bound(ticket) + ticket.width * rest.mean
        variance = ticket.width * rest.variance
        for lease in pool.leases():
            running = lease.waiter.ticket
            rest = lengths.residual(running, lease.written, lease.output_bound)
            expected += lease.input_tokens or prompt_bound(running)
            expected += lease.width * (lease.written + rest.mean)
            variance += lease.width * rest.variance
        return expected + self._z * sqrt(variance) <= budget

    @override
    def _generous(self, ticket: Ticket, pool: SlotPool, lengths: Lengths, left: Left) -> int:
        generous = super()._generous(ticket, pool, lengths, left)
        histogram = lengths.of(ticket)
        if histogram is None:
            return generous
        # What is too little for one typical request more serves this one.
        others = (left.tokens - ticket.width * left.enough) // left.typical
        spare = left.tokens - min(others, max(0, pool.headroom - ticket.width)) * left.typical
        ample = ticket.width * histogram.bound(_AMPLE_QUANTILE)
        return max(generous, min(spare, ample))


def prompt_bound(ticket: Ticket) -> int:
    """Return the most tokens that the prompt can have, as far as is known."""
    if ticket.input_is_exact:
        return ticket.input_tokens
    if ticket.input_tokens:
        return ceil(ticket.input_tokens * _ESTIMATE_MARGIN)
    # A token has at least one byte.
    return ticket.size_bytes


def _clamp(ticket: Ticket, output: int) -> int | None:
    asks = ticket.output_tokens
    return None if asks is not None and output >= asks else output
