"""Whether a newcomer that must wait is let in at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from slotgate.core.waiter import Waiter


# The chance to start in time that a newcomer needs; and that it needs if it is next.
_ENOUGH, _NEXT = 2 / 3, 0.2


class AdmissionPolicy(Protocol):
    """Judges who would have to wait.  Who fits at once is never asked about."""

    def is_in_vain(self, waiter: Waiter, now: float) -> bool:
        """Whether the waiter, with what was foretold, is better told now to come back later."""


class DeadlineAdmission:
    """Nobody who is likely to miss the deadline: told at once, while it can go elsewhere.

    A static bound on the queue is a hidden deadline that is wrong as soon as requests change;
    this finds the right length by itself.  Who has a chance of two in three may take it: a
    lower bar fills no more slots, and lets more wait for nothing.  Who is next needs one in five:
    somebody must be there when a slot comes free.
    """

    def is_in_vain(self, waiter: Waiter, now: float) -> bool:
        """Whether it is not likely enough to start in time."""
        chance = waiter.chance
        return chance is not None and chance < (_ENOUGH if waiter.ahead >= 1 else _NEXT)


class ExpiryAdmission:
    """Everybody, until the queue is full: who waits to the deadline is refused then."""

    def is_in_vain(self, waiter: Waiter, now: float) -> bool:
        """Say no."""
        return False
