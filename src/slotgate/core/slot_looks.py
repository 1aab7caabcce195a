"""What follows from one look at `/slots` after the other.

A slot *moves* when its figures differ from one look to the next.  During a batch nothing moves, as
llama-server shows the state at the end of the one before; a batch of 2048 prompt tokens may take a
minute on a slow machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slotgate.core.vitals import Look

# Slot id -> its task, and the tokens that it has written and read.
_Figures = dict[int, tuple[int | None, int | None, int | None]]


class SlotLooks:
    """Compares each look with the one before it."""

    def __init__(self) -> None:
        self.latest: Look | None = None
        # Of the latest `take`: it was a new look; something moved; every busy slot did.
        self.is_new = self.has_moved = self._is_all_moving = False
        # New looks in a row with at least one busy slot and none that moved.
        self.still = 0
        self._figures: _Figures = {}

    def take(self, look: Look | None) -> None:
        """Take the latest look, which may be known already."""
        self.is_new = look is not None and (
            self.latest is None or look.number != self.latest.number
        )
        self.has_moved = self._is_all_moving = False
        if look is None or not self.is_new:
            return
        before, self._figures = self._figures, _figures(look)
        is_first, self.latest = self.latest is None, look
        if is_first:
            return
        self.has_moved = before != self._figures
        self._is_all_moving = bool(self._figures) and all(
            before.get(slot) != figures for slot, figures in self._figures.items()
        )
        tells = any(part is not None for each in self._figures.values() for part in each)
        self.still = self.still + 1 if tells and not self.has_moved else 0

    def shows_all_moving(self, width: int) -> bool:
        """Whether this new look shows so many slots at work, and each of them has moved."""
        return self._is_all_moving and len(self._figures) >= width

    def reading(self) -> int:
        """How many busy slots have not written a token yet, as far as is told."""
        if self.latest is None:
            return 0
        return sum(slot.is_processing and slot.decoded == 0 for slot in self.latest.slots)

    @property
    def is_newly_idle(self) -> bool:
        """Whether this is a new look, and shows no busy slot."""
        return self.is_new and not self._figures


def _figures(look: Look) -> _Figures:
    return {s.id: (s.task, s.decoded, s.read) for s in look.slots if s.is_processing}
