"""Those that wait, as sums, and where one of them stands."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from slotgate.core.waiter import Waiter


class Place(NamedTuple):
    """When a ticket's turn comes among tenants, and what goes before it in its own line.

    How many, and their slot-seconds.  Its line is its tenant's; or everybody's, where tenants do
    not matter, and then nobody else goes before it.
    """

    turn: float
    number: int
    service: float


class Backlog:
    """Some that wait: how many, what is expected of them (see `Waiter`), and their order.

    `has_changed` says so of it or its tenant's key; who has looked at both may take it back.
    """

    __slots__ = ("_ranks", "count", "has_changed", "service", "toll")

    def __init__(self) -> None:
        self.count = 0
        self.toll = self.service = 0.0
        self.has_changed = True
        # Ascending.
        self._ranks: list[tuple[float, int]] = []

    def join(self, waiter: Waiter) -> None:
        """Count a waiter in."""
        self.count += 1
        self.toll += waiter.toll
        self.service += waiter.service
        self.has_changed = True
        insort(self._ranks, waiter.rank)

    def leave(self, waiter: Waiter) -> None:
        """Count a waiter out."""
        self.count -= 1
        self.toll -= waiter.toll
        self.service -= waiter.service
        self.has_changed = True
        del self._ranks[bisect_left(self._ranks, waiter.rank)]

    def before(self, waiter: Waiter) -> tuple[int, float, float]:
        """Return how many of them go before one of them, their toll and service.

        How many is exact; of the sums, they have their part.
        """
        number = bisect_left(self._ranks, waiter.rank)
        if not number:
            return 0, 0.0, 0.0
        part = number / (self.count - 1)
        return number, part * (self.toll - waiter.toll), part * (self.service - waiter.service)
