"""What the scheduler's own work costs: how many events, and the CPU seconds of them all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from slotgate.core import Decision


class Meter:
    """Counts calls into the core; with a stopwatch, such as `time.process_time`, times them."""

    def __init__(self, stopwatch: Callable[[], float] | None = None) -> None:
        self._stopwatch = stopwatch
        self.events = 0
        self.seconds = 0.0

    def call(self, event: Callable[..., list[Decision]], *one: Any, **more: Any) -> list[Decision]:
        self.events += 1
        if self._stopwatch is None:
            return event(*one, **more)
        began = self._stopwatch()
        decisions = event(*one, **more)
        self.seconds += self._stopwatch() - began
        return decisions
