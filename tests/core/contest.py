"""Tenants that contend for one model, before an independent accountant.

A machine of some slots runs what the real scheduler grants: each turn, one of the running requests
writes up to 16 tokens.  The accountant knows only what was granted and written, and keeps each
tenant's service, in cost over weight, at each moment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from slotgate.core.decision import Ending, Granted
from slotgate.core.limits import ClassLimits, Limits, TenantCaps
from slotgate.core.policies import Policies
from slotgate.core.scheduler import Scheduler
from slotgate.core.ticket import Ticket
from slotgate.testing import FakeClock, ready

# What an output token costs until speeds are known, in prompt tokens.
OUTPUT_COST = 10.0
STEP_TOKENS = 16
_FOREVER = 1e9


@dataclass
class Contender:
    """A tenant: how many of its requests wait at each moment, how long prompts and answers are."""

    backlog: int
    prompt: Callable[[Random], int]
    answer: Callable[[Random], int]
    weight: float = 1.0
    max_in_flight: int | None = None


def between(least: int, most: int) -> Callable[[Random], int]:
    return lambda dice: dice.randint(least, most)


@dataclass
class _Running:
    tenant: str
    prompt: int
    left: int
    is_counted: bool = False


@dataclass
class Contest:
    contenders: dict[str, Contender]
    slots: int = 1
    policies: Policies = field(default_factory=Policies)
    seed: int = 0
    # Whether the backend corrects what prompts were thought to be.
    guesses: bool = False

    def __post_init__(self) -> None:
        self.dice = Random(self.seed)
        caps = {
            name: TenantCaps(weight=c.weight, max_in_flight=c.max_in_flight)
            for name, c in self.contenders.items()
        }
        limits = Limits(
            tenants=caps,
            classes={"standard": ClassLimits(budget=_FOREVER)},
            max_waiting=1_000_000,
            long_prefill_tokens=1_000_000,
        )
        self.scheduler = Scheduler(
            clock=FakeClock(), dice=self.dice, limits=limits, policies=self.policies
        )
        self.scheduler.deployment(ready("left", slots=self.slots))
        self.count = 0
        self.running: dict[str, _Running] = {}
        self.waiting: dict[str, int] = dict.fromkeys(self.contenders, 0)
        # Service in cost over weight, and the service of all before each grant, by ticket.
        self.service: dict[str, float] = dict.fromkeys(self.contenders, 0.0)
        self.waits: dict[str, list[float]] = {name: [] for name in self.contenders}
        self._asked: dict[str, tuple[str, int, float]] = {}

    @property
    def work(self) -> float:
        """What the machine has done for everybody, in cost."""
        return sum(self.service[name] * c.weight for name, c in self.contenders.items())

    def key(self, tenant: str) -> float:
        """The tenant's counter."""
        return self.scheduler._fleet.models["m"].queue.key(tenant)

    def top_up(self, *tenants: str) -> None:
        """Let so many of each tenant wait as it always has."""
        for name in tenants or self.contenders:
            while self.waiting[name] < self.contenders[name].backlog:
                self.ask(name)

    def ask(self, tenant: str) -> None:
        self.count += 1
        name, prompt = f"t{self.count}", self.contenders[tenant].prompt(self.dice)
        self._asked[name] = tenant, prompt, self.work
        self.waiting[tenant] += 1
        thought = self.dice.randint(prompt // 2, prompt) if self.guesses else prompt
        self._carry_out(
            self.scheduler.submit(
                Ticket(
                    id=name,
                    arrival=0,
                    deadline=_FOREVER,
                    tenant=tenant,
                    model="m",
                    input_tokens=thought,
                )
            )
        )

    def turn(self) -> None:
        """One running request writes, and ends when it has written all."""
        if not self.running:
            return
        name = self.dice.choice(list(self.running))
        running = self.running[name]
        tokens = min(running.left, self.dice.randint(1, STEP_TOKENS))
        running.left -= tokens
        counted = 0
        if self.guesses and not running.is_counted:
            counted, running.is_counted = running.prompt, True
        self._serve(running.tenant, OUTPUT_COST * tokens)
        self._carry_out(
            self.scheduler.charge(name, input_tokens=counted, cached_tokens=0, output_tokens=tokens)
        )
        if not running.left:
            del self.running[name]
            self._carry_out(self.scheduler.leave(name, Ending.SERVED))

    def _serve(self, tenant: str, cost: float) -> None:
        self.service[tenant] += cost / self.contenders[tenant].weight

    def _carry_out(self, decisions: object) -> None:
        assert isinstance(decisions, list)
        for decision in decisions:
            assert isinstance(decision, Granted)
            name = decision.ticket.id
            tenant, prompt, work = self._asked.pop(name)
            self.waiting[tenant] -= 1
            self.waits[tenant].append(self.work - work)
            self.running[name] = _Running(tenant, prompt, self.contenders[tenant].answer(self.dice))
            self._serve(tenant, float(prompt))
