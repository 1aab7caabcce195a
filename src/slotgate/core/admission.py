"""Whether a newcomer that must wait is let in at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from slotgate.core.waiter import Waiter


class AdmissionPolicy(Protocol):
    """Judges who would have to wait.  Who fits at once is never asked about."""

    def is_in_vain(self, waiter: Waiter, now: float) -> bool:
        """Whether the waiter, with what was foretold, is better told now to come back later."""


class DeadlineAdmission:
    """Nobody who is expected to miss the deadline: told at once, while it can go elsewhere.

    A static bound on the queue is a hidden deadline that is wrong as soon as requests change;
    this finds the right length by itself.  Only who is next is let in whatever is expected:
    somebody must be there when a slot comes free, and waiting costs nothing.
    """

    def is_in_vain(self, waiter: Waiter, now: float) -> bool:
        """Whether the predicted wait ends after the ticket must have started."""
        told = waiter.predicted_wait
        return told is not None and waiter.ahead >= 1 and now + told > waiter.start_by


class ExpiryAdmission:
    """Everybody, until the queue is full: who waits to the deadline is refused then."""

    def is_in_vain(self, waiter: Waiter, now: float) -> bool:
        """Say no."""
        return False
