"""What service costs: the machine's time for a prompt token, and for an output token.

A prompt token costs 1.  An output token of b sequences that write at once takes gap / b seconds of
the machine, in which it could have read P gap / b prompt tokens; so that is its cost.  Both speeds
are calibrated by what is observed; prices such as 1:2 would make a tenant with long prompts pay
for what costs little (25:1 on a card, 5:1 to 10:1 on a processor).

A prompt is charged at the grant, as long as it is thought to be; when the backend has counted it,
the difference is charged or refunded, and what came from its cache is free.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slotgate.core.pool import Lease
    from slotgate.core.queue import FairQueue

# Until both speeds are known.
_FIRST_OUTPUT_COST = 10.0
_LEAST, _MOST = 1.0, 200.0
_MEMORY_TOKENS = 20_000.0


class Costs:
    """The cost of tokens for one model, in prompt tokens."""

    def __init__(self) -> None:
        self.output = _FIRST_OUTPUT_COST
        # Seconds of the machine and the tokens for which they were; fading.
        self._write_seconds = self._written = 0.0

    def wrote(self, *, tokens: int, seconds: float, prefill: float | None) -> None:
        """Note machine time (gap x tokens / b) that output took, and the prefill speed now."""
        keep = max(0.0, 1 - tokens / _MEMORY_TOKENS)
        self._write_seconds = self._write_seconds * keep + seconds
        self._written = self._written * keep + tokens
        if prefill is not None:
            ratio = prefill * self._write_seconds / self._written
            self.output = min(_MOST, max(_LEAST, ratio))


class Billing:
    """Charges the tenants of one model for what their leases use."""

    def __init__(self, queue: FairQueue) -> None:
        self.costs = Costs()
        self._queue = queue

    def granted(self, lease: Lease, now: float) -> None:
        """Charge the prompt as estimated, once for an answer."""
        if lease.waiter.is_paid:
            return
        lease.billed_input = lease.waiter.ticket.input_tokens
        self._charge(lease, float(lease.billed_input), now)

    def streamed(
        self, lease: Lease, *, input_tokens: int, cached_tokens: int, output_tokens: int, now: float
    ) -> None:
        """Charge output as it comes, and correct the prompt once the backend has counted it."""
        if input_tokens and not lease.waiter.is_paid:
            read = max(0, input_tokens - cached_tokens)
            # As of the grant: where service fades, a refund is of what was charged then.
            self._charge(lease, float(read - lease.billed_input), lease.since)
            lease.billed_input = read
        self._charge(lease, self.costs.output * output_tokens, now)

    def taken_back(self, lease: Lease) -> None:
        """Refund the prompt of a lease that failed before its first token."""
        if lease.billed_input and not lease.output_tokens and not lease.pool.is_removed:
            self._charge(lease, -float(lease.billed_input), lease.since)

    def _charge(self, lease: Lease, cost: float, at: float) -> None:
        if cost:
            self._queue.charge(lease.waiter.ticket.tenant, cost / lease.waiter.weight, at)
