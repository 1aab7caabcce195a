"""Whether a deployment's KV cache has room for a ticket, and for how much output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from slotgate.core.pool import SlotPool
    from slotgate.core.ticket import Ticket


@dataclass(frozen=True, slots=True)
class Room:
    """There is room, for at most `output_clamp` tokens of output; None: for what it asks."""

    output_clamp: int | None = None


class KvBudget(Protocol):
    """Keeps a KV cache that slots share from overflowing, which would end all of them."""

    def fits(self, ticket: Ticket, pool: SlotPool) -> Room | None:
        """Return the room for the ticket, None if it must wait for more."""


class NoBudget:
    """Each slot has its own KV cache, so there is always room."""

    _ROOM = Room()

    def fits(self, ticket: Ticket, pool: SlotPool) -> Room | None:
        """Say yes, without a clamp."""
        return self._ROOM
