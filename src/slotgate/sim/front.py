"""What stands between clients and servers: nothing, or the gateway.

Both tell the clients the same things and keep the same books, so that they can be compared.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from typing_extensions import override

from slotgate.sim.backends import Backends
from slotgate.sim.spreads import InTurn
from slotgate.slotsim import Cancelled, Failed, Finished, Generated, Job, Prompt, Started

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slotgate.load.arrival import Arrival
    from slotgate.sim.agenda import Agenda
    from slotgate.sim.clock import VirtualClock
    from slotgate.sim.metering import Meter
    from slotgate.sim.requests import Attempt
    from slotgate.sim.spreads import Spread
    from slotgate.slotsim import Event, ServerSpec

REPORT_EVERY = 16
"""Tokens of a stream between two charges, as the gateway's own."""
TOKENS_PER_BYTE = 4
"""Of the text by which sessions are told apart: it needs no more."""


class Audience(Protocol):
    """Whoever is told what became of an attempt: the clients."""

    def has_begun(self, attempt: Attempt) -> None: ...

    def is_served(self, attempt: Attempt, output_tokens: int) -> None: ...

    def is_refused(self, attempt: Attempt, reason: str, retry_after: float | None) -> None: ...

    def has_failed(self, attempt: Attempt, reason: str, *, is_first: bool) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What a front is set up on; requests are offered `until` then."""

    specs: Sequence[ServerSpec]
    agenda: Agenda
    clock: VirtualClock
    audience: Audience
    until: float
    meter: Meter


def prompt_of(arrival: Arrival) -> Prompt:
    """Make a prompt that has as much in common with others of its session as it should."""
    if not arrival.session:
        return Prompt(arrival.input_tokens)
    asked = arrival.input_tokens // TOKENS_PER_BYTE
    said = asked + arrival.wanted_tokens // TOKENS_PER_BYTE
    name = f"{arrival.session} ".encode()
    text = name * (said // len(name) + 1)
    return Prompt(arrival.input_tokens, text[:asked], text[asked:said])


class SlotSeconds:
    """How long slots were busy, up to the end of the load; what ends after it counts in part."""

    def __init__(self, until: float) -> None:
        self._until = until
        self.busy = 0.0

    def add(self, attempt: Attempt, now: float) -> None:
        if attempt.started_at is not None:
            seconds = min(now, self._until) - attempt.started_at
            self.busy += max(0.0, seconds) * attempt.request.arrival.width


class Front(ABC):
    """Takes attempts, and turns what the servers say into what clients are told."""

    def __init__(self, stage: Stage) -> None:
        self.clock = stage.clock
        self.agenda = stage.agenda
        self.audience = stage.audience
        self.slot_seconds = SlotSeconds(stage.until)
        self.backends = Backends(
            stage.specs, agenda=stage.agenda, clock=stage.clock, deliver=self._hear
        )

    # For the clients.

    @abstractmethod
    def submit(self, attempt: Attempt) -> None: ...

    @abstractmethod
    def leave(self, attempt: Attempt) -> None:
        """The client hangs up, while its attempt is under way."""

    # For the kinds of fronts.

    def start(self, attempt: Attempt, backend: int, *, clamp: int | None = None) -> None:
        arrival = attempt.request.arrival
        attempt.backend = backend
        bounds = [bound for bound in (arrival.max_tokens, clamp) if bound is not None]
        job = Job(
            id=attempt,
            prompts=(prompt_of(arrival),),
            stream=True,
            max_tokens=min(bounds, default=None),
            natural_tokens=arrival.output_tokens,
            n=arrival.width,
            report_every=REPORT_EVERY,
        )
        self.backends.submit(backend, job)

    @abstractmethod
    def on_tokens(self, attempt: Attempt, count: int) -> None:
        """So many tokens have been streamed for the attempt."""

    @abstractmethod
    def on_finished(self, attempt: Attempt, finished: Finished) -> None:
        """All of its answers are complete."""

    @abstractmethod
    def on_failed(self, attempt: Attempt) -> None:
        """Its server answered with an error, or broke off its stream."""

    @abstractmethod
    def on_cancelled(self, attempt: Attempt) -> None:
        """Its server has noticed that the client left, and the slot is free."""

    # What the servers say.

    def _hear(self, event: Event) -> None:
        attempt = cast("Attempt", event.job)
        match event:
            case Generated():
                self._hear_tokens(attempt, event)
            case Finished() if event.is_last:
                self._hear_finished(attempt, event)
            case Started():
                if attempt.started_at is None:
                    attempt.started_at = event.at
            case Cancelled():
                self._close(attempt, event.input_tokens, event.output_tokens)
                self.on_cancelled(attempt)
            case Failed():
                self._close(attempt, event.input_tokens, event.output_tokens)
                self.on_failed(attempt)
                self.audience.has_failed(attempt, event.fault.value, is_first=event.is_first)

    def _hear_tokens(self, attempt: Attempt, event: Generated) -> None:
        is_first = attempt.output_tokens == 0
        attempt.output_tokens += event.count
        self.on_tokens(attempt, event.count)
        if is_first:
            self.audience.has_begun(attempt)

    def _hear_finished(self, attempt: Attempt, event: Finished) -> None:
        result = event.result
        self._close(attempt, result.prompt_tokens - result.cached_tokens, attempt.output_tokens)
        self.on_finished(attempt, event)
        self.audience.is_served(attempt, attempt.output_tokens)

    def _close(self, attempt: Attempt, input_tokens: int, output_tokens: int) -> None:
        attempt.request.input_done += input_tokens
        attempt.request.output_done += output_tokens
        self.slot_seconds.add(attempt, self.clock.now())


class Bare(Front):
    """No gateway: each server gets its share of the requests, and puts off what it cannot run."""

    def __init__(self, stage: Stage, spread: Spread | None = None) -> None:
        super().__init__(stage)
        self._spread = spread or InTurn()
        # By server: the requests that it has.
        self._loads = [0] * len(stage.specs)

    @override
    def submit(self, attempt: Attempt) -> None:
        backend = self._spread.choose(attempt.request, self._loads)
        self._loads[backend] += 1
        self.start(attempt, backend)

    @override
    def leave(self, attempt: Attempt) -> None:
        if attempt.backend is not None:
            self.backends.disconnect(attempt.backend, attempt)

    @override
    def on_tokens(self, attempt: Attempt, count: int) -> None: ...

    @override
    def on_finished(self, attempt: Attempt, finished: Finished) -> None:
        self._ended(attempt)

    @override
    def on_failed(self, attempt: Attempt) -> None:
        self._ended(attempt)

    @override
    def on_cancelled(self, attempt: Attempt) -> None:
        self._ended(attempt)

    def _ended(self, attempt: Attempt) -> None:
        if attempt.backend is not None:
            self._loads[attempt.backend] -= 1
        if attempt.started_at is not None:
            attempt.request.waited = attempt.started_at - attempt.sent_at
