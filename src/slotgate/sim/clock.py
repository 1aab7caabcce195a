"""The time of a simulation."""

from __future__ import annotations


class VirtualClock:
    """A `slotgate.core.Clock` that the agenda sets."""

    __slots__ = ("_now",)

    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        return self._now

    def advance_to(self, now: float) -> None:
        """Let it be that time; ValueError if that is in the past."""
        if now < self._now:
            raise ValueError(f"{now} is before {self._now}")
        self._now = now
