"""What goes before a turn: of each tenant that waits, what will have been granted by then.

Under fair queueing that is all of a tenant whose last has its turn before, and a part of those
whose first has.  A tenant's part grows along a straight line from its first turn to its last, so
the sum over all of them is a polygon: with the places where it bends in order, and what is known
of it up to each, a question takes O(log tenants).

The sums are made anew when enough has changed; only tenants that changed are looked at again.  They
are never older than a hundredth of the wait that is told from them, or than a quarter of a second
(a millisecond a tenant, if that is more), and who has nobody before it is told so at once.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from itertools import accumulate, chain
from math import inf, isfinite
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from slotgate.core.backlog import Backlog
    from slotgate.core.queue import FairQueue

# Sums are made anew after as many changes as this part of what waits, and of the tenants.
_STALE_PART = 8
# For so long sums may grow old, or longer where they take longer to make, by that much a tenant,
# and where the wait is long, by that part of it.
_FRESH_SECONDS = 0.25
_FRESH_SECONDS_EACH = 0.001
_FRESH_PART = 0.01
_TURN = itemgetter(0)

# What a tenant adds to the polygon from one turn on: (the turn; tickets, and tickets by unit of
# turn; service, and service by unit of turn; half a ticket and its service, if its first is there).
_Bend = tuple[float, float, float, float, float, float, float]


class Ahead(NamedTuple):
    """What will be granted before a ticket: how many, and their slot-seconds."""

    number: float
    service: float


_NOTHING = Ahead(0.0, 0.0)


class _Row(NamedTuple):
    """A tenant that waits: the turns of its first and after its last, and what waits of it."""

    first: float
    last: float
    tickets: float
    service: float

    def before(self, turn: float) -> float:
        """Return how many of its tickets are granted before that turn.

        Turns come one ticket at a time: to what is through by then comes one more, half of the
        time, and surely if it is the first, which came before.
        """
        if self.first > turn or self.last <= turn:
            return self.tickets if self.last <= turn else 0.0
        span = self.last - self.first
        return self.tickets * (turn - self.first) / span + (1.0 if turn == self.first else 0.5)

    def bends(self) -> tuple[_Bend, ...]:
        """Return where it begins and ends; it has no part in between if both are one."""
        first, last, tickets, service = self
        span = last - first
        if span <= 0:
            return ((last, tickets, 0.0, service, 0.0, 0.0, 0.0),)
        half = 0.5 * service / tickets
        rate, flow = tickets / span, service / span
        through, served = rate * first, flow * first
        return (
            (first, 0.5 - through, rate, half - served, flow, 0.5, half),
            (last, tickets - 0.5 + through, -rate, service - half + served, -flow, 0.0, 0.0),
        )


class Turns:
    """The tenants that wait, by their turns, as of not long ago."""

    def __init__(self, queue: FairQueue) -> None:
        self._queue = queue
        self._made_at = -inf
        self._changes = 0
        self._rows: dict[str, _Row] = {}
        self._bends: dict[str, tuple[_Bend, ...]] = {}
        # The turns where the polygon bends, ascending; and sums over those before the i-th.
        self._turns = array("d")
        self._sums = [array("d", [0.0])] * 4
        # Of halves, which are seldom asked for: each, and their sums once they were.
        self._half_parts: list[tuple[float, ...]] = [()] * 2
        self._halves: list[array[float]] | None = None

    def before(self, turn: float, tenant: str, now: float, *, slots: int) -> Ahead:
        """Return what is granted to others before the tenant's turn.

        What is to wait for so long, with so many slots, need not be quite up to date.
        """
        backlogs = self._queue.backlogs
        if not backlogs or (len(backlogs) == 1 and tenant in backlogs):
            return _NOTHING
        if self._is_stale():
            self._refresh(now)
        ahead = self._of_others(turn, tenant)
        if self._is_old(now, ahead.service / slots):
            self._refresh(now)
            ahead = self._of_others(turn, tenant)
        return ahead

    def _of_others(self, turn: float, tenant: str) -> Ahead:
        number, service = self._before(turn)
        own = self._rows.get(tenant)
        if own is not None:
            mine = own.before(turn)
            number, service = number - mine, service - mine * own.service / own.tickets
        return Ahead(max(0.0, number), max(0.0, service))

    def _before(self, turn: float) -> tuple[float, float]:
        turns = self._turns
        place = bisect_right(turns, turn)
        numbers, rates, services, flows = self._sums
        number, service = numbers[place], services[place]
        if isfinite(turn):
            number += turn * rates[place]
            service += turn * flows[place]
        if place and turns[place - 1] == turn:
            # Of those that begin there, the first came before: it is another half of a ticket.
            level = bisect_left(turns, turn)
            halves, half_services = self._sums_of_halves()
            number += halves[place] - halves[level]
            service += half_services[place] - half_services[level]
        return number, service

    def _sums_of_halves(self) -> list[array[float]]:
        if self._halves is None:
            self._halves = [array("d", accumulate(part, initial=0.0)) for part in self._half_parts]
        return self._halves

    def _is_stale(self) -> bool:
        queue = self._queue
        return queue.changes - self._changes > (len(queue) + len(self._rows)) // _STALE_PART

    def _is_old(self, now: float, wait: float) -> bool:
        age = now - self._made_at
        return age > _FRESH_SECONDS and age > max(
            len(self._rows) * _FRESH_SECONDS_EACH, wait * _FRESH_PART
        )

    def _refresh(self, now: float) -> None:
        queue = self._queue
        self._made_at, self._changes = now, queue.changes
        for tenant, backlog in queue.backlogs.items():
            if backlog.has_changed or queue.keys_fade:
                self._look_at(tenant, backlog)
        if len(self._rows) > len(queue.backlogs):
            for tenant in self._rows.keys() - queue.backlogs.keys():
                del self._rows[tenant], self._bends[tenant]
        bends = sorted(chain.from_iterable(self._bends.values()), key=_TURN)
        columns: list[tuple[float, ...]] = [()] * 7
        if bends:
            columns = list(zip(*bends, strict=True))
        self._turns = array("d", columns[0])
        self._sums = [array("d", accumulate(part, initial=0.0)) for part in columns[1:5]]
        self._half_parts, self._halves = columns[5:], None

    def _look_at(self, tenant: str, backlog: Backlog) -> None:
        first = self._queue.key_after(tenant, 0.0)
        row = _Row(first, first + backlog.toll, float(backlog.count), backlog.service)
        self._rows[tenant], self._bends[tenant] = row, row.bends()
        backlog.has_changed = False
