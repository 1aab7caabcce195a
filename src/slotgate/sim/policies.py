"""The fronts by name: ours, and what it is compared with.

Each is made for a *budget*: the seconds to its first token that a request of the class in question
has.  A policy that only lets deadlines expire must let them expire a little before that, since a
prompt has yet to be read when its turn comes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from slotgate.core import Limits, Policies, Scheduler
from slotgate.errors import ConfigError
from slotgate.sim.front import Bare
from slotgate.sim.gateway import Gateway

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from slotgate.core.clock import Dice
    from slotgate.sim.front import Front, Stage
    from slotgate.sim.gateway import Watcher
    from slotgate.sim.rehearsal import MakesFront

UNBOUNDED: Final = 10**9
CLASSES: Final = ("interactive", "standard", "batch")
PREFILL_SECONDS: Final = 1.0
"""What the expiring policy keeps of the budget for the prompt."""


class BareServers:
    """No gateway at all."""

    def __call__(self, stage: Stage) -> Front:
        return Bare(stage)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled:
    """A scheduler with such limits and policies; a class without a budget waits for ever."""

    dice: Dice
    limits: Limits = field(default_factory=Limits)
    policies: Policies | None = None
    budgets: Mapping[str, float] = field(default_factory=dict)
    watcher: Watcher | None = None

    def __call__(self, stage: Stage) -> Front:
        scheduler = Scheduler(
            clock=stage.clock, dice=self.dice, limits=self.limits, policies=self.policies
        )
        return Gateway(stage, scheduler=scheduler, budgets=self.budgets, watcher=self.watcher)


@dataclass(frozen=True, slots=True)
class Policy:
    """A front by name."""

    help: str
    make: Callable[[Dice, float], MakesFront]


def _fifo(dice: Dice, budget: float) -> Scheduled:
    del budget
    limits = Limits(max_waiting=UNBOUNDED, max_waiting_bytes=UNBOUNDED**2)
    return Scheduled(dice=dice, limits=limits)


def _fifo_q16(dice: Dice, budget: float) -> Scheduled:
    del budget
    return Scheduled(dice=dice, limits=Limits(max_waiting=16))


def _fifo_deadline(dice: Dice, budget: float) -> Scheduled:
    budgets = dict.fromkeys(CLASSES, max(budget - PREFILL_SECONDS, budget / 2))
    limits = Limits(
        max_waiting=UNBOUNDED, max_waiting_bytes=UNBOUNDED**2, class_budget_seconds=budgets
    )
    return Scheduled(dice=dice, limits=limits, budgets=budgets)


POLICIES: Final = {
    "bare": Policy(
        "no gateway: the servers put off what they cannot run", lambda *_: BareServers()
    ),
    "fifo": Policy("first come, first served, from an unbounded queue", _fifo),
    "fifo-q16": Policy("the same from a queue of 16", _fifo_q16),
    "fifo-deadline": Policy(
        "the same, and who has waited to its deadline is refused", _fifo_deadline
    ),
}


DEFAULT: Final = "fifo-deadline"


def configured(dice: Dice, limits: Limits) -> Scheduled:
    """The scheduler as a configuration has it."""
    return Scheduled(dice=dice, limits=limits, budgets=limits.class_budget_seconds)


def make_policy(name: str, dice: Dice, budget: float) -> MakesFront:
    """Set up a policy; ConfigError if there is none of this name."""
    policy = POLICIES.get(name)
    if policy is None:
        raise ConfigError(f"no policy is called {name!r}; there are {', '.join(POLICIES)}")
    return policy.make(dice, budget)
