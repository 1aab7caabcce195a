"""A simulated server whose slots share their KV cache, and clients who always want more of it.

The scheduler is the real one, the server is simulated in virtual time: it reads, writes, and ends
all that it runs when the pool overflows.  The mix is of four kinds of requests, each of a tenant of
its own, with the lengths of public traces (Azure's conversation and code) and of summaries and
long reasoning.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from slotgate.core.decision import Decision, Ending, Granted
from slotgate.core.deployment import DeploymentReport, State
from slotgate.core.limits import Limits
from slotgate.core.scheduler import Scheduler
from slotgate.core.ticket import Ticket
from slotgate.slotsim import (
    Failed,
    Finished,
    Generated,
    Job,
    Pace,
    Prompt,
    ServerSpec,
    SimulatedServer,
)
from slotgate.testing import FakeClock, FakeDice

if TYPE_CHECKING:
    from slotgate.core.policies import Policies
    from slotgate.slotsim import Event

CHARGE_EVERY = 16
LONGEST_PROMPT = 4096


class Kind(NamedTuple):
    """A kind of requests: mean and deviation of the logarithms of prompts and answers."""

    input_mu: float
    input_sigma: float
    output_mu: float
    output_sigma: float


KINDS = {
    "chat": Kind(6.63, 0.99, 5.02, 0.86),
    "code": Kind(7.00, 1.36, 2.79, 0.85),
    "summary": Kind(7.80, 0.50, 5.50, 0.50),
    "reason": Kind(5.50, 0.80, 6.90, 0.60),
}


@dataclass
class Outcome:
    """What came of it, in tokens and in requests."""

    seconds: float = 0.0
    good: int = 0
    wasted: int = 0
    kills: int = 0
    served: int = 0
    cut: int = 0
    most_held: int = 0
    running: list[int] = field(default_factory=list)

    @property
    def goodput(self) -> float:
        """Output tokens of whole answers, a second."""
        return self.good / self.seconds

    @property
    def wasted_part(self) -> float:
        """The part of all output tokens that belonged to answers which ended in an error."""
        return self.wasted / max(1, self.good + self.wasted)

    @property
    def cut_part(self) -> float:
        """The part of the answers that the gateway made shorter."""
        return self.cut / max(1, self.served)


@dataclass
class Client:
    """What one request wants, and what it has got."""

    ticket: Ticket
    prompt: int
    natural: int
    bound: int = 0
    written: int = 0
    charged: int = 0


class Backlog:
    """Keeps so many requests waiting, all the time."""

    def __init__(
        self,
        policies: Policies,
        *,
        slots: int = 8,
        pool: int = 12_288,
        max_tokens: int | None = 4096,
        waiting: int = 16,
        knows_prompts: bool = True,
        seed: int = 1,
        kinds: dict[str, Kind] | None = None,
    ) -> None:
        self.outcome = Outcome()
        self._dice = random.Random(seed)
        self._kinds = kinds or KINDS
        self._clock = FakeClock()
        self._pool = pool
        self._max_tokens = max_tokens
        self._waiting = waiting
        self._knows_prompts = knows_prompts
        self._scheduler = Scheduler(
            clock=self._clock, dice=FakeDice(), limits=Limits(), policies=policies
        )
        pace = Pace.linear(0.015, 0.0012, slots=slots, prefill=8000)
        self._server = SimulatedServer(ServerSpec(slots=slots, ctx=pool, pace=pace, pool=pool))
        self._count = 0
        # Ticket id -> its client: those that wait, and those that run.
        self._queue: dict[str, Client] = {}
        self._running: dict[str, Client] = {}
        report = DeploymentReport(
            id="left",
            model="m",
            slots=slots,
            state=State.READY,
            ctx_per_slot=pool,
            kv_pool_tokens=pool,
        )
        self._carry_out(self._scheduler.deployment(report))

    def run(self, seconds: float) -> Outcome:
        """Let so much time pass."""
        self._fill_up()
        until = self._clock.now() + seconds
        while (due := min(self._server.next_event_time(), until)) < until:
            for event in self._server.advance(due):
                self._clock.advance_to(max(self._clock.now(), event.at))
                self._take(event)
            self._fill_up()
        self._clock.advance_to(until)
        self.outcome.seconds += seconds
        return self.outcome

    def _fill_up(self) -> None:
        while len(self._queue) < self._waiting:
            client = self._new_client()
            self._queue[client.ticket.id] = client
            self._carry_out(self._scheduler.submit(client.ticket))

    def _new_client(self) -> Client:
        self._count += 1
        name = self._dice.choice(sorted(self._kinds))
        kind = self._kinds[name]
        prompt = round(self._dice.lognormvariate(kind.input_mu, kind.input_sigma))
        prompt = min(LONGEST_PROMPT, max(1, prompt))
        # Estimates are a little off, both ways.
        told = prompt if self._knows_prompts else round(prompt * self._dice.uniform(0.85, 1.2))
        ticket = Ticket(
            id=f"t{self._count}",
            arrival=self._clock.now(),
            deadline=inf,
            tenant=name,
            model="m",
            input_tokens=max(1, told),
            input_is_exact=self._knows_prompts,
            output_tokens=self._max_tokens,
        )
        natural = round(self._dice.lognormvariate(kind.output_mu, kind.output_sigma))
        return Client(ticket, prompt, max(1, natural))

    def _carry_out(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            assert isinstance(decision, Granted), decision
            self._start(decision)

    def _start(self, granted: Granted) -> None:
        client = self._queue.pop(granted.ticket.id)
        self._running[granted.ticket.id] = client
        self.outcome.running.append(len(self._running))
        bounds = (granted.output_clamp, self._max_tokens, self._pool)
        client.bound = min(bound for bound in bounds if bound is not None)
        job = Job(
            id=granted.ticket.id,
            prompts=(Prompt(client.prompt),),
            stream=True,
            max_tokens=client.bound,
            natural_tokens=client.natural,
        )
        self._server.submit(job, self._clock.now())

    def _take(self, event: Event) -> None:
        ticket_id = str(event.job)
        match event:
            case Generated(count=count):
                client = self._running[ticket_id]
                client.written += count
                if client.written == 1 or client.written - client.charged >= CHARGE_EVERY:
                    self._charge(client)
            case Finished():
                self._finish(self._running.pop(ticket_id))
            case Failed():
                self._fail(self._running.pop(ticket_id))

    def _charge(self, client: Client) -> None:
        output, client.charged = client.written - client.charged, client.written
        decisions = self._scheduler.charge(
            client.ticket.id,
            input_tokens=client.prompt if client.written == output else 0,
            cached_tokens=0,
            output_tokens=output,
        )
        # What is still to be read counts too: it will be in the cache soon.
        held = sum(each.prompt + each.written for each in self._running.values()) + (
            0 if client.ticket.id in self._running else client.prompt + client.written
        )
        self.outcome.most_held = max(self.outcome.most_held, held)
        self._carry_out(decisions)

    def _finish(self, client: Client) -> None:
        self._charge(client)
        self.outcome.good += client.written
        self.outcome.served += 1
        wanted = min(client.natural, self._max_tokens or self._pool)
        self.outcome.cut += client.written < min(wanted, self._pool - client.prompt)
        self._carry_out(self._scheduler.leave(client.ticket.id, Ending.SERVED))

    def _fail(self, client: Client) -> None:
        self.outcome.wasted += client.written
        self.outcome.kills += 1
        decisions = self._scheduler.leave(client.ticket.id, Ending.FAILED, slot_free=True)
        self._carry_out(decisions)


def count_running(outcome: Outcome) -> Counter[int]:
    """How often so many ran at once, as of each grant."""
    return Counter(outcome.running)
