"""What is learned from a lease: its charges, the deployment's speeds, the lengths of answers."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from slotgate.core.kv_budget import prompt_bound

if TYPE_CHECKING:
    from slotgate.core.model import Model
    from slotgate.core.pool import Lease

# A gap counts for the number of sequences that wrote, if that changed by no more than this part.
_STEADY = 0.1


class Meter:
    """One lease at one moment."""

    __slots__ = ("_lease", "_model", "_now")

    def __init__(self, model: Model, lease: Lease, now: float) -> None:
        self._model = model
        self._lease = lease
        self._now = now

    def streamed(self, input_tokens: int, cached_tokens: int, output_tokens: int) -> None:
        """Take what was used since the last time."""
        lease, now = self._lease, self._now
        lease.input_tokens += input_tokens
        lease.cached_tokens += cached_tokens
        lease.output_tokens += output_tokens
        self._model.billing.streamed(
            lease,
            input_tokens=input_tokens,
            cached_tokens=cached_tokens,
            output_tokens=output_tokens,
            now=now,
        )
        if input_tokens:
            lease.stay.found(cached_tokens)
            lease.pool.know_prompt(lease, prompt_bound(lease.waiter.ticket))
        if 0 < lease.kv_tokens < lease.prompt_tokens + lease.output_tokens:
            # It began before the cache was known to be shared, and no clamp ends it.
            lease.pool.keep(lease, self._model.kv_budget.need(lease, self._model.lengths))
        if not output_tokens:
            return
        if lease.first_token_at is None:
            lease.pool.started_writing(lease, now)
            if not lease.pool.had_to_load(lease):
                tokens = lease.waiter.ticket.input_tokens
                self._model.forecast.begun(tokens, now - lease.since, now)
        else:
            self._observe_gap(output_tokens / lease.width)
        lease.metered_at, lease.metered_writing = now, lease.pool.writing

    def timed(
        self, prompt_tokens: int, prompt_seconds: float, output_tokens: int, output_seconds: float
    ) -> None:
        """Take what the backend measured itself."""
        pool = self._lease.pool
        pool.speeds.read(prompt_tokens, prompt_seconds)
        if output_tokens > 1 and output_seconds > 0 and pool.speeds.gaps.gap(1) is None:
            # No steady stretch was seen yet: a mean over the whole answer is better than nothing.
            gap = output_seconds / (output_tokens - 1) * self._lease.width
            self._note_gap(max(1, pool.writing), gap, output_tokens)

    def ended(self) -> None:
        """Take that the answer is complete."""
        lease = self._lease
        if lease.output_tokens:
            ticket = lease.waiter.ticket
            self._model.lengths.observe(
                ticket.tenant,
                lease.waiter.written + lease.written,
                input_tokens=lease.input_tokens or ticket.input_tokens,
                is_cut=lease.written >= min(lease.output_bound, ticket.output_tokens or inf),
            )

    def _observe_gap(self, tokens: float) -> None:
        lease, pool = self._lease, self._lease.pool
        seconds = self._now - lease.metered_at
        if seconds <= 0 or not pool.is_quiet or pool.quiet_since > lease.metered_at:
            return
        writing = pool.writing
        if abs(writing - lease.metered_writing) <= _STEADY * writing:
            self._note_gap(writing, seconds / tokens, max(1, round(tokens)))

    def _note_gap(self, writing: int, gap: float, tokens: int) -> None:
        speeds = self._lease.pool.speeds
        speeds.gaps.observe(writing, gap, tokens=tokens, now=self._now)
        self._model.billing.costs.wrote(
            tokens=tokens, seconds=tokens * gap / writing, prefill=speeds.prefill
        )
