"""Sends a workload to a server over real sockets, each request when it is due.

Rule 1: the schedule is the workload's.  A slow server delays no arrival, or the load would shrink
        just when it is too much (an open loop).
Rule 2: everything is bounded: open requests, their number, and the time after the last arrival.
Rule 3: whoever is cut short is counted as abandoned and mentioned; nobody is left out.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from slotgate.load.numbers import quantile
from slotgate.load.record import Outcome
from slotgate.load.visit import Visit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slotgate.load.arrival import Arrival
    from slotgate.load.record import Record
    from slotgate.load.visit import Visiting

# A generator that is later than this with one arrival of a hundred measures itself.
_LATE_SECONDS: Final = 0.05
# Opening a connection for each of very many arrivals at one moment takes turns of the loop.
_START_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """`open` requests at once, `drain_seconds` after the last arrival."""

    open: int = 5000
    drain_seconds: float = 60.0


@dataclass(slots=True)
class Gathered:
    """What a load gave, how long requests were offered, and what the reader must know of it."""

    records: list[Record] = field(default_factory=list)
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)
    was_stopped: bool = False


class Generator:
    """Sends one workload, once."""

    def __init__(self, shared: Visiting, bounds: Bounds) -> None:
        self._shared = shared
        self._bounds = bounds
        self._stop = asyncio.Event()
        # For so long requests are offered.
        self._seconds = 0.0
        self._open: set[asyncio.Task[None]] = set()
        self._records: list[Record] = []
        self._lateness: list[float] = []
        self._cut = 0

    def stop(self) -> None:
        """End now; `run` returns what there is so far."""
        self._stop.set()

    async def run(self, arrivals: Sequence[Arrival], seconds: float) -> Gathered:
        """Send the arrivals, which are in order of time, and wait for what became of them."""
        loop = asyncio.get_running_loop()
        self._seconds = seconds
        started_at = loop.time() + _START_SECONDS
        async with asyncio.TaskGroup() as group:
            await self._send(arrivals, started_at, group)
            await self._wait_until(started_at + seconds)
            offered = min(seconds, max(loop.time() - started_at, 1e-9))
            await self._drain(started_at + seconds + self._bounds.drain_seconds, group)
        return Gathered(
            records=self._records,
            seconds=offered,
            notes=self._notes(seconds, offered),
            was_stopped=self._stop.is_set(),
        )

    async def _send(
        self, arrivals: Sequence[Arrival], started_at: float, group: asyncio.TaskGroup
    ) -> None:
        loop = asyncio.get_running_loop()
        for arrival in arrivals:
            await self._wait_until(started_at + arrival.at)
            if self._stop.is_set():
                return
            self._lateness.append(loop.time() - started_at - arrival.at)
            if len(self._open) >= self._bounds.open:
                # Not sent, and not hidden: a record without an attempt is an abandoned request.
                self._cut += 1
                visit = Visit(arrival, self._shared, started_at)
                self._records.append(visit.record(loop.time()))
                continue
            task = group.create_task(self._converse(arrival, started_at))
            self._open.add(task)
            task.add_done_callback(self._open.discard)

    async def _converse(self, arrival: Arrival, started_at: float) -> None:
        """Ask, and what its client asks next, as long as there are answers."""
        loop = asyncio.get_running_loop()
        while await self._visit(Visit(arrival, self._shared, started_at)) and arrival.then:
            arrival = replace(arrival.then, at=loop.time() - started_at + arrival.then.at)
            if arrival.at >= self._seconds:
                return
            await self._wait_until(started_at + arrival.at)
            if self._stop.is_set():
                return

    async def _visit(self, visit: Visit) -> bool:
        """Return whether it was served."""
        try:
            await visit.run()
        finally:
            record = visit.record(asyncio.get_running_loop().time())
            self._records.append(record)
        return record.outcome is Outcome.SERVED

    async def _drain(self, until: float, group: asyncio.TaskGroup) -> None:
        """Wait for who is still open, at most until then, and cut the rest."""
        stopping = group.create_task(self._stop.wait())
        try:
            left = set(self._open)
            while left and not self._stop.is_set():
                timeout = until - asyncio.get_running_loop().time()
                if timeout <= 0:
                    break
                await asyncio.wait(
                    {*left, stopping}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
                )
                left = set(self._open)
        finally:
            stopping.cancel()
        self._cut += len(self._open)
        for task in list(self._open):
            task.cancel()

    async def _wait_until(self, when: float) -> None:
        """Until then, or until it is stopped."""
        left = when - asyncio.get_running_loop().time()
        if left <= 0 or self._stop.is_set():
            return
        try:
            async with asyncio.timeout(left):
                await self._stop.wait()
        except TimeoutError:
            return

    def _notes(self, seconds: float, offered: float) -> list[str]:
        notes = []
        if self._stop.is_set():
            notes.append(f"stopped after {offered:.0f} of {seconds:.0f} s")
        if self._cut:
            notes.append(
                f"{self._cut} requests were not sent, or still open at the end; "
                "they count as abandoned"
            )
        late = quantile(sorted(self._lateness), 0.99)
        if late is not None and late > _LATE_SECONDS:
            notes.append(
                f"this generator was itself up to {late * 1000:.0f} ms late (99 % of arrivals): "
                "its machine is too slow for this load"
            )
        return notes
