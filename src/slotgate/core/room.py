"""The waiting room: everybody who waits, for whichever model, and its bounds.

Each waiter holds memory (its body above all), so the room is bounded in number and in bytes,
over all models together.

When it is full, the one who must go is the last of the tenant that takes the largest part of it,
for its weight: the newcomer itself, unless another tenant takes more.  Else one tenant could fill
the room, and everybody would be refused for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from slotgate.core.decision import Reason
from slotgate.core.line import Line

if TYPE_CHECKING:
    from slotgate.core.limits import Limits
    from slotgate.core.waiter import Waiter


class Overflow(NamedTuple):
    """The bound of the room that is exceeded."""

    reason: Reason
    limit: float
    value: float
    setting: str


class _Part:
    """What one tenant has in the room."""

    __slots__ = ("bytes", "noted", "tenant", "waiters")

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        # Its share of the room when it was last looked at.
        self.noted = -1.0
        # Ticket id -> waiter, as they entered.
        self.waiters: dict[str, Waiter] = {}
        self.bytes = 0


class WaitingRoom:
    """Waiters by ticket id, the earliest deadline first."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._bytes = 0
        # Ticket id -> waiter, by (deadline, number).
        self._waiters: Line[Waiter] = Line()
        # Tenant -> its part of the room; no tenant without any.
        self._of_tenant: dict[str, _Part] = {}
        # The tenants, the one with the largest part first; what is noted may be too large, as
        # leaving does not touch it.
        self._largest: Line[_Part] = Line()

    def enter(self, waiter: Waiter) -> None:
        """Take a waiter in; whether the room is overfull is asked afterwards."""
        ticket = waiter.ticket
        self._waiters.join(ticket.id, (ticket.deadline, waiter.number), waiter)
        self._bytes += ticket.size_bytes
        part = self._of_tenant.get(ticket.tenant)
        if part is None:
            part = self._of_tenant[ticket.tenant] = _Part(ticket.tenant)
        part.waiters[ticket.id] = waiter
        part.bytes += ticket.size_bytes
        share = self._share(ticket.tenant, part)
        if share > part.noted:
            part.noted = share
            self._largest.join(ticket.tenant, -share, part)

    def leave(self, ticket_id: str) -> Waiter | None:
        """Let a waiter go; None if nobody of that name waits."""
        waiter = self._waiters.leave(ticket_id)
        if waiter is None:
            return None
        tenant = waiter.ticket.tenant
        self._bytes -= waiter.ticket.size_bytes
        part = self._of_tenant[tenant]
        del part.waiters[ticket_id]
        part.bytes -= waiter.ticket.size_bytes
        if not part.waiters:
            del self._of_tenant[tenant]
            self._largest.leave(tenant)
        return waiter

    def _share(self, tenant: str, part: _Part) -> float:
        """Return the part of the room that a tenant takes, the larger of two, for its weight."""
        limits = self._limits
        number = len(part.waiters) / max(1, limits.max_waiting)
        size = part.bytes / max(1, limits.max_waiting_bytes)
        return max(number, size) / limits.of_tenant(tenant).weight

    def due(self, now: float) -> Waiter | None:
        """Return a waiter whose deadline has come; exactly at the deadline, it has."""
        waiter = self._waiters.first()
        return waiter if waiter is not None and waiter.ticket.deadline <= now else None

    def overflow(self, newcomer: Waiter) -> Overflow | None:
        """Say which bound is exceeded now that the newcomer is in; None if none is."""
        ticket, limits = newcomer.ticket, self._limits
        most = limits.of_tenant(ticket.tenant).max_waiting
        # What the client is told is what it found: those who waited before it.
        of_tenant = len(self._of_tenant[ticket.tenant].waiters) - 1
        if most is not None and of_tenant >= most:
            setting = f"tenants.{ticket.tenant}.max_waiting"
            return Overflow(Reason.TENANT_LIMIT, most, of_tenant, setting)
        others = len(self) - 1
        if others >= limits.max_waiting:
            return Overflow(Reason.QUEUE_FULL, limits.max_waiting, others, "queue.max_waiting")
        if self._bytes > limits.max_waiting_bytes:
            setting = "queue.max_waiting_bytes"
            return Overflow(Reason.QUEUE_FULL, limits.max_waiting_bytes, self._bytes, setting)
        return None

    def who_must_go(self, newcomer: Waiter, overflow: Overflow) -> Waiter:
        """Return whom to refuse for an overflow that came with the newcomer."""
        if overflow.reason is Reason.TENANT_LIMIT:
            return newcomer
        share, largest = self._largest_part()
        own = self._of_tenant[newcomer.ticket.tenant]
        # As large as the largest is too large: the newcomer is what makes it so.
        if self._share(newcomer.ticket.tenant, own) >= share:
            return newcomer
        return largest.waiters[next(reversed(largest.waiters))]

    def _largest_part(self) -> tuple[float, _Part]:
        while True:
            part = self._largest.first()
            assert part is not None  # noqa: S101 - the newcomer is in the room
            tenant = part.tenant
            share = self._share(tenant, part)
            if share == part.noted:
                return share, part
            part.noted = share
            self._largest.join(tenant, -share, part)

    @property
    def bytes(self) -> int:
        """The size of all that waits."""
        return self._bytes

    def next_deadline(self) -> float | None:
        """Return the earliest deadline."""
        key = self._waiters.first_key()
        return None if key is None else float(key[0])

    def __len__(self) -> int:
        return len(self._waiters)

    def __contains__(self, ticket_id: object) -> bool:
        return ticket_id in self._waiters
