"""How much may wait, for how long, and what a tenant may take: the operator's numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def _class_budgets() -> Mapping[str, float]:
    return {"interactive": 10.0, "standard": 30.0, "batch": 300.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantCaps:
    """What one tenant may take at most; None means no cap of its own.

    `max_in_flight` counts leases, those still settling included: else a client that cancels and
    asks again in a loop, as an editor's completion does, would hold one slot more each time.
    """

    max_in_flight: int | None = None
    max_waiting: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The scheduler's numbers.  Times are seconds.

    `max_waiting` and `max_waiting_bytes` bound what waits, over all models together.
    A closed upstream's slot is taken for free after `settle_bound_seconds` at the latest.
    A wide ticket may be overtaken `max_bypass` times and for `bypass_seconds` from the first.
    Nobody is told to come back later than in `retry_cap_seconds`: older SDKs take anything
    above 60 s as 'at once'.  `slowest_service_seconds` is how long a request holds its slot on
    average where nothing has been observed yet, or less than that.
    """

    max_waiting: int = 512
    max_waiting_bytes: int = 256 * 1024 * 1024
    settle_bound_seconds: float = 30.0
    max_bypass: int = 4
    bypass_seconds: float = 2.0
    retry_cap_seconds: float = 50.0
    slowest_service_seconds: float = 60.0
    class_budget_seconds: Mapping[str, float] = field(default_factory=_class_budgets)
    tenants: Mapping[str, TenantCaps] = field(default_factory=dict)
