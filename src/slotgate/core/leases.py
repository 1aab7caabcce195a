"""Every lease, from its grant until its slots are known free."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from slotgate.core.line import Line
from slotgate.core.pool import Lease

if TYPE_CHECKING:
    from slotgate.core.matcher import Match


class Leases:
    """Running leases by ticket, settling leases by lease id; a ticket runs at most once.

    Whoever ends a lease here gets it back exactly once, and must then use that its slots are free.
    """

    def __init__(self, *, settle_bound_seconds: float) -> None:
        # Of leases that begin to settle; those that do keep theirs.
        self.settle_bound_seconds = settle_bound_seconds
        self._grants = 0
        # Ticket id -> its lease.
        self._running: dict[str, Lease] = {}
        # Lease id -> lease whose ticket has gone or waits again; by when its slots count as free.
        self._settling: Line[Lease] = Line()

    def begin(self, match: Match, now: float) -> Lease:
        """Start the lease of a match."""
        self._grants += 1
        # Unique for each grant: after a requeue, a ticket's old lease may still settle.
        lease_id = f"{match.waiter.ticket.id}#{self._grants}"
        lease = Lease(
            id=lease_id,
            waiter=match.waiter,
            pool=match.pool,
            since=now,
            output_clamp=match.room.output_clamp,
            kv_tokens=match.room.tokens,
        )
        self._running[match.waiter.ticket.id] = lease
        match.pool.begin(lease)
        return lease

    def stop(self, ticket_id: str, now: float, *, is_free: bool) -> Lease | None:
        """Take a ticket off its lease, which ends or settles; None if the ticket does not run."""
        lease = self._running.pop(ticket_id, None)
        if lease is None:
            return None
        if is_free:
            lease.pool.end(lease, now)
        else:
            lease.settles_by = now + self.settle_bound_seconds
            lease.rest_seen_at = -inf
            lease.pool.settle(lease, now)
            self._settling.join(lease.id, lease.settles_by, lease)
        return lease

    def settled(self, lease_id: str, now: float) -> Lease | None:
        """End a settling lease; None if it does not settle."""
        lease = self._settling.leave(lease_id)
        if lease is not None:
            lease.pool.end(lease, now)
        return lease

    def next_due(self) -> float | None:
        """Return when the next settling lease reaches its bound."""
        due: float | None = self._settling.first_key()
        return due

    def due(self, now: float) -> str | None:
        """Return the id of a settling lease that has reached its bound."""
        lease = self._settling.first()
        if lease is None or lease.settles_by is None or lease.settles_by > now:
            return None
        return lease.id

    def of_ticket(self, ticket_id: str) -> Lease | None:
        """Return the lease on which the ticket runs."""
        return self._running.get(ticket_id)

    def is_settling(self, lease_id: str) -> bool:
        """Whether the lease is over, but its slots are not known free."""
        return lease_id in self._settling
