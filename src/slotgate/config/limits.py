"""What the settings mean to the scheduler: its numbers, and its rules by their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.core.limits import ClassLimits, Limits, TenantCaps
from slotgate.core.policies import Policies

if TYPE_CHECKING:
    from slotgate.config.classes import ClassSettings
    from slotgate.config.scheduling import SchedulingSettings
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
        long_prefill_tokens=scheduling.long_prefill_tokens,
        classes={
            "interactive": _class(classes.interactive),
            "standard": _class(classes.standard),
            "batch": _class(classes.batch),
        },
        tenants={tenant.name: _caps(tenant) for tenant in settings.tenants},
    )


def policies_of(scheduling: SchedulingSettings) -> Policies:
    """Return the rules of the scheduler."""
    return Policies.named(
        fairness=scheduling.fairness,
        order=scheduling.order,
        admission=scheduling.admission,
        retry_after=scheduling.retry_after,
        kv=scheduling.kv,
        concurrency=scheduling.concurrency,
        placement=scheduling.placement,
        tpot_target=scheduling.tpot_target,
        kv_confidence=scheduling.kv_confidence,
        kv_watermark=scheduling.kv_watermark,
    )


def _class(settings: ClassSettings) -> ClassLimits:
    return ClassLimits(budget=settings.budget, weight=settings.weight, holdback=settings.holdback)


def _caps(tenant: TenantSettings) -> TenantCaps:
    return TenantCaps(
        max_in_flight=tenant.max_in_flight,
        max_waiting=tenant.max_waiting,
        weight=tenant.weight,
    )
