"""What the stub saw: for tests of those who talk to it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


MAX_RECORDS = 10_000


class Outcome(StrEnum):
    """How a request ended."""

    COMPLETED = "completed"  # its whole answer was given, whatever the status
    ABANDONED = "abandoned"  # its client left before
    BROKEN = "broken"  # the stub broke it off, as told


@dataclass(slots=True, kw_only=True)
class RequestRecord:
    """One request for a slot.  Times are of the event loop; None: not yet, or never.

    `cancelled_at` is when the simulated server had noticed the client's leaving and its slots were
    free; for a zombie it comes late.
    """

    number: int
    path: str
    headers: Mapping[str, str]
    body: bytes
    arrived_at: float
    started_at: float | None = None
    first_token_at: float | None = None
    ended_at: float | None = None
    cancelled_at: float | None = None
    status: int | None = None
    output_tokens: int = 0
    outcome: Outcome | None = None


@dataclass(slots=True)
class Observed:
    """Requests for slots since the start; `records` are the last ones, in order of arrival.

    `in_flight` counts those whose client still waits; `cancelled` those that the server gave up
    because theirs had left, and whose slots are free again; `deferred` the tasks that it put off,
    which a good gateway never lets happen; `wakes` how often it was woken from sleep.  `asked` are
    the last requests of all kinds that had a right key: path, without the prefix, and time.
    """

    records: deque[RequestRecord] = field(default_factory=lambda: deque(maxlen=MAX_RECORDS))
    in_flight: int = 0
    max_in_flight: int = 0
    deferred: int = 0
    max_deferred: int = 0
    connections: int = 0
    requests: int = 0
    completed: int = 0
    abandoned: int = 0
    broken: int = 0
    cancelled: int = 0
    wakes: int = 0
    asked: deque[tuple[str, float]] = field(default_factory=lambda: deque(maxlen=MAX_RECORDS))
    last_ended_at: float = 0.0

    def add(self, record: RequestRecord) -> None:
        self.records.append(record)
        self.requests += 1
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)

    def end(self, record: RequestRecord, outcome: Outcome, now: float) -> None:
        if record.outcome is not None:
            return
        record.outcome = outcome
        record.ended_at = self.last_ended_at = now
        self.in_flight -= 1
        self.completed += outcome is Outcome.COMPLETED
        self.abandoned += outcome is Outcome.ABANDONED
        self.broken += outcome is Outcome.BROKEN

    def cancel(self, record: RequestRecord, now: float) -> None:
        record.cancelled_at = now
        self.cancelled += 1
