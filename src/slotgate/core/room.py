"""The waiting room: everybody who waits, for whichever model, and its bounds.

Each waiter holds memory (its body above all), so the room is bounded in number and in bytes,
over all models together.

When its bounds are lowered, nobody goes for that: newcomers find no room until so many have left.

When it is full, the one who must go is the last of the tenant that has most of what is short, for
its weight: the newcomer itself, unless another tenant has more.  Else one tenant could fill the
room, and everybody would be refused for it.  Nobody goes for a newcomer that has no room even so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from slotgate.core.decision import Reason
from slotgate.core.line import Line

if TYPE_CHECKING:
    from collections.abc import Callable

    from slotgate.core.limits import Limits
    from slotgate.core.waiter import Waiter


# A part that grows is noted as so many times as large.
_AMPLE = 1.5
_NUMBER, _BYTES = "queue.max_waiting", "queue.max_waiting_bytes"


class Overflow(NamedTuple):
    """The bound of the room that is exceeded."""

    reason: Reason
    limit: float
    value: float
    setting: str


class _Part:
    """What one tenant has in the room."""

    __slots__ = ("bytes", "tenant", "waiters", "weight")

    def __init__(self, tenant: str, weight: float) -> None:
        self.tenant = tenant
        self.weight = weight
        # Ticket id -> waiter, by arrival.
        self.waiters: dict[str, Waiter] = {}
        self.bytes = 0

    def take(self, waiter: Waiter) -> None:
        last = next(reversed(self.waiters.values()), None)
        self.waiters[waiter.ticket.id] = waiter
        self.bytes += waiter.ticket.size_bytes
        if last is not None and waiter.number < last.number:
            # One that comes back, which is seldom: it is no newcomer.
            self.waiters = dict(sorted(self.waiters.items(), key=lambda item: item[1].number))

    def let_go(self, waiter: Waiter) -> None:
        del self.waiters[waiter.ticket.id]
        self.bytes -= waiter.ticket.size_bytes


class _Largest:
    """The tenants' parts by one measure, the largest first.

    What is noted of a part may be too large, as leaving the room does not touch it.
    """

    __slots__ = ("_line", "_measure")

    def __init__(self, measure: Callable[[_Part], float]) -> None:
        self._measure = measure
        self._line: Line[_Part] = Line()

    def grew(self, part: _Part) -> None:
        """Note that a part may be larger than before."""
        key, noted = -self._measure(part), self._line.key_of(part.tenant)
        if noted is None or key < noted:
            # Well beyond, so that it is not noted anew for each that comes.
            self._line.join(part.tenant, key * _AMPLE, part)

    def drop(self, tenant: str) -> None:
        """Forget a tenant that has nothing in the room any more."""
        self._line.leave(tenant)

    def last_of_larger(self, than: _Part) -> Waiter | None:
        """Return the last waiter of the largest part; None if none is larger than that one."""
        while True:
            entry = self._line.first_entry()
            assert entry is not None  # noqa: S101 - that one is in the room
            noted, part = entry
            key = -self._measure(part)
            if key == noted:
                is_larger = key < -self._measure(than)
                return next(reversed(part.waiters.values())) if is_larger else None
            self._line.delay_first(key)


class WaitingRoom:
    """Waiters by ticket id, the one that must start first in front."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        # What may be in it: the bounds, or what was in it when these were lowered, less what left.
        self._most = (limits.max_waiting, limits.max_waiting_bytes)
        self._bytes = 0
        # Ticket id -> waiter, by (when it must start, number).
        self._waiters: Line[Waiter] = Line()
        # Tenant -> its part of the room; no tenant without any.
        self._of_tenant: dict[str, _Part] = {}
        self._most_waiters = _Largest(lambda part: len(part.waiters) / part.weight)
        self._most_bytes = _Largest(lambda part: part.bytes / part.weight)

    def relimit(self, limits: Limits) -> None:
        """Go by other bounds and weights; nobody goes for that."""
        self._limits = limits
        self._most = (
            max(limits.max_waiting, len(self)),
            max(limits.max_waiting_bytes, self._bytes),
        )
        for part in self._of_tenant.values():
            part.weight = limits.of_tenant(part.tenant).weight
            self._most_waiters.grew(part)
            self._most_bytes.grew(part)

    def enter(self, waiter: Waiter) -> None:
        """Take a waiter in; whether the room is overfull is asked afterwards."""
        ticket = waiter.ticket
        self._waiters.join(ticket.id, (waiter.start_by, waiter.number), waiter)
        self._bytes += ticket.size_bytes
        part = self._of_tenant.get(ticket.tenant)
        if part is None:
            weight = self._limits.of_tenant(ticket.tenant).weight
            part = self._of_tenant[ticket.tenant] = _Part(ticket.tenant, weight)
        part.take(waiter)
        self._most_waiters.grew(part)
        self._most_bytes.grew(part)

    def leave(self, ticket_id: str) -> Waiter | None:
        """Let a waiter go; None if nobody of that name waits."""
        waiter = self._waiters.leave(ticket_id)
        if waiter is None:
            return None
        tenant = waiter.ticket.tenant
        self._bytes -= waiter.ticket.size_bytes
        if self._most != (self._limits.max_waiting, self._limits.max_waiting_bytes):
            self._shrink()
        part = self._of_tenant[tenant]
        part.let_go(waiter)
        if not part.waiters:
            del self._of_tenant[tenant]
            self._most_waiters.drop(tenant)
            self._most_bytes.drop(tenant)
        return waiter

    def _shrink(self) -> None:
        limits = self._limits
        number, size = self._most
        self._most = (
            max(limits.max_waiting, min(number, len(self))),
            max(limits.max_waiting_bytes, min(size, self._bytes)),
        )

    def due(self, now: float) -> Waiter | None:
        """Return a waiter that had to start by now to meet its deadline."""
        waiter = self._waiters.first()
        return waiter if waiter is not None and waiter.start_by <= now else None

    def who_must_go(self, newcomer: Waiter) -> list[tuple[Waiter, Overflow]]:
        """Return whom to refuse now that the newcomer is in, and for which bound.

        Nobody, the newcomer, or others, with whom gone it has room.
        """
        going: list[tuple[Waiter, Overflow]] = []
        limits, most = self._limits, self._most
        tried: list[Waiter] = []
        bounds = (limits.max_waiting, limits.max_waiting_bytes)
        while (overflow := self._overflow(newcomer, bounds)) is not None:
            waiter = self._who_must_go(newcomer, overflow)
            if waiter is None:
                going = [(newcomer, overflow)]
                break
            self.leave(waiter.ticket.id)
            tried.append(waiter)
            going.append((waiter, overflow))
            bounds = self._most
        for waiter in reversed(tried):
            self.enter(waiter)
        self._most = most
        return going

    def is_overfull(self, newcomer: Waiter) -> bool:
        """Whether somebody must go now that the newcomer is in."""
        limits = self._limits
        bounds = (limits.max_waiting, limits.max_waiting_bytes)
        return self._overflow(newcomer, bounds) is not None

    def _overflow(self, newcomer: Waiter, bounds: tuple[int, int]) -> Overflow | None:
        """Say which bound is exceeded now that the newcomer is in; None if none is.

        `bounds` are those of number and bytes that count just now.
        """
        ticket, limits = newcomer.ticket, self._limits
        most = limits.of_tenant(ticket.tenant).max_waiting
        # What the client is told is what it found: those who waited before it.
        of_tenant = len(self._of_tenant[ticket.tenant].waiters) - 1
        if most is not None and of_tenant >= most:
            setting = f"tenants.{ticket.tenant}.max_waiting"
            return Overflow(Reason.TENANT_LIMIT, most, of_tenant, setting)
        others = len(self) - 1
        if others >= bounds[0]:
            return Overflow(Reason.QUEUE_FULL, limits.max_waiting, others, _NUMBER)
        if self._bytes > bounds[1]:
            return Overflow(Reason.QUEUE_FULL, limits.max_waiting_bytes, self._bytes, _BYTES)
        return None

    def _who_must_go(self, newcomer: Waiter, overflow: Overflow) -> Waiter | None:
        """Return who else must go for the newcomer; None if nobody has more than its tenant."""
        if overflow.reason is Reason.TENANT_LIMIT:
            return None
        largest = self._most_bytes if overflow.setting == _BYTES else self._most_waiters
        # As large as the largest is too large: the newcomer is what makes it so.
        return largest.last_of_larger(self._of_tenant[newcomer.ticket.tenant])

    @property
    def bytes(self) -> int:
        """The size of all that waits."""
        return self._bytes

    def next_deadline(self) -> float | None:
        """Return when the first must have started."""
        key = self._waiters.first_key()
        return None if key is None else float(key[0])

    def __len__(self) -> int:
        return len(self._waiters)

    def __contains__(self, ticket_id: object) -> bool:
        return ticket_id in self._waiters
