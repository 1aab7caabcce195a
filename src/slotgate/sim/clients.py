"""The clients: they send, wait, lose patience, come back when told to, and hang up.

A client leaves `patience` seconds after the start of an attempt if no first token has come, as
SDKs time out, and `leaves_after` seconds after the first attempt whatever has.  Who is refused
comes back as its SDK would.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from slotgate.core import Reason
from slotgate.load.backoff import Refusal, delay_seconds
from slotgate.load.record import Outcome
from slotgate.sim.requests import Attempt, Request

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from slotgate.load.arrival import Arrival
    from slotgate.load.backoff import ClientKind
    from slotgate.load.dice import Dice
    from slotgate.load.record import Record
    from slotgate.sim.agenda import Agenda
    from slotgate.sim.clock import VirtualClock
    from slotgate.sim.front import Front


# The status of refusals that coming back does not mend; any other is 429, or 503.
_FINAL = {
    Reason.CONTEXT_LENGTH_EXCEEDED: 400,
    Reason.INVALID_REQUEST: 400,
    Reason.MODEL_NOT_FOUND: 404,
}
_REFUSALS = frozenset(Reason)
_BUSY = 429
_BROKEN = 500


class BackOff(Protocol):
    """What a client's SDK does with a refusal."""

    def __call__(self, attempts: int, refusal: Refusal) -> float | None:
        """Seconds from the last of so many refused attempts to the next; None: it gives up."""


def back_off_of(kind: ClientKind, dice: Dice) -> BackOff:
    """Follow the rules of an SDK."""
    return lambda attempts, refusal: delay_seconds(kind, attempts, refusal, dice)


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
            self._agenda.note(arrival.at, self._arrive_and_expect, arrival)

    def _arrive_and_expect(self, arrival: Arrival) -> None:
        self._expect_next()
        self._arrive(arrival)

    def _arrive(self, arrival: Arrival) -> None:
        request = Request(arrival, len(self._requests))
        self._requests.append(request)
        if arrival.leaves_after is not None:
            self._agenda.note(arrival.at + arrival.leaves_after, self._leave, request)
        self._send(request)

    def _send(self, request: Request) -> None:
        if request.outcome is None:
            now = self._clock.now()
            request.attempt = attempt = Attempt(request, now)
            self._agenda.note(now + request.arrival.patience, self._lose_patience, attempt)
            self.front.submit(attempt)

    def _lose_patience(self, attempt: Attempt) -> None:
        request = attempt.request
        if request.attempt is attempt and request.first_token_at is None:
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
        if (then := request.arrival.then) is not None:
            following = replace(then, at=ended_at + then.at)
            self._agenda.note(following.at, self._arrive, following)

    def is_refused(self, attempt: Attempt, reason: str, retry_after: float | None) -> None:
        request = attempt.request
        if request.outcome is None:
            request.retry_after = retry_after
            if request.refused_after is None:
                request.refused_after = self._clock.now() - attempt.sent_at
            status = _FINAL.get(Reason(reason), _BUSY)
            self._come_back(request, reason, Refusal(status, retry_after))

    def has_failed(self, attempt: Attempt, reason: str, *, is_first: bool) -> None:
        """An error in the middle of a stream is not tried again by any SDK."""
        request = attempt.request
        if request.outcome is not None:
            return
        if is_first:
            self._come_back(request, reason, Refusal(_BROKEN))
        else:
            request.reason = reason
            request.end(Outcome.FAILED, self._clock.now())

    def _come_back(self, request: Request, reason: str, refusal: Refusal) -> None:
        now = self._clock.now()
        request.attempt, request.reason = None, reason
        delay = self._back_off(request.attempts, refusal)
        if delay is None:
            request.end(_outcome_of(reason), now)
        else:
            self._agenda.note(now + delay, self._send, request)


def _outcome_of(reason: str) -> Outcome:
    if reason == Reason.QUEUE_TIMEOUT:
        return Outcome.EXPIRED
    return Outcome.REFUSED if reason in _REFUSALS else Outcome.FAILED
