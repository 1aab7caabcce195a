"""Slots that go on with requests of ours that are over.

A lease whose slot is still busy shortly before the bound of its settling will not come free by that
bound: the slot is a zombie's.  It is taken out of the count like outside work *before* the lease
ends, so that nobody is sent there meanwhile, and comes back when the backend has it idle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slotgate.runtime.books import DeploymentBooks


class Zombies:
    """One backend's; `slots` is how many there are."""

    def __init__(self, *, after_seconds: float) -> None:
        self._after_seconds = after_seconds
        self.slots = 0

    def looked(self, processing: int, seen: int) -> int:
        """Take that so many slots are busy, so many surely for leases that run; return the rest."""
        self.slots = min(self.slots, max(0, processing - seen))
        return processing - self.slots

    def take_over(self, books: DeploymentBooks, busy: int, sent_at: float) -> list[str]:
        """Return the leases whose slots are taken for zombies now.

        `busy` slots are neither zombies nor for leases that run, nor somebody else's.
        """
        taken = []
        for entry in books.settling.values():
            closed_at = entry.closed_at
            if closed_at is None or sent_at - closed_at < self._after_seconds:
                continue
            if entry.width <= busy:
                busy -= entry.width
                self.slots += entry.width
                taken.append(entry.lease)
        return taken

    def forget(self) -> None:
        """Begin anew, with a server that does so."""
        self.slots = 0
