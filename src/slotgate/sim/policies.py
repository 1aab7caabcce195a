"""The fronts by name: ours, and what it is compared with."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from slotgate.core import Limits, Policies, Scheduler
from slotgate.sim.front import Bare
from slotgate.sim.gateway import Gateway

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slotgate.core.clock import Dice
    from slotgate.sim.front import Front
    from slotgate.sim.gateway import Watcher
    from slotgate.sim.run import Stage

UNBOUNDED = 10**9


class BareServers:
    """No gateway at all."""

    def __call__(self, stage: Stage) -> Front:
        return Bare(
            stage.specs,
            agenda=stage.agenda,
            clock=stage.clock,
            audience=stage.clients,
            until=stage.until,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled:
    """A scheduler with such limits and policies; classes without a budget wait for ever."""

    dice: Dice
    limits: Limits = field(default_factory=Limits)
    policies: Policies | None = None
    budgets: Mapping[str, float] = field(default_factory=dict)
    watcher: Watcher | None = None

    def __call__(self, stage: Stage) -> Front:
        scheduler = Scheduler(
            clock=stage.clock, dice=self.dice, limits=self.limits, policies=self.policies
        )
        return Gateway(
            stage.specs,
            scheduler=scheduler,
            budgets=self.budgets,
            meter=stage.meter,
            watcher=self.watcher,
            agenda=stage.agenda,
            clock=stage.clock,
            audience=stage.clients,
            until=stage.until,
        )


def fifo_unbounded(dice: Dice) -> Scheduled:
    return Scheduled(dice=dice, limits=Limits(max_waiting=UNBOUNDED, max_waiting_bytes=UNBOUNDED**2))


def fifo_bounded(dice: Dice, waiting: int) -> Scheduled:
    return Scheduled(dice=dice, limits=Limits(max_waiting=waiting))


def fifo_expiry(dice: Dice, budget: float) -> Scheduled:
    budgets = dict.fromkeys(("interactive", "standard", "batch"), budget)
    return Scheduled(
        dice=dice,
        limits=Limits(max_waiting=UNBOUNDED, class_budget_seconds=budgets),
        budgets=budgets,
    )


FOREVER = inf
