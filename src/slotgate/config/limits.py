"""What the settings mean to the scheduler: its numbers, and its rules by their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.core.health import Patience
from slotgate.core.limits import ClassLimits, Limits, TenantCaps
from slotgate.core.policies import Policies
from slotgate.core.watch_rules import ClockRules, WatchRules

if TYPE_CHECKING:
    from slotgate.config.classes import ClassSettings
    from slotgate.config.health import HealthSettings
    from slotgate.config.scheduling import SchedulingSettings
    from slotgate.config.settings import Settings
    from slotgate.config.tenants import TenantSettings
    from slotgate.config.watchdog import WatchdogSettings


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
        affinity_patience=scheduling.affinity_patience,
        model_turn_seconds=scheduling.model_turn,
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


def patience_of(health: HealthSettings) -> Patience:
    """Return when a backend that fails is left alone."""
    return Patience(
        failures=health.failures,
        first_pause=health.first_pause,
        longest_pause=health.longest_pause,
    )


def watch_rules_of(watchdog: WatchdogSettings, *, unknown: float) -> WatchRules:
    """Return how patient a watchdog is; `unknown` bounds what was not measured, in seconds."""
    return WatchRules(
        clocks=ClockRules(
            first_token_floor=watchdog.first_token_floor,
            first_token_factor=watchdog.first_token_factor,
            gap_floor=watchdog.gap_floor,
            gap_factor=watchdog.gap_factor,
            unknown=unknown,
        ),
        slow_factor=watchdog.slow_factor,
        slow_after=watchdog.slow_after,
        outside_after=watchdog.outside_after,
        errors=watchdog.compute_errors,
        quarantines=watchdog.action != "alert",
        shortest_quarantine=watchdog.quarantine,
    )


def _class(settings: ClassSettings) -> ClassLimits:
    return ClassLimits(budget=settings.budget, weight=settings.weight, holdback=settings.holdback)


def _caps(tenant: TenantSettings) -> TenantCaps:
    return TenantCaps(
        max_in_flight=tenant.max_in_flight,
        max_waiting=tenant.max_waiting,
        weight=tenant.weight,
    )
