"""How much each tenant has in flight, against its cap."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slotgate.core.limits import TenantCaps


class Tenants:
    """Counts leases by tenant, over all models."""

    def __init__(self, caps: Mapping[str, TenantCaps]) -> None:
        self._caps = caps
        # Tenant -> its leases, running or settling; no tenant without any.
        self._in_flight: dict[str, int] = {}

    def begin(self, tenant: str) -> None:
        """Note a lease's grant."""
        self._in_flight[tenant] = self._in_flight.get(tenant, 0) + 1

    def end(self, tenant: str) -> bool:
        """Note a lease's end; True if the tenant was at its cap until now."""
        was_open = self.is_open(tenant)
        self._in_flight[tenant] -= 1
        if not self._in_flight[tenant]:
            del self._in_flight[tenant]
        return not was_open

    def is_open(self, tenant: str) -> bool:
        """Whether the tenant may have one lease more."""
        caps = self._caps.get(tenant)
        if caps is None or caps.max_in_flight is None:
            return True
        return self.in_flight(tenant) < caps.max_in_flight

    def cap(self, tenant: str) -> int | None:
        """Return how many leases the tenant may have."""
        caps = self._caps.get(tenant)
        return None if caps is None else caps.max_in_flight

    def in_flight(self, tenant: str) -> int:
        """Return how many leases the tenant has."""
        return self._in_flight.get(tenant, 0)
