"""One request in a simulation, and each attempt at it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.load.record import Outcome, Record

if TYPE_CHECKING:
    from slotgate.load.arrival import Arrival


class Request:
    """What a client wants, and what has come of it so far."""

    __slots__ = (
        "arrival",
        "attempt",
        "attempts",
        "ended_at",
        "first_token_at",
        "input_done",
        "number",
        "outcome",
        "output_done",
        "predicted_wait",
        "reason",
        "refused_after",
        "retry_after",
        "sent_at",
        "tpot",
        "waited",
    )

    def __init__(self, arrival: Arrival, number: int) -> None:
        self.arrival = arrival
        self.number = number
        self.attempts = 0
        self.attempt: Attempt | None = None  # the one that is under way
        self.outcome: Outcome | None = None  # once it has ended
        self.sent_at = 0.0  # the last attempt
        self.ended_at = 0.0
        self.first_token_at: float | None = None
        self.tpot: float | None = None
        self.waited: float | None = None
        self.predicted_wait: float | None = None
        self.reason = ""
        self.retry_after: float | None = None
        self.refused_after: float | None = None
        self.input_done = self.output_done = 0

    def end(self, outcome: Outcome, now: float) -> None:
        self.attempt = None
        self.outcome = outcome
        self.ended_at = now

    def record(self) -> Record:
        """What became of it; ValueError while nothing has."""
        if self.outcome is None:
            raise ValueError(f"request {self.number} has not ended")
        first = self.first_token_at
        return Record(
            arrival=self.arrival,
            outcome=self.outcome,
            attempts=self.attempts,
            reason=self.reason,
            ttft=None if first is None else first - self.arrival.at,
            tpot=self.tpot,
            ended_at=self.ended_at,
            waited=self.waited,
            predicted_wait=self.predicted_wait,
            input_done=self.input_done,
            output_done=self.output_done,
            retry_after=self.retry_after,
            refused_after=self.refused_after,
            last_ttft=None if first is None else first - self.sent_at,
        )


class Attempt:
    """One try: a ticket to the scheduler and a job to a server.

    `backend` and `lease` are set by the grant, `started_at` when a slot began with it.
    """

    __slots__ = ("backend", "id", "lease", "output_tokens", "request", "sent_at", "started_at")

    def __init__(self, request: Request, now: float) -> None:
        request.attempts += 1
        request.sent_at = now
        self.request = request
        self.id = f"{request.number}.{request.attempts}"
        self.sent_at = now
        self.backend: int | None = None
        self.lease = ""
        self.started_at: float | None = None
        self.output_tokens = 0  # that the server has told of
