"""The clients: they send, wait, lose patience, come back when told to, and hang up.

A client leaves `patience` seconds after its first attempt if no first token has come, and
`leaves_after` seconds after it whatever has.  Who is refused comes back as its SDK would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from slotgate.core import Reason
from slotgate.load.record import Outcome, Record
from slotgate.sim.requests import Attempt, Request

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from slotgate.load.arrival import Arrival
    from slotgate.sim.agenda import Agenda
    from slotgate.sim.clock import VirtualClock
    from slotgate.sim.front import Front


class BackOff(Protocol):
    """What an SDK does with a refusal."""

    def delay(self, attempt: int, retry_after: float | None) -> float | None:
        """Seconds until the next attempt after the `attempt`-th was refused; None: it gives up."""


class NoRetries:
    """Takes the first refusal for final."""

    def delay(self, attempt: int, retry_after: float | None) -> float | None:  # noqa: ARG002
        return None


class Clients:
    """Everybody who asks for something.  `front` is to be set before the first arrival."""

    front: Front

    def __init__(self, *, agenda: Agenda, clock: VirtualClock, back_off: BackOff) -> None:
        self._agenda = agenda
        self._clock = clock
        self._back_off = back_off
        self._requests: list[Request] = []
        self._coming: Iterator[Arrival] = iter(())

    def expect(self, arrivals: Iterable[Arrival]) -> None:
        """Let these come, each at its time; they must be in order of it."""
        self._coming = iter(arrivals)
        self._expect_next()

    def records(self) -> list[Record]:
        """What became of each request, by arrival; ValueError if one has not ended."""
        return [request.record() for request in self._requests]

    # What clients do.

    def _expect_next(self) -> None:
        arrival = next(self._coming, None)
        if arrival is not None:
            self._agenda.note(arrival.at, self._arrive, arrival)

    def _arrive(self, arrival: Arrival) -> None:
        self._expect_next()
        request = Request(arrival, len(self._requests))
        self._requests.append(request)
        self._agenda.note(arrival.at + arrival.patience, self._lose_patience, request)
        if arrival.leaves_after is not None:
            self._agenda.note(arrival.at + arrival.leaves_after, self._leave, request)
        self._send(request)

    def _send(self, request: Request) -> None:
        if request.outcome is None:
            request.attempt = Attempt(request, self._clock.now())
            self.front.submit(request.attempt)

    def _lose_patience(self, request: Request) -> None:
        if request.first_token_at is None:
            self._leave(request)

    def _leave(self, request: Request) -> None:
        if request.outcome is not None:
            return
        attempt = request.attempt
        if attempt is None:  # it was refused, and does not come back any more
            request.end(_outcome_of(request.reason), self._clock.now())
        else:
            request.end(Outcome.ABANDONED, self._clock.now())
            self.front.leave(attempt)

    # What clients are told.

    def has_begun(self, attempt: Attempt) -> None:
        request = attempt.request
        if request.outcome is None and request.first_token_at is None:
            request.first_token_at = self._clock.now()

    def is_served(self, attempt: Attempt, output_tokens: int) -> None:
        request = attempt.request
        if request.outcome is not None:
            return
        ended_at, first = self._clock.now(), request.first_token_at
        if first is not None:
            rate = request.arrival.reading_rate
            if rate is not None:
                ended_at = max(ended_at, first + output_tokens / rate)
            if output_tokens > 1:
                request.tpot = (ended_at - first) / (output_tokens - 1)
        request.end(Outcome.SERVED, ended_at)

    def is_refused(self, attempt: Attempt, reason: str, retry_after: float | None) -> None:
        request = attempt.request
        if request.outcome is not None:
            return
        request.attempt = None
        request.reason, request.retry_after = reason, retry_after
        if request.refused_after is None:
            request.refused_after = self._clock.now() - attempt.sent_at
        delay = self._back_off.delay(request.attempts, retry_after)
        if delay is None:
            request.end(_outcome_of(reason), self._clock.now())
        else:
            self._agenda.note(self._clock.now() + delay, self._send, request)

    def has_failed(self, attempt: Attempt, reason: str) -> None:
        request = attempt.request
        if request.outcome is None:
            request.reason = reason
            request.end(Outcome.FAILED, self._clock.now())


def _outcome_of(reason: str) -> Outcome:
    return Outcome.EXPIRED if reason == Reason.QUEUE_TIMEOUT else Outcome.REFUSED
