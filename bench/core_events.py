"""What one event costs the scheduler, by how many wait: `python -m bench.core_events`.

Two settings: *plain*, one deployment and one tenant; *mixed*, four deployments of two sizes, twenty
tenants of which half have a cap, widths of 1 to 4 and prompts of which some fit the large slots
only.  The bar is 20 us an event with 10,000 waiting.
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from slotgate.core.decision import Decision, Ending, Granted
from slotgate.core.deployment import DeploymentReport, State
from slotgate.core.limits import Limits, TenantCaps
from slotgate.core.scheduler import Scheduler
from slotgate.core.ticket import Ticket
from slotgate.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WAITING = (0, 1_000, 10_000)
BAR_MICROSECONDS = 20.0
ROUNDS = 5
EVENTS = 4_000


@dataclass
class Load:
    """A scheduler with every slot taken, and so many waiting."""

    mixed: bool
    waiting: int

    def __post_init__(self) -> None:
        self.dice = random.Random(7)
        self.clock = FakeClock()
        caps = {f"tenant{n}": TenantCaps(max_in_flight=2) for n in range(0, 20, 2)}
        limits = Limits(max_waiting=1_000_000, tenants=caps if self.mixed else {})
        self.scheduler = Scheduler(clock=self.clock, dice=self.dice, limits=limits)
        self.count = 0
        self.running: list[str] = []
        self.queue: list[str] = []
        for place in range(4 if self.mixed else 1):
            report = DeploymentReport(
                id=f"backend{place}",
                model="m",
                slots=4 if place % 2 else 8,
                state=State.READY,
                ctx_per_slot=4096 if place % 2 else 8192,
            )
            self.scheduler.deployment(report)
        while self.scheduler.counts().waiting < self.waiting or self.scheduler.counts().idle:
            self.submit()
        while self.scheduler.counts().waiting > self.waiting:
            self.abandon()

    def ticket(self) -> Ticket:
        self.count += 1
        now = self.clock.now()
        ticket_id, deadline = f"t{self.count}", now + 1e6 + self.dice.random()
        if not self.mixed:
            return Ticket(id=ticket_id, arrival=now, deadline=deadline, model="m")
        return Ticket(
            id=ticket_id,
            arrival=now,
            deadline=deadline,
            model="m",
            tenant=f"tenant{self.dice.randrange(20)}",
            width=self.dice.choice((1, 1, 1, 1, 2, 4)),
            input_tokens=self.dice.choice((100, 1000, 6000)),
        )

    def note(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            if isinstance(decision, Granted):
                self.running.append(decision.ticket.id)

    def submit(self) -> None:
        ticket = self.ticket()
        self.queue.append(ticket.id)
        self.note(self.scheduler.submit(ticket))

    def abandon(self) -> None:
        """Somebody in the middle of the queue leaves."""
        while True:
            place = self.dice.randrange(len(self.queue))
            self.queue[place], self.queue[-1] = self.queue[-1], self.queue[place]
            ticket_id = self.queue.pop()
            if self.scheduler.is_waiting(ticket_id):
                self.note(self.scheduler.leave(ticket_id, Ending.ABANDONED))
                return

    def serve(self) -> None:
        """Somebody has been served, and the next is granted."""
        ticket_id = self.running.pop(self.dice.randrange(len(self.running)))
        self.note(self.scheduler.leave(ticket_id, Ending.SERVED))


def timed(act: Callable[[], None], times: int) -> float:
    began = perf_counter()
    for _ in range(times):
        act()
    return (perf_counter() - began) / times


def arrive_and_give_up(load: Load) -> float:
    """A newcomer, and one that leaves from the middle."""

    def act() -> None:
        load.submit()
        load.abandon()

    return timed(act, EVENTS // 2) / 2


def arrive_and_be_served(load: Load) -> float:
    """A newcomer, and the end of a request, which lets the next one run."""

    def act() -> None:
        load.submit()
        load.serve()

    return timed(act, EVENTS // 2) / 2


def charge(load: Load) -> float:
    """Tokens streamed."""
    ticket_id = load.running[0]

    def act() -> None:
        load.scheduler.charge(ticket_id, input_tokens=0, cached_tokens=0, output_tokens=1)

    return timed(act, EVENTS)


def expire(load: Load) -> float:
    """Everybody's deadline at once, for each who waits."""
    load.clock.advance(2e6)
    began = perf_counter()
    expired = len(load.scheduler.tick())
    return (perf_counter() - began) / max(1, expired)


SCENES = (arrive_and_give_up, arrive_and_be_served, charge, expire)


def best(scene: Callable[[Load], float], *, mixed: bool, waiting: int) -> float:
    """Microseconds an event, the best of some rounds: what disturbs only adds."""
    return 1e6 * min(scene(Load(mixed, waiting)) for _ in range(ROUNDS))


def main() -> int:
    print(f"{'us an event (events/s)':<32}" + "".join(f"{n:>10} waiting" for n in WAITING))
    worst = 0.0
    for mixed in (False, True):
        for scene in SCENES:
            name = f"{'mixed' if mixed else 'plain'}: {scene.__name__.replace('_', ' ')}"
            costs = [best(scene, mixed=mixed, waiting=waiting) for waiting in WAITING]
            worst = max(worst, *costs)
            print(f"{name:<32}" + "".join(f"{c:7.1f} ({1e6 / c:7.0f})  " for c in costs))
    print(f"worst {worst:.1f} us, bar {BAR_MICROSECONDS:.0f} us")
    return int(worst > BAR_MICROSECONDS)


if __name__ == "__main__":
    sys.exit(main())
