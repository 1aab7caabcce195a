"""Those who wait for results, one a request, and when they look whether their client is there.

llama-server's HTTP threads wait for results on one condition variable.  *Any* result wakes them all
and starts a full second of waiting anew, and only when that second passes in silence does a thread
look at its socket.  So one busy stream, or a poll of `/slots` more often than once a second, keeps
the others from noticing that their clients left.  A stream looks besides whenever it has written
something of its own.
"""

from __future__ import annotations

from math import ceil, floor, inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

    from slotgate.slotsim.job import Job

LOOK_SECONDS = 1.0
"""A reader looks at its socket after this much silence."""


class Reader:
    """The wait for one job's results."""

    __slots__ = (
        "answered",
        "cancelled",
        "gone_at",
        "has_parted",
        "input_tokens",
        "job",
        "open_tasks",
        "output_tokens",
        "since",
    )

    def __init__(self, job: Job, now: float) -> None:
        self.job = job
        self.since = now  # of its last result
        self.open_tasks = len(job.prompts) * job.n
        self.input_tokens = self.output_tokens = 0  # what its released slots did
        self.answered = False  # something was sent: for a stream, its head
        self.gone_at: float | None = None
        self.cancelled = False  # it takes no more results
        self.has_parted = False  # and has told the loop so

    def looks_at(self, quiet_since: float) -> float:
        """When it notices that its client left."""
        if self.gone_at is None:
            return inf
        anchor = max(quiet_since, self.since)
        return anchor + LOOK_SECONDS * max(1, ceil((self.gone_at - anchor) / LOOK_SECONDS))

    def pings_at(self, quiet_since: float) -> float:
        """When it sends a comment: at the first look after more than its interval of silence."""
        interval = self.job.ping_interval
        if not (self.job.stream and self.answered) or interval <= 0:
            return inf
        anchor = max(quiet_since, self.since)
        silent = self.since + interval - anchor
        return anchor + LOOK_SECONDS * max(1, floor(silent / LOOK_SECONDS) + 1)


class Readers:
    """All the readers, and the last moment at which any result was sent."""

    def __init__(self, now: float) -> None:
        self._waiting: dict[Hashable, Reader] = {}
        self._quiet_since = now
        self.gone = 0  # how many of them have lost their client

    def add(self, job: Job, now: float) -> Reader:
        if job.id in self._waiting:
            raise ValueError(f"job {job.id!r} is here already")
        reader = self._waiting[job.id] = Reader(job, now)
        return reader

    def find(self, job_id: Hashable) -> Reader | None:
        return self._waiting.get(job_id)

    def leave(self, reader: Reader, now: float) -> None:
        """Its client left; it does not know yet."""
        if reader.gone_at is None:
            reader.gone_at = now
            self.gone += 1

    def cancel(self, reader: Reader) -> None:
        """It gives up."""
        reader.cancelled = True
        self.remove(reader)

    def remove(self, reader: Reader) -> None:
        if self._waiting.pop(reader.job.id, None) is not None:
            self.gone -= reader.gone_at is not None

    def notify(self, now: float) -> None:
        """Some result was sent."""
        self._quiet_since = now

    def earliest_look(self) -> float:
        """Nothing that a look can bring about happens before this."""
        return self._quiet_since + LOOK_SECONDS

    def next_look(self) -> float:
        """When the next look is that has a consequence."""
        return min(map(self._look_of, self._waiting.values()), default=inf)

    def next_to_look(self) -> Reader:
        return min(self._waiting.values(), key=self._look_of)

    def _look_of(self, reader: Reader) -> float:
        quiet = self._quiet_since
        return min(reader.looks_at(quiet), reader.pings_at(quiet))
