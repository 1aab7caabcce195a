"""Clients, slots and virtual time: answers of random lengths at a constant pace.

Each request holds its slot for its answer's length times `GAP`, whatever else runs.  It tells of
its tokens every 32; the first comes as soon as it is granted.
"""

from __future__ import annotations

import random
from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING

from slotgate.core.decision import Decision, Ending, Granted, Refused
from slotgate.core.deployment import DeploymentReport, State
from slotgate.core.limits import Limits, TenantCaps
from slotgate.core.policies import Policies
from slotgate.core.scheduler import Scheduler
from slotgate.core.ticket import Ticket
from slotgate.testing import FakeClock, FakeDice

if TYPE_CHECKING:
    from collections.abc import Mapping

GAP = 0.05
CHARGE_EVERY = 32


class World:
    """One deployment, and what came of every request."""

    def __init__(
        self,
        *,
        slots: int = 8,
        seed: int = 1,
        admission: str = "expiry",
        fairness: str = "vtc",
        order: str = "fifo",
        caps: Mapping[str, TenantCaps] | None = None,
    ) -> None:
        self.dice = random.Random(seed)
        self.clock = FakeClock()
        self.scheduler = Scheduler(
            clock=self.clock,
            dice=FakeDice(),
            limits=Limits(max_waiting=100_000, tenants=caps or {}),
            policies=Policies.named(
                admission=admission,
                fairness=fairness,
                order=order,
                concurrency="fixed",
                kv="off",
            ),
        )
        # (time, number, ticket id, tokens to tell of, whether it ends then).
        self._agenda: list[tuple[float, int, str, int, bool]] = []
        self._number = 0
        # Ticket id -> the length of its answer; -> how long it waited; -> what was foretold.
        self.lengths: dict[str, int] = {}
        self.grants: dict[str, Granted] = {}
        self.refusals: dict[str, Refused] = {}
        self.running: dict[str, int] = {}
        self.scheduler.deployment(
            DeploymentReport(id="left", model="", slots=slots, state=State.READY)
        )

    def draw(self) -> int:
        """A length as of Azure's conversations."""
        return max(1, round(self.dice.lognormvariate(5.02, 0.86)))

    def submit(
        self,
        length: int,
        *,
        tenant: str = "chat",
        within: float = inf,
        bound: int | None = None,
        width: int = 1,
        reads: int = 0,
    ) -> str:
        """Ask for an answer of that length, and return the ticket's id."""
        self._number += 1
        now = self.clock.now()
        ticket = Ticket(
            id=f"t{self._number}",
            arrival=now,
            deadline=now + within,
            tenant=tenant,
            output_tokens=bound,
            width=width,
            input_tokens=reads,
        )
        self.lengths[ticket.id] = length
        self.take(self.scheduler.submit(ticket))
        return ticket.id

    def take(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            match decision:
                case Granted(ticket=ticket):
                    self.grants[ticket.id] = decision
                    self.running[ticket.id] = 0
                    self._tell(ticket.id, 1)
                case Refused(ticket=ticket):
                    self.refusals[ticket.id] = decision

    def _tell(self, ticket_id: str, tokens: int) -> None:
        self.running[ticket_id] += tokens
        ticket = self.grants[ticket_id].ticket
        decisions = self.scheduler.charge(
            ticket_id, input_tokens=0, cached_tokens=0, output_tokens=tokens * ticket.width
        )
        left = self.lengths[ticket_id] - self.running[ticket_id]
        following = min(CHARGE_EVERY, left)
        self._number += 1
        due = self.clock.now() + following * GAP
        heappush(self._agenda, (due, self._number, ticket_id, following, left <= 0))
        self.take(decisions)

    def step(self) -> str | None:
        """Let the next thing happen; return the ticket that ended by it."""
        due, _, ticket_id, tokens, is_end = heappop(self._agenda)
        self.clock.advance_to(due)
        if not is_end:
            self._tell(ticket_id, tokens)
            return None
        del self.running[ticket_id]
        self.take(self.scheduler.leave(ticket_id, Ending.SERVED))
        return ticket_id

    def run_until(self, time: float) -> None:
        """Let time pass."""
        while self._agenda and self._agenda[0][0] <= time:
            self.step()
        self.clock.advance_to(time)

    def run_out(self) -> None:
        """Let all end that run or wait."""
        while self._agenda:
            self.step()

    def predicted(self, ticket_id: str) -> float | None:
        """What was foretold for a ticket that waits."""
        waiting = self.scheduler.snapshot().waiting
        return next(view.predicted_wait for view in waiting if view.ticket.id == ticket_id)

    def teach(self, samples: list[int], tenant: str = "chat") -> None:
        """Answers one after the other: lengths and gaps are known then, and nobody has waited."""
        for sample in samples:
            self.submit(sample, tenant=tenant)
            self.run_out()
