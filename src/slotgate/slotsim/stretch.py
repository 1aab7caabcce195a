"""What the loop computes now: one pass of the model, or several alike in a row."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from slotgate.slotsim.slot import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slotgate.slotsim.slot import Slot

# An enumeration's members are found slowly, and this is asked of each slot in each pass.
_GENERATING = Phase.GENERATING


class Stretch:
    """`passes` passes of `seconds` each, from `since` until `until`; at rest that is never.

    `decoding` slots write one token a pass, `reading` ones read their `chunk`.
    """

    __slots__ = (
        "decoding",
        "due_in",
        "passes",
        "reading",
        "seconds",
        "shortest",
        "since",
        "until",
    )

    def __init__(self) -> None:
        self.decoding: list[Slot] = []
        self.reading: list[Slot] = []
        self.due_in = 0  # tokens until one is done, or somebody wants to hear of one
        self.shortest = 0  # tokens until the first of its slots is done
        self.since = 0.0
        self.seconds = 0.0
        self.passes = 0
        self.until = inf

    @property
    def is_empty(self) -> bool:
        return not self.decoding and not self.reading

    @property
    def is_streaming(self) -> bool:
        """Whether a pass sends results to anybody."""
        return any(slot.is_streaming for slot in self.decoding)

    @property
    def tokens(self) -> int:
        """What its first pass adds to the KV cache."""
        return len(self.decoding) + self.chunk

    @property
    def chunk(self) -> int:
        return sum(slot.chunk for slot in self.reading)

    def fill(self, slots: Iterable[Slot]) -> None:
        """Take all slots that decode."""
        self.reading = []
        self.decoding = decoding = [slot for slot in slots if slot.phase is _GENERATING]
        self.shortest = min([slot.limit - slot.decoded for slot in decoding], default=0)
        self.due_in = min([slot.due_at - slot.decoded for slot in decoding], default=0)

    def start(self, now: float, seconds: float, passes: int) -> None:
        self.since = now
        self.seconds = seconds
        self.passes = passes
        self.until = now + passes * seconds

    def rest(self) -> None:
        self.passes = 0
        self.until = inf

    def split(self, now: float) -> int:
        """Cut off the passes that are over, except the last; return how many."""
        if self.passes <= 1 or self.seconds <= 0:
            return 0
        over = min(int((now - self.since) / self.seconds), self.passes - 1)
        self.since += over * self.seconds
        self.passes -= over
        return over

    def shorten(self) -> None:
        """End with the pass that runs now."""
        if self.passes > 1:
            self.passes = 1
            self.until = self.since + self.seconds
