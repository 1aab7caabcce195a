"""The waiting room: everybody who waits, for whichever model, and its bounds.

Each waiter holds memory (its body above all), so the room is bounded in number and in bytes,
over all models together.
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


class WaitingRoom:
    """Waiters by ticket id, the earliest deadline first."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._bytes = 0
        # Ticket id -> waiter, by (deadline, number).
        self._waiters: Line[Waiter] = Line()
        # Tenant -> how many of its tickets are in the room; no tenant without any.
        self._of_tenant: dict[str, int] = {}

    def enter(self, waiter: Waiter) -> None:
        """Take a waiter in; whether the room is overfull is asked afterwards."""
        ticket = waiter.ticket
        self._waiters.join(ticket.id, (ticket.deadline, waiter.number), waiter)
        self._bytes += ticket.size_bytes
        self._of_tenant[ticket.tenant] = self._of_tenant.get(ticket.tenant, 0) + 1

    def leave(self, ticket_id: str) -> Waiter | None:
        """Let a waiter go; None if nobody of that name waits."""
        waiter = self._waiters.leave(ticket_id)
        if waiter is None:
            return None
        tenant = waiter.ticket.tenant
        self._bytes -= waiter.ticket.size_bytes
        self._of_tenant[tenant] -= 1
        if not self._of_tenant[tenant]:
            del self._of_tenant[tenant]
        return waiter

    def due(self, now: float) -> Waiter | None:
        """Return a waiter whose deadline has come; exactly at the deadline, it has."""
        waiter = self._waiters.first()
        return waiter if waiter is not None and waiter.ticket.deadline <= now else None

    def overflow(self, newcomer: Waiter) -> Overflow | None:
        """Say which bound is exceeded now that the newcomer is in; None if none is."""
        ticket, limits = newcomer.ticket, self._limits
        caps = limits.tenants.get(ticket.tenant)
        most = None if caps is None else caps.max_waiting
        # What the client is told is what it found: those who waited before it.
        of_tenant = self._of_tenant[ticket.tenant] - 1
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
