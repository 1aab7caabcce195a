"""Whether a newcomer that must wait is let in at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from slotgate.core.waiter import Waiter


# One wait of five is no longer than this part of what two of three do not exceed.
_LUCKY = 0.2


class AdmissionPolicy(Protocol):
    """Judges who would have to wait.  Who fits at once is never asked about."""

    def is_in_vain(self, waiter: Waiter, now: float) -> bool:
        """Whether the waiter, with what was foretold, is better told now to come back later."""


class DeadlineAdmission:
    """Nobody who is likely to miss the deadline: told at once, while it can go elsewhere.

    A static bound on the queue is a hidden deadline that is wrong as soon as requests change;
    this finds the right length by itself.  Who has a chance of one in three may take it: waiting
    costs nothing, as who is late is not started.  Who is next needs one in five: somebody must be
    there when a slot comes free.
    """

    def is_in_vain(self, waiter: Waiter, now: float) -> bool:
        """Whether the likely wait ends after the ticket must have started."""
        likely = waiter.likely_wait
        if likely is None:
            return False
        return now + (likely if waiter.ahead >= 1 else _LUCKY * likely) > waiter.start_by


class ExpiryAdmission:
    """Everybody, until the queue is full: who waits to the deadline is refused then."""

    def is_in_vain(self, waiter: Waiter, now: float) -> bool:
        """Say no."""
        return False
