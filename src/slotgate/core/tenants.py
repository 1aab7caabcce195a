"""How much each tenant has in flight, against its cap."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from slotgate.core.limits import TenantCaps
    from slotgate.core.pool import Lease


class Tenants:
    """Counts leases by tenant, over all models."""

    def __init__(self, caps: Mapping[str, TenantCaps]) -> None:
        self._caps = caps
        # Tenant -> its leases, running or settling, by id; no tenant without any.
        self._in_flight: dict[str, dict[str, Lease]] = {}
        # The tenants at their cap.
        self.closed = {tenant for tenant, each in caps.items() if each.max_in_flight == 0}

    def begin(self, lease: Lease) -> bool:
        """Note a lease's grant; True if its tenant is at its cap now."""
        tenant = lease.waiter.ticket.tenant
        leases = self._in_flight.setdefault(tenant, {})
        leases[lease.id] = lease
        is_closed = self._is_full(tenant)
        if is_closed:
            self.closed.add(tenant)
        return is_closed

    def end(self, lease: Lease) -> bool:
        """Note a lease's end; True if its tenant was at its cap until now."""
        tenant = lease.waiter.ticket.tenant
        leases = self._in_flight[tenant]
        del leases[lease.id]
        if not leases:
            del self._in_flight[tenant]
        if tenant not in self.closed or self._is_full(tenant):
            return False
        self.closed.discard(tenant)
        return True

    def recap(self, caps: Mapping[str, TenantCaps]) -> tuple[set[str], set[str]]:
        """Take other caps; return who has reached its cap by that, and who is below it now.

        A tenant that has more in flight than its new cap keeps it, and gets no more meanwhile.
        """
        self._caps = caps
        before = set(self.closed)
        after = {tenant for tenant in (*caps, *self._in_flight) if self._is_full(tenant)}
        # In place: the queues look at this very set.
        self.closed.clear()
        self.closed.update(after)
        return after - before, before - after

    def is_open(self, tenant: str) -> bool:
        """Whether the tenant may have one lease more."""
        return tenant not in self.closed

    def cap(self, tenant: str) -> int | None:
        """Return how many leases the tenant may have."""
        caps = self._caps.get(tenant)
        return None if caps is None else caps.max_in_flight

    def _is_full(self, tenant: str) -> bool:
        cap = self.cap(tenant)
        return cap is not None and self.in_flight(tenant) >= cap

    def in_flight(self, tenant: str) -> int:
        """Return how many leases the tenant has."""
        return len(self._in_flight.get(tenant, ()))

    def leases(self, tenant: str) -> Collection[Lease]:
        """Return the tenant's leases, running or settling."""
        leases = self._in_flight.get(tenant)
        return leases.values() if leases is not None else ()
