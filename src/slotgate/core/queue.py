"""The waiters of one model: whose turn it is among tenants, and who is next within each.

The scheduler wants the first waiter that fits somewhere now.  Looking at each waiter in turn would
make that O(n), so waiters stand in lanes, one for each shape and tenant: those of one shape fit or
do not fit together, and a tenant at its cap waits as a whole.  Only the front is ever looked at:
the first of each shape, among tenants below their cap.

A tenant's key grows with each token that it is charged.  Heaps are not touched by that: a key
that was noted is too small at most, so when its tenant comes up it is noted anew, and the first
that comes up with its present key is the smallest of all.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

from slotgate.core.backlog import Backlog, Place
from slotgate.core.line import Line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from collections.abc import Set as AbstractSet

    from slotgate.core.fairness import FairPolicy
    from slotgate.core.waiter import Shape, Waiter

_PLACE = itemgetter(0)


# Where a waiter stands: its tenant's key, and its own rank within.
_Standing = tuple[float, tuple[float, int]]


class _Lanes:
    """The waiters of one shape: a lane for each tenant, and who is first in which lane."""

    __slots__ = ("front", "of_tenant")

    def __init__(self) -> None:
        # Tenant -> its waiters, by rank; never empty.
        self.of_tenant: dict[str, Line[Waiter]] = {}
        # The first of each lane, under its tenant's name; tenants at their cap may be missing.
        self.front: Line[Waiter] = Line()


class FairQueue:
    """Waiters by shape and tenant."""

    def __init__(self, fairness: FairPolicy, closed: AbstractSet[str]) -> None:
        self._fairness = fairness
        # The tenants at their cap: they take no turns, and none is kept for them.
        self._closed = closed
        self._count = 0
        # All of them, if their order among tenants matters.
        self._everybody = Backlog() if fairness.minds_order else None
        # Shape -> lanes; no shape without a waiter.
        self._lanes: dict[Shape, _Lanes] = {}
        # Tenant -> what waits of it; no tenant without a waiter.
        self.backlogs: dict[str, Backlog] = {}
        # Who is held back for a deployment, whoever's turn it is, by the end of that.
        self.lingering: Line[Waiter] = Line()
        # How often anybody came or went.
        self.changes = 0
        # How many wait whose class leaves slots to others.
        self.leaves_slots = 0

    # Coming and going.

    def join(self, waiter: Waiter) -> None:
        """Take a waiter in; one that comes back goes to where it was."""
        tenant = waiter.ticket.tenant
        if tenant not in self.backlogs and tenant not in self._closed:
            self._fairness.arrive(tenant)
        self._take_in(waiter)

    def _take_in(self, waiter: Waiter) -> None:
        self._count += 1
        if self._everybody is not None:
            self._everybody.join(waiter)
        self.changes += 1
        self.leaves_slots += waiter.shape.holdback > 0
        self.backlogs.setdefault(waiter.ticket.tenant, Backlog()).join(waiter)
        self._step_in(waiter)

    def leave(self, waiter: Waiter) -> None:
        """Let a waiter go, from wherever it stands."""
        tenant = waiter.ticket.tenant
        self._step_out(waiter)
        self._count -= 1
        if self._everybody is not None:
            self._everybody.leave(waiter)
        self.changes += 1
        self.leaves_slots -= waiter.shape.holdback > 0
        backlog = self.backlogs[tenant]
        backlog.leave(waiter)
        if not backlog.count:
            del self.backlogs[tenant]
            if tenant not in self._closed:
                self._fairness.depart(tenant)

    def move(self, waiter: Waiter, shape: Shape) -> None:
        """Let a waiter stand in the lane of another shape; its tenant goes on waiting."""
        self._step_out(waiter)
        waiter.shape = shape
        self._step_in(waiter)

    def hold_back(self, waiter: Waiter, pool_id: str, until: float) -> None:
        """Let a waiter linger for one deployment until then, in a lane of its own."""
        waiter.lingers_until = until
        self.move(waiter, waiter.shape._replace(awaits=pool_id))

    def end_lingering(self, now: float) -> bool:
        """Let those run anywhere again that have lingered until now; False if nobody has."""
        ended = False
        while (waiter := self.lingering.first()) is not None and waiter.lingers_until <= now:
            self.move(waiter, waiter.shape._replace(awaits=None))
            ended = True
        return ended

    def _step_in(self, waiter: Waiter) -> None:
        tenant = waiter.ticket.tenant
        lanes = self._lanes.get(waiter.shape)
        if lanes is None:
            lanes = self._lanes[waiter.shape] = _Lanes()
        lane = lanes.of_tenant.get(tenant)
        if lane is None:
            lane = lanes.of_tenant[tenant] = Line()
        lane.join(waiter.ticket.id, waiter.rank, waiter)
        if waiter.shape.awaits is not None:
            self.lingering.join(waiter.ticket.id, waiter.lingers_until, waiter)
        if lane.first() is waiter:
            self._step_forward(lanes, waiter)

    def _step_out(self, waiter: Waiter) -> None:
        tenant = waiter.ticket.tenant
        lanes = self._lanes[waiter.shape]
        lane = lanes.of_tenant[tenant]
        lane.leave(waiter.ticket.id)
        if waiter.shape.awaits is not None:
            self.lingering.leave(waiter.ticket.id)
        following = lane.first()
        if following is None:
            del lanes.of_tenant[tenant]
            lanes.front.leave(tenant)
            if not lanes.of_tenant:
                del self._lanes[waiter.shape]
        elif lanes.front.get(tenant) is waiter:
            self._step_forward(lanes, following)

    def rearrange(
        self, measure: Callable[[Waiter], None], fairness: FairPolicy | None = None
    ) -> None:
        """Measure all waiters anew, and let them stand where they belong by that; O(n log n).

        Their tenants go on waiting, by their counters, unless another policy begins afresh.
        """
        everybody = list(self)
        if fairness is not None:
            self._fairness = fairness
            for tenant in self.backlogs:
                if tenant not in self._closed:
                    fairness.arrive(tenant)
        self._lanes.clear()
        self.lingering = Line()
        self.backlogs.clear()
        self._count = self.leaves_slots = 0
        self._everybody = Backlog() if self._fairness.minds_order else None
        for waiter in everybody:
            measure(waiter)
            self._take_in(waiter)

    def step_aside(self, tenant: str) -> None:
        """Pass the tenant over until `reopen`, as it is at its cap now."""
        if tenant in self.backlogs:
            self._fairness.depart(tenant)

    def reopen(self, tenant: str) -> bool:
        """Look at the tenant's waiters again, as its cap has room; False if it has none here."""
        if tenant not in self.backlogs:
            return False
        self._fairness.resume(tenant)
        self.backlogs[tenant].has_changed = True
        self._renew(tenant)
        return True

    def charge(self, tenant: str, cost: float, at: float) -> None:
        """Note service that the tenant had then, in cost over weight; a refund is below 0."""
        self._fairness.charge(tenant, cost, at)
        backlog = self.backlogs.get(tenant)
        if backlog is None:
            return
        backlog.has_changed = True
        if cost < 0:
            # The one case in which a noted key would be too large.
            self._renew(tenant)

    def pass_by(self, waiter: Waiter) -> None:
        """Note that a newcomer runs at once, as nobody waits."""
        self._fairness.pass_by(waiter.ticket.tenant)

    def grant(self, waiter: Waiter) -> None:
        """Note that the waiter, which has left, begins to run."""
        self._fairness.grant(waiter.ticket.tenant, waiter.weight)

    def end(self, waiter: Waiter) -> None:
        """Note that the waiter, which was granted, does not run any more."""
        self._fairness.end(waiter.ticket.tenant)

    def _renew(self, tenant: str) -> None:
        for lanes in self._lanes.values():
            lane = lanes.of_tenant.get(tenant)
            first = None if lane is None else lane.first()
            if first is not None:
                self._step_forward(lanes, first)

    def _step_forward(self, lanes: _Lanes, waiter: Waiter) -> None:
        tenant = waiter.ticket.tenant
        lanes.front.join(tenant, (self._fairness.key(tenant), waiter.rank), waiter)

    # Questions.

    def front(self) -> list[Waiter]:
        """Return the waiters that may be next, in order: the first of each shape.

        Tenants at their cap are passed over.  Those behind fit only where these do, but for
        prompts of one octave, which are taken to be alike.
        """
        front = []
        for lanes in self._lanes.values():
            entry = self._first_open(lanes.front)
            if entry is not None:
                front.append(entry)
        if len(front) > 1:
            front.sort(key=_PLACE)
        return [waiter for _, waiter in front]

    def shapes(self) -> list[Shape]:
        """Return the shapes of which somebody waits."""
        return list(self._lanes)

    def of_tenant(self, tenant: str) -> list[Waiter]:
        """Return the tenant's waiters, the next first; O(its own)."""
        lanes = self._lanes.values()
        lines = (line for each in lanes if (line := each.of_tenant.get(tenant)) is not None)
        return sorted((w for line in lines for w in line), key=lambda waiter: waiter.rank)

    def place(self, waiter: Waiter) -> Place:
        """Return where a waiter stands; of what goes before it, the toll is a mean."""
        tenant = waiter.ticket.tenant
        return self._place(waiter, *self.backlogs[tenant].before(waiter))

    def places(self, tenant: str) -> Iterator[tuple[Waiter, Place]]:
        """Yield the tenant's waiters, the next first, and where they stand."""
        toll = service = 0.0
        for number, waiter in enumerate(self.of_tenant(tenant)):
            yield waiter, self._place(waiter, number, toll, service)
            toll += waiter.toll
            service += waiter.service

    def _place(self, waiter: Waiter, number: int, toll: float, service: float) -> Place:
        """Return where a waiter stands before whom are so many of its tenant's."""
        tenant = waiter.ticket.tenant
        if self._everybody is None:
            return Place(self._fairness.turn(tenant, toll, 0.0), number, service)
        all_before, _, service_of_all = self._everybody.before(waiter)
        turn = self._fairness.turn(tenant, toll, all_before / self._count)
        if self._fairness.is_one_line:
            return Place(turn, all_before, service_of_all)
        return Place(turn, number, service)

    def last_place(self, tenant: str) -> Place:
        """Return where one would stand that came now."""
        backlog = self.backlogs.get(tenant)
        if backlog is None:
            turn = self._fairness.entry_turn(tenant)
        else:
            turn = self._fairness.turn(tenant, backlog.toll, 1.0)
        line = self._everybody if self._fairness.is_one_line else backlog
        return Place(turn, 0, 0.0) if line is None else Place(turn, line.count, line.service)

    def own_before(self, waiter: Waiter) -> tuple[int, float]:
        """Return how many of its tenant's go before a waiter, and their slot-seconds."""
        number, _, service = self.backlogs[waiter.ticket.tenant].before(waiter)
        return number, service

    @property
    def keys_fade(self) -> bool:
        """Whether all tenants' keys change with time alone."""
        return self._fairness.fades

    def key(self, tenant: str) -> float:
        """Return the tenant's place among tenants: the smallest is next."""
        return self._fairness.key(tenant)

    def toll(self, cost: float, weight: float) -> float:
        """Return how far a request is expected to move its tenant on."""
        return self._fairness.toll(cost, weight)

    def key_after(self, tenant: str, toll: float) -> float:
        """Return how far the tenant will be once it has moved on by that much."""
        return self._fairness.key_after(tenant, toll)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Waiter]:
        """Yield all waiters in the order in which they are expected to run; for display."""
        everybody = []
        for tenant in self.backlogs:
            toll = 0.0
            for waiter in self.of_tenant(tenant):
                everybody.append((self._fairness.turn(tenant, toll, 0.0), waiter.rank, waiter))
                toll += waiter.toll
        return (waiter for _, _, waiter in sorted(everybody, key=itemgetter(0, 1)))

    def _first_open(self, front: Line[Waiter]) -> tuple[_Standing, Waiter] | None:
        # A tenant at its cap steps aside until `reopen`, so that it is looked at only once.
        while (entry := front.first_entry()) is not None:
            noted, waiter = entry
            tenant = waiter.ticket.tenant
            if tenant in self._closed:
                front.leave(tenant)
            elif (key := self._fairness.key(tenant)) > noted[0]:
                front.delay_first((key, waiter.rank))
            else:
                return entry
        return None
