"""What the settings mean to the scheduler: its numbers, and its rules by their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.core.limits import Limits, TenantCaps

if TYPE_CHECKING:
    from slotgate.config.settings import Settings
    from slotgate.config.tenants import TenantSettings


def limits_of(settings: Settings) -> Limits:
    """Return the numbers of the scheduler."""
    classes, scheduling = settings.classes, settings.scheduling
    return Limits(
        max_waiting=settings.queue.max_waiting,
        max_waiting_bytes=settings.queue.max_waiting_bytes,
        settle_bound_seconds=settings.settle_bound,
        max_bypass=scheduling.max_bypass,
        bypass_seconds=scheduling.bypass_seconds,
        class_budget_seconds={
            "interactive": classes.interactive.budget,
            "standard": classes.standard.budget,
            "batch": classes.batch.budget,
        },
        tenants={tenant.name: _caps(tenant) for tenant in settings.tenants},
    )


def _caps(tenant: TenantSettings) -> TenantCaps:
    return TenantCaps(max_in_flight=tenant.max_in_flight, max_waiting=tenant.max_waiting)
