"""How many failed requests may be sent again: few enough that retries are never the load.

A bucket of retries: each request brings a part of one, each second brings some, and each retry
takes one.  It starts full.  (As in Finagle, with half its share: what is behind us is few servers,
not many.)
"""

from __future__ import annotations

# One retry in ten requests.
SHARE = 0.1
# Else a gateway with few requests could not retry at all.
PER_SECOND = 3.0
# It holds what comes in so many seconds: a server with that many slots may die at once.
RESERVE_SECONDS = 10.0


class RetryBudget:
    """Of one model; times are in seconds."""

    def __init__(self) -> None:
        self._most = PER_SECOND * RESERVE_SECONDS
        self._left = self._most
        self._counted_at: float | None = None

    def requested(self) -> None:
        """Note a request: it pays its part."""
        self._left = min(self._most, self._left + SHARE)

    def take(self, now: float) -> bool:
        """Take one retry if there is one."""
        if self._counted_at is not None:
            earned = PER_SECOND * (now - self._counted_at)
            self._left = min(self._most, self._left + earned)
        self._counted_at = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True
