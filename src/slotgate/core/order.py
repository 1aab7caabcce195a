"""Who is next: the queue discipline of one model.

The scheduler wants the first waiter that fits somewhere now.  Looking at each waiter in turn would
make that O(n), so waiters stand in lanes, one for each shape and tenant: those of one shape fit or
do not fit together, and a tenant at its cap waits as a whole.  Only the front is ever looked at:
the first of each shape, among tenants below their cap.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

from slotgate.core.line import Line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from slotgate.core.waiter import Shape, Waiter

_NUMBER = attrgetter("number")


class Order(Protocol):
    """The waiters of one model."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Waiter]:
        """Yield all waiters, the next first; for display, may be slow."""

    def shapes(self) -> list[Shape]:
        """Return the shapes of which somebody waits."""

    def join(self, waiter: Waiter) -> None:
        """Take a waiter in; one that comes back goes to where it was."""

    def leave(self, waiter: Waiter) -> None:
        """Let a waiter go, from wherever it stands."""

    def reopen(self, tenant: str) -> bool:
        """Look at the tenant's waiters again, as its cap has room; False if it has none here."""

    def front(self) -> Iterable[Waiter]:
        """Return the waiters that may be next, in order; tenants at their cap are passed over.

        It is enough to give the first of each shape: those behind it fit only where it does.
        """


class _Lanes:
    """The waiters of one shape: a lane for each tenant, and who is first in which lane."""

    __slots__ = ("front", "of_tenant")

    def __init__(self) -> None:
        # Tenant -> its waiters, in order of arrival; never empty.
        self.of_tenant: dict[str, Line[Waiter]] = {}
        # The first of each lane, under its tenant's name; tenants at their cap may be missing.
        self.front: Line[Waiter] = Line()


class Fifo:
    """First come, first served, among those that fit."""

    def __init__(self, is_open: Callable[[str], bool]) -> None:
        self._is_open = is_open
        self._count = 0
        # Shape -> lanes; no shape without a waiter.
        self._lanes: dict[Shape, _Lanes] = {}

    def join(self, waiter: Waiter) -> None:
        """Stand in the lane of the shape and tenant, by order of arrival."""
        tenant = waiter.ticket.tenant
        lanes = self._lanes.get(waiter.shape)
        if lanes is None:
            lanes = self._lanes[waiter.shape] = _Lanes()
        lane = lanes.of_tenant.get(tenant)
        if lane is None:
            lane = lanes.of_tenant[tenant] = Line()
        lane.join(waiter.ticket.id, waiter.number, waiter)
        self._count += 1
        if lane.first() is waiter:
            lanes.front.join(tenant, waiter.number, waiter)

    def leave(self, waiter: Waiter) -> None:
        """Let the next of the lane move up, or close the lane."""
        tenant = waiter.ticket.tenant
        lanes = self._lanes[waiter.shape]
        lane = lanes.of_tenant[tenant]
        lane.leave(waiter.ticket.id)
        self._count -= 1
        following = lane.first()
        if following is not None:
            if lanes.front.get(tenant) is waiter:
                lanes.front.join(tenant, following.number, following)
            return
        del lanes.of_tenant[tenant]
        lanes.front.leave(tenant)
        if not lanes.of_tenant:
            del self._lanes[waiter.shape]

    def reopen(self, tenant: str) -> bool:
        """Put the tenant's first waiters back to the front."""
        found = False
        for lanes in self._lanes.values():
            lane = lanes.of_tenant.get(tenant)
            first = None if lane is None else lane.first()
            if first is not None:
                lanes.front.join(tenant, first.number, first)
                found = True
        return found

    def front(self) -> list[Waiter]:
        """Return the earliest of each shape, the earliest of all first."""
        front = []
        for lanes in self._lanes.values():
            waiter = self._first_open(lanes)
            if waiter is not None:
                front.append(waiter)
        if len(front) > 1:
            front.sort(key=_NUMBER)
        return front

    def shapes(self) -> list[Shape]:
        """Return the shapes of which somebody waits."""
        return list(self._lanes)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Waiter]:
        everybody = (
            waiter
            for lanes in self._lanes.values()
            for lane in lanes.of_tenant.values()
            for waiter in lane
        )
        return iter(sorted(everybody, key=_NUMBER))

    def _first_open(self, lanes: _Lanes) -> Waiter | None:
        # A tenant at its cap steps aside until `reopen`, so that it is looked at only once.
        while (waiter := lanes.front.first()) is not None:
            if self._is_open(waiter.ticket.tenant):
                return waiter
            lanes.front.leave(waiter.ticket.tenant)
        return None
