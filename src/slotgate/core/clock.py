"""What the core must be given from outside: the time, and chance."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Tells the time.  Read once on entry to each public method, so one call sees one time."""

    def now(self) -> float:
        """Seconds on a clock that never goes backwards; its zero means nothing."""


class Dice(Protocol):
    """A source of chance; `random.Random` is one."""

    def random(self) -> float:
        """Return a number in [0, 1)."""
