"""What one event costs the scheduler, by how many wait: `python -m bench.core_events [SETTING]`.

Settings by tenants and deployments, with one shape of request, or *mixed*: deployments of two
sizes, widths of 1 to 4, prompts of which some fit the large slots only, and a cap for every second
tenant.  Speeds and lengths have been learned, so every wait is foretold, and the clock moves on by
a millisecond an event, so that what is foretold from grows old.  Measured in CPU time of each call
by itself.  The bar is 20 us an event of each kind, with 10,000 waiting.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from dataclasses import dataclass
from time import process_time
from typing import TYPE_CHECKING

from slotgate.core.decision import Decision, Ending, Granted
from slotgate.core.deployment import DeploymentReport, State
from slotgate.core.limits import Limits, TenantCaps
from slotgate.core.scheduler import Scheduler
from slotgate.core.ticket import Ticket
from slotgate.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable

WAITING = (0, 1_000, 10_000)
BAR_MICROSECONDS = 20.0
WIDTHS = (1, 1, 1, 1, 2, 4)
ROUNDS = 3
EVENTS = 4_000
LESSONS = 40
FILL = 50
GAP_SECONDS = 0.02
STEP_SECONDS = 0.001


@dataclass(frozen=True)
class Setting:
    """What the scheduler has before it."""

    deployments: int
    tenants: int
    is_mixed: bool


SETTINGS = {
    "plain": Setting(1, 1, is_mixed=False),
    "mixed": Setting(4, 20, is_mixed=True),
    "many": Setting(64, 20, is_mixed=True),
    "tenants": Setting(4, 1000, is_mixed=False),
    "tenants mixed": Setting(4, 1000, is_mixed=True),
}


class Load:
    """A scheduler with every slot taken, and so many waiting."""

    def __init__(self, setting: Setting, waiting: int) -> None:
        self.setting = setting
        self.dice = random.Random(7)
        self.clock = FakeClock()
        caps = {f"tenant{n}": TenantCaps(max_in_flight=2) for n in range(0, setting.tenants, 2)}
        limits = Limits(max_waiting=1_000_000, tenants=caps if setting.is_mixed else {})
        self.scheduler = Scheduler(clock=self.clock, dice=self.dice, limits=limits)
        self.count = 0
        self.running: list[str] = []
        self.queue: list[str] = []
        # By kind of event: the seconds that they took, and how many they were.
        self.seconds: Counter[str] = Counter()
        self.events: Counter[str] = Counter()
        for place in range(setting.deployments):
            self.deploy(place)
        for _ in range(LESSONS):
            self.learn()
        # With so many waiting no slot is free, unless it is held for a wide one.
        while self.scheduler.counts().waiting < max(FILL, waiting):
            self.arrive()
        while self.scheduler.counts().waiting > waiting:
            self.give_up()

    def deploy(self, place: int) -> None:
        is_small = self.setting.is_mixed and place % 2 == 1
        report = DeploymentReport(
            id=f"backend{place}",
            model="m",
            slots=4 if is_small else 8,
            state=State.READY,
            ctx_per_slot=4096 if is_small else 8192,
        )
        self.scheduler.deployment(report)

    def learn(self) -> None:
        """One request on each slot, from its prompt to its last token."""
        for _ in range(self.scheduler.counts().idle):
            self.submit(self.ticket(tenant="teacher", width=1, input_tokens=100))
        running, self.running = self.running, []
        self.clock.advance(GAP_SECONDS * 100)
        for ticket_id in running:
            self.charge(ticket_id, 100)
            self.scheduler.timed(
                ticket_id,
                prompt_tokens=100,
                prompt_seconds=0.1,
                output_tokens=100,
                output_seconds=GAP_SECONDS * 100,
            )
        for ticket_id in running:
            self.charge(ticket_id, self.dice.randrange(400))
            self.scheduler.leave(ticket_id, Ending.SERVED)

    def ticket(self, *, tenant: str, width: int, input_tokens: int) -> Ticket:
        self.count += 1
        now = self.clock.now()
        return Ticket(
            id=f"t{self.count}",
            arrival=now,
            deadline=now + 1e6 + self.dice.random(),
            model="m",
            tenant=tenant,
            width=width,
            input_tokens=input_tokens,
        )

    def send(
        self, kind: str, event: Callable[..., list[Decision]], *args: object, **more: object
    ) -> int:
        """Send one event, timed by itself; return how many decisions it caused."""
        self.clock.advance(STEP_SECONDS)
        began = process_time()
        decisions = event(*args, **more)
        self.seconds[kind] += process_time() - began
        self.events[kind] += 1
        self.take(decisions)
        return len(decisions)

    def take(self, decisions: list[Decision]) -> None:
        """The first token of what was granted comes, untimed; it may let a long prompt in."""
        for decision in decisions:
            if isinstance(decision, Granted):
                self.running.append(decision.ticket.id)
                self.charge(decision.ticket.id, 1)

    def charge(self, ticket_id: str, tokens: int) -> None:
        self.take(
            self.scheduler.charge(ticket_id, input_tokens=0, cached_tokens=0, output_tokens=tokens)
        )

    def submit(self, ticket: Ticket) -> None:
        self.send("arrive", self.scheduler.submit, ticket)

    # Kinds of events.

    def arrive(self) -> None:
        is_mixed = self.setting.is_mixed
        ticket = self.ticket(
            tenant=f"tenant{self.dice.randrange(self.setting.tenants)}",
            width=self.dice.choice(WIDTHS) if is_mixed else 1,
            input_tokens=self.dice.choice((100, 1000, 6000)) if is_mixed else 100,
        )
        self.queue.append(ticket.id)
        self.submit(ticket)

    def give_up(self) -> None:
        """Somebody in the middle of the queue leaves, if anybody waits."""
        while self.queue:
            ticket_id = self._draw(self.queue)
            if self.scheduler.is_waiting(ticket_id):
                self.send("give up", self.scheduler.leave, ticket_id, Ending.ABANDONED)
                return

    def serve(self) -> None:
        """Somebody has been served, and the next is granted."""
        ticket_id = self._draw(self.running)
        self.charge(ticket_id, 1 + self.dice.randrange(400))
        self.send("be served", self.scheduler.leave, ticket_id, Ending.SERVED)

    def stream(self) -> None:
        """Sixteen tokens of somebody's answer."""
        place = self.dice.randrange(len(self.running))
        tokens = {"input_tokens": 0, "cached_tokens": 0, "output_tokens": 16}
        self.send("charge", self.scheduler.charge, self.running[place], **tokens)

    def expire(self) -> None:
        """Everybody's deadline at once; an event for each who waits."""
        self.clock.advance(2e6)
        self.events["expire"] = max(1, self.send("expire", self.scheduler.tick))

    def _draw(self, ids: list[str]) -> str:
        place = self.dice.randrange(len(ids))
        ids[place], ids[-1] = ids[-1], ids[place]
        return ids.pop()


def costs(setting: Setting, waiting: int) -> dict[str, float]:
    """Microseconds an event, by kind; those who arrive are there for the next two."""
    load = Load(setting, waiting)
    load.seconds.clear()
    load.events.clear()
    for _ in range(EVENTS // 4):
        load.arrive()
        load.give_up()
        load.arrive()
        load.serve()
    for _ in range(EVENTS):
        load.stream()
    load.expire()
    return {kind: 1e6 * load.seconds[kind] / load.events[kind] for kind in load.events}


def best_costs(setting: Setting, waiting: int) -> dict[str, float]:
    """The best of some rounds: what disturbs only adds."""
    rounds = [costs(setting, waiting) for _ in range(ROUNDS)]
    return {kind: min(each[kind] for each in rounds) for kind in rounds[0]}


def main(names: list[str]) -> int:
    print(f"{'us an event (events/s)':<32}" + "".join(f"{n:>10} waiting" for n in WAITING))
    worst = 0.0
    for name in names or SETTINGS:
        found = [best_costs(SETTINGS[name], waiting) for waiting in WAITING]
        for kind in found[0]:
            row = [each[kind] for each in found]
            worst = max(worst, *row)
            title = f"{name}: {kind}"
            print(f"{title:<32}" + "".join(f"{c:7.1f} ({1e6 / c:7.0f})  " for c in row), flush=True)
    print(f"worst {worst:.1f} us, bar {BAR_MICROSECONDS:.0f} us")
    return int(worst > BAR_MICROSECONDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
