"""Where a ticket runs: which of the deployments that it fits."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slotgate.core.pool import SlotPool
    from slotgate.core.ticket import Ticket


_PREFERENCE = attrgetter("headroom", "seniority")


class Placement(Protocol):
    """Chooses a deployment for a ticket, at the moment of its grant."""

    def choose(self, ticket: Ticket, pools: Sequence[SlotPool]) -> SlotPool:
        """Return one of the pools; there is at least one, and the ticket fits each.

        Slots and context, that is: the KV budget is asked for the chosen one alone, and where that
        has no room, the others are offered again.
        """


class MostHeadroom:
    """The deployment with the most free slots; among equals, the one added first.

    Every running sequence slows down its neighbours, so spreading them is faster than packing.
    """

    def choose(self, ticket: Ticket, pools: Sequence[SlotPool]) -> SlotPool:
        """Return the pool with the most headroom."""
        return max(pools, key=_PREFERENCE) if len(pools) > 1 else pools[0]
