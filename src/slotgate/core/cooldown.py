"""How often something drastic may be done."""

from __future__ import annotations

from collections import deque
from math import inf

_HOUR_SECONDS = 3600.0


class Cooldown:
    """Allows it again after `seconds`, and at most `per_hour` times within any hour."""

    def __init__(self, *, seconds: float, per_hour: float = inf) -> None:
        self._seconds = seconds
        self._per_hour = per_hour
        # When it was done within the latest hour.
        self._done: deque[float] = deque()

    def allows(self, now: float) -> bool:
        """Return whether it may be done now; if so, it counts as done."""
        while self._done and now - self._done[0] >= _HOUR_SECONDS:
            self._done.popleft()
        is_early = bool(self._done) and now - self._done[-1] < self._seconds
        if is_early or len(self._done) >= self._per_hour:
            return False
        self._done.append(now)
        return True
