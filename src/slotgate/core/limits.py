"""How much may wait, for how long, and what a tenant may take: the operator's numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantCaps:
    """What one tenant may take at most (None: no cap of its own), and its weight among others.

    `max_in_flight` counts leases, those still settling included: else a client that cancels and
    asks again in a loop, as an editor's completion does, would hold one slot more each time.
    """

    max_in_flight: int | None = None
    max_waiting: int | None = None
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassLimits:
    """A priority class: its budget to the first token, its weight, and what it leaves free.

    `holdback` is the part of a deployment's slots, rounded down, that the class leaves to more
    urgent ones while these have been seen of late.
    """

    budget: float
    weight: float = 1.0
    holdback: float = 0.0


def _classes() -> Mapping[str, ClassLimits]:
    return {
        "interactive": ClassLimits(budget=10.0, weight=16.0),
        "standard": ClassLimits(budget=30.0, weight=4.0),
        "batch": ClassLimits(budget=300.0, weight=1.0, holdback=0.25),
    }


_UNKNOWN_CLASS = ClassLimits(budget=0.0)
_UNKNOWN_TENANT = TenantCaps()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The scheduler's numbers.  Times are seconds.

    `max_waiting` and `max_waiting_bytes` bound what waits, over all models together.
    A closed upstream's slot is taken for free after `settle_bound_seconds` at the latest.
    A ticket that does not fit yet may be overtaken `max_bypass` times and for `bypass_seconds`
    from the first.  Prompts that one deployment reads at a time add up to `long_prefill_tokens` at
    most, unless it is a single one.
    A ticket is held back for the deployment that remembers its session for `affinity_patience` at
    most.
    Nobody is told to come back later than in `retry_cap_seconds`: older SDKs take anything
    above 60 s as 'at once'.  `slowest_service_seconds` is how long a request holds its slot on
    average where nothing has been observed yet, or less than that.  A model of a router that holds
    fewer than it has is asked for during `model_turn_seconds` while others wait for their turn.
    """

    max_waiting: int = 512
    max_waiting_bytes: int = 256 * 1024 * 1024
    settle_bound_seconds: float = 30.0
    max_bypass: int = 4
    bypass_seconds: float = 2.0
    long_prefill_tokens: int = 2048
    affinity_patience: float = 0.0
    retry_cap_seconds: float = 50.0
    slowest_service_seconds: float = 60.0
    model_turn_seconds: float = 10.0
    classes: Mapping[str, ClassLimits] = field(default_factory=_classes)
    tenants: Mapping[str, TenantCaps] = field(default_factory=dict)

    def of_class(self, name: str) -> ClassLimits:
        """Return a class's numbers; one that nobody declared has no budget and the weight 1."""
        return self.classes.get(name, _UNKNOWN_CLASS)

    def of_tenant(self, name: str) -> TenantCaps:
        """Return a tenant's numbers; one that nobody declared has no caps and the weight 1."""
        return self.tenants.get(name, _UNKNOWN_TENANT)
