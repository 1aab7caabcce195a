"""Time and chance under the test's control."""

from __future__ import annotations

from itertools import cycle


class FakeClock:
    """A clock that stands still until it is told to move."""

    def __init__(self, now: float = 0.0) -> None:
        self._now = now

    def now(self) -> float:
        """Return seconds, as `slotgate.core.clock.Clock` wants them."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass; ValueError if it would go backwards."""
        self.advance_to(self._now + seconds)

    def advance_to(self, now: float) -> None:
        """Let it be that time; ValueError if that is in the past."""
        if now < self._now:
            raise ValueError(f"{now} is before {self._now}")
        self._now = now


class FakeDice:
    """Dice that show the given numbers in turn, over and over."""

    def __init__(self, *numbers: float) -> None:
        self._numbers = cycle(numbers or (0.5,))

    def random(self) -> float:
        """Return the next number, as `slotgate.core.clock.Dice` wants it."""
        return next(self._numbers)
