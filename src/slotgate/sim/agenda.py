"""What will happen in a simulation, and when.

Nothing is ever taken off the agenda: whoever is called looks whether it still matters.  That is
cheaper than finding entries, and as safe: all that is looked at is named in the entry.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from slotgate.sim.clock import VirtualClock

About = TypeVar("About")


class Agenda:
    """Entries by time; of equal times, the one that was noted first comes first."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        # (time, number, what to call, what to call it with), soonest first.
        self._entries: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self._noted = 0
        self.done = 0  # how many entries have come about

    def note(self, when: float, call: Callable[[About], None], about: About) -> None:
        """Have `call(about)` called at that time; never, if that is infinite."""
        if when == inf:
            return
        self._noted += 1
        heappush(self._entries, (when, self._noted, call, about))

    def run(self) -> None:
        """Let everything come about, until nothing is left to happen."""
        entries, clock = self._entries, self._clock
        while entries:
            when, _, call, about = heappop(entries)
            clock.advance_to(when)
            self.done += 1
            call(about)
