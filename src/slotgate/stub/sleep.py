"""Sleep mode: a server without work puts its model away, until somebody needs it.

`/health`, `/props`, `/models` and `/metrics` are answered without it, and count for nothing.
Whatever else is asked wakes it and counts as work, `/slots` too.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slotgate.stub.record import Observed

LEAVES_ASLEEP = frozenset({"/health", "/v1/health", "/props", "/models", "/v1/models", "/metrics"})


class Sleep:
    """`after_seconds` without work it sleeps; None: never.  Times are of the event loop."""

    def __init__(self, after_seconds: float | None, observed: Observed, now: float) -> None:
        self._after_seconds = inf if after_seconds is None else after_seconds
        self._observed = observed
        self._worked_at = now

    def asked(self, method: str, path: str, now: float) -> None:
        """A request came; wake if it needs the model."""
        if method in {"GET", "HEAD"} and path in LEAVES_ASLEEP:
            return
        self._observed.wakes += self.is_asleep(now)
        self._worked_at = now

    def is_asleep(self, now: float) -> bool:
        if self._observed.in_flight:
            return False
        ended_at = self._observed.last_ended_at
        return now - max(self._worked_at, ended_at) >= self._after_seconds
