"""The fronts by name: ours, and what it is compared with.

Each is made for a *budget*: the seconds to its first token that a request of the class in question
has.  A policy that only lets deadlines expire must let them expire a little before that, since a
prompt has yet to be read when its turn comes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from slotgate.core import Limits, Policies, Scheduler
from slotgate.errors import ConfigError
from slotgate.sim.front import Bare
from slotgate.sim.gateway import Gateway
from slotgate.sim.oracle import Clairvoyant

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from slotgate.core.clock import Dice
    from slotgate.sim.front import Front, Stage
    from slotgate.sim.gateway import Watcher
    from slotgate.sim.rehearsal import MakesFront
    from slotgate.sim.spreads import Spread

UNBOUNDED: Final = 10**9
DEFAULT: Final = "slotgate"
CLASSES: Final = ("interactive", "standard", "batch")
PREFILL_SECONDS: Final = 1.0
"""What the expiring policy keeps of the budget for the prompt."""


@dataclass(frozen=True, slots=True)
class BareServers:
    """No gateway at all; what comes is spread over them, in turn unless it is said how."""

    spread: Spread | None = None

    def __call__(self, stage: Stage) -> Front:
        return Bare(stage, self.spread)


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


def _bare(dice: Dice, budget: float) -> MakesFront:
    del dice, budget
    return BareServers()


def _unhurried(waiting: int) -> Callable[[Dice, float], MakesFront]:
    """First come, first served, from a queue of so many, without deadlines."""

    def make(dice: Dice, budget: float) -> MakesFront:
        del budget
        limits = Limits(max_waiting=waiting, max_waiting_bytes=UNBOUNDED**2)
        policies = Policies.named(fairness="none", admission="expiry", concurrency="fixed")
        return Scheduled(dice=dice, limits=limits, policies=policies)

    return make


def _fifo_deadline(dice: Dice, budget: float) -> MakesFront:
    kept = max(budget - PREFILL_SECONDS, budget / 2)
    policies = Policies.named(fairness="none", admission="expiry", concurrency="fixed")
    return _scheduled(dice, kept, policies)


def _named(
    *, fairness: str = "vtc", order: str = "fifo", admission: str = "deadline"
) -> Callable[[Dice, float], MakesFront]:
    """Ours, but for what is named."""
    policies = Policies.named(fairness=fairness, order=order, admission=admission)
    return lambda dice, budget: _scheduled(dice, budget, policies)


def _oracle(dice: Dice, budget: float) -> MakesFront:
    lengths = Clairvoyant()
    policies = replace(Policies.named(), lengths=lambda: lengths)
    return replace(_scheduled(dice, budget, policies), watcher=lengths)


def _scheduled(dice: Dice, budget: float, policies: Policies) -> Scheduled:
    classes = {name: replace(limits, budget=budget) for name, limits in Limits().classes.items()}
    return Scheduled(
        dice=dice,
        limits=Limits(classes=classes),
        policies=policies,
        budgets=dict.fromkeys(classes, budget),
    )


POLICIES: Final = {
    "slotgate": Policy("fair among tenants, and who would be late is told at once", _named()),
    "bare": Policy("no gateway: the servers put off what they cannot run", _bare),
    "fifo": Policy("first come, first served, from an unbounded queue", _unhurried(UNBOUNDED)),
    "fifo-q16": Policy("the same from a queue of 16", _unhurried(16)),
    "fifo-deadline": Policy("the same, and who waits to its deadline is refused", _fifo_deadline),
    "unfair": Policy("slotgate without fairness among tenants", _named(fairness="none")),
    "patient": Policy(
        "slotgate that refuses nobody before its deadline", _named(admission="expiry")
    ),
    "drr": Policy("slotgate with deficit round robin", _named(fairness="drr")),
    "round-robin": Policy("slotgate with a request each in turn", _named(fairness="round_robin")),
    "oracle": Policy("slotgate that knows how long each answer will be", _oracle),
    "sjf": Policy("slotgate, short answers first within a tenant", _named(order="sjf")),
}


def configured(dice: Dice, limits: Limits, policies: Policies) -> Scheduled:
    """The scheduler as a configuration has it."""
    budgets = {name: each.budget for name, each in limits.classes.items()}
    return Scheduled(dice=dice, limits=limits, policies=policies, budgets=budgets)


def make_policy(name: str, dice: Dice, budget: float) -> MakesFront:
    """Set up a policy; ConfigError if there is none of this name."""
    policy = POLICIES.get(name)
    if policy is None:
        raise ConfigError(f"no policy is called {name!r}; there are {', '.join(POLICIES)}")
    return policy.make(dice, budget)
