"""What an answer uses, charged to its lease while it comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from slotgate.runtime.lease import Lease
    from slotgate.wire.usage import Usage

# A charge is a call into the scheduler, so not each token is one; and a slow answer is charged
# before it has so many.
CHARGED_AT_ONCE_TOKENS = 16
CHARGED_EVERY_SECONDS = 0.25


class Meter:
    """Charges one lease: the first token at once, which says that prefill is over, then in parts.

    What is counted meanwhile are frames, nearly always one a token; at the end the backend's own
    count corrects it upwards.  Downwards it cannot: what was charged stays charged.
    """

    __slots__ = ("_began", "_charged", "_due_at", "_due_tokens", "_is_settled", "_lease", "_now")

    def __init__(
        self, lease: Lease, now: Callable[[], float], began: Callable[[], None] | None = None
    ) -> None:
        self._began = began  # called with the first token
        self._lease = lease
        self._now = now
        self._charged = 0
        self._due_tokens = 1
        self._due_at = 0.0
        self._is_settled = False

    def saw(self, tokens: int) -> None:
        """Note how many tokens have come in all.  The hot path: called for each piece."""
        if tokens >= self._due_tokens or (tokens > self._charged and self._now() >= self._due_at):
            self._charge(tokens)

    def settle(self, tokens: int, usage: Usage | None) -> None:
        """Charge the rest, before the lease is given back; `usage` is the backend's own count.

        Does nothing the second time.
        """
        if self._is_settled or self._lease.has_left:
            return
        self._is_settled = True
        if usage is None:
            if tokens > self._charged:
                self._lease.charge(output_tokens=tokens - self._charged)
            return
        self._lease.charge(
            input_tokens=usage.input_tokens,
            cached_tokens=usage.cached_tokens,
            output_tokens=max(0, usage.output_tokens - self._charged),
        )
        if usage.prompt_ms > 0 or usage.predicted_ms > 0:
            self._lease.timed(usage)

    def _charge(self, tokens: int) -> None:
        self._due_at = self._now() + CHARGED_EVERY_SECONDS
        self._due_tokens = tokens + CHARGED_AT_ONCE_TOKENS
        charged, self._charged = self._charged, tokens
        if not charged and self._began is not None:
            self._began()
        self._lease.charge(output_tokens=tokens - charged)
