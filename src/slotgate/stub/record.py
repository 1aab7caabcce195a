"""What the stub saw: for tests of those who talk to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


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
    """All requests for slots since the start, in the order of their arrival.

    `in_flight` counts those whose client still waits; `deferred` those that the simulated server
    put off, which a good gateway never lets happen.
    """

    records: list[RequestRecord] = field(default_factory=list)
    in_flight: int = 0
    max_in_flight: int = 0
    deferred: int = 0
    max_deferred: int = 0
    connections: int = 0

    @property
    def completed(self) -> int:
        return self._count(Outcome.COMPLETED)

    @property
    def abandoned(self) -> int:
        return self._count(Outcome.ABANDONED)

    @property
    def cancelled(self) -> int:
        """Abandoned ones whose slots are known to be free."""
        return sum(record.cancelled_at is not None for record in self.records)

    def add(self, record: RequestRecord) -> None:
        self.records.append(record)
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)

    def end(self, record: RequestRecord, outcome: Outcome, now: float) -> None:
        if record.outcome is None:
            record.outcome = outcome
            record.ended_at = now
            self.in_flight -= 1

    def _count(self, outcome: Outcome) -> int:
        return sum(record.outcome is outcome for record in self.records)
