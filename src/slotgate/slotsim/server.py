"""A llama-server in virtual time.

Rule: time is an argument, of every call, and never goes back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.slotsim.loop import Loop, ServerSpec
from slotgate.slotsim.results import Results
from slotgate.slotsim.slot import Task

if TYPE_CHECKING:
    from collections.abc import Hashable

    from slotgate.slotsim.counters import Counters
    from slotgate.slotsim.job import Event, Job, Prompt
    from slotgate.slotsim.readers import Reader
    from slotgate.slotsim.slot import SlotView


class SimulatedServer:
    """Events in, `advance` says what happened since, in order."""

    def __init__(self, spec: ServerSpec, now: float = 0.0) -> None:
        self._results = Results(now)
        self._loop = Loop(spec, self._results)
        self._next_task = 0

    # Events in.

    def submit(self, job: Job, now: float) -> None:
        """A request has arrived and was understood."""
        self._run(now)
        reader = self._results.add(job, now)
        for number, prompt in enumerate(job.prompts):
            task = self._make_task(reader, prompt, number * job.n)
            task.children = [
                self._make_task(reader, prompt, number * job.n + child, parent=task)
                for child in range(1, job.n)
            ]
            self._loop.post(task)
        self._loop.wake(now)
        self._part(now)

    def disconnect(self, job_id: Hashable, now: float) -> None:
        """The client left.  The server does not know it yet."""
        self._run(now)
        reader = self._results.find(job_id)
        if reader is not None:
            self._results.leave(reader, now)
            self._loop.cut(now)

    def poll(self, now: float) -> None:
        """`/slots` or `/metrics` was answered; that too is a result that wakes every reader."""
        self._run(now)
        self._results.notify(now)

    def advance(self, now: float) -> list[Event]:
        """Let time pass; return all that happened since the last call, in order."""
        self._run(now)
        return self._results.take()

    # Faults.

    def wedge(self, now: float) -> None:
        """Never end the batch that runs, or the next one."""
        self._run(now)
        self._loop.is_wedged = True

    def wedge_after(self, tokens: int | None, now: float) -> None:
        """Wedge when any answer has this many tokens; None: not any more, and recover."""
        self._run(now)
        self._loop.cut(now)
        self._loop.wedges_after = tokens
        if tokens is None and self._loop.is_wedged:
            self._loop.recover(now)
            self._part(now)

    def slow_down(self, factor: float, now: float) -> None:
        """Make each pass that begins from now on last `factor` times as long as it should."""
        self._run(now)
        self._loop.cut(now)
        self._loop.slowness = factor

    def keep_cancelled(self, *, keeps: bool) -> None:
        """Whether slots go on with work whose client is known to have left."""
        self._loop.keeps_cancelled = keeps

    # Questions.

    @property
    def is_wedged(self) -> bool:
        """A wedged loop answers no polls."""
        return self._loop.is_wedged

    @property
    def deferred(self) -> int:
        """How many tasks wait for a slot, as of the last batch boundary."""
        return self._loop.queue.deferred

    @property
    def max_deferred(self) -> int:
        return self._loop.queue.max_deferred

    def next_event_time(self) -> float:
        """When `advance` will have something to say; infinite: only if something arrives."""
        return min(self._results.told_at, self._next_due())

    def _next_due(self) -> float:
        end = self._loop.next_boundary
        if end <= self._results.earliest_look():
            return end
        return min(end, self._results.next_look())

    def slots(self, now: float) -> tuple[SlotView, ...]:
        """The slots as `/slots` shows them: as of the last batch boundary."""
        self._run(now)
        self._loop.settle(now)
        return tuple(slot.view() for slot in self._loop.rack)

    def metrics(self, now: float) -> Counters:
        """The counters as `/metrics` shows them; deferred are only those already looked at."""
        self._run(now)
        self._loop.settle(now)
        return self._loop.counters.copy(
            processing=len(self._loop.rack.busy), deferred=self._loop.queue.deferred
        )

    # Time.

    def _run(self, now: float) -> None:
        while (due := self._next_due()) <= now:
            if self._loop.next_boundary <= due:
                self._loop.complete(due)
            else:
                self._results.look(due)
            self._part(due)

    def _part(self, now: float) -> None:
        """Let those go that have just found their client gone."""
        while readers := self._results.take_departing():
            for reader in readers:
                self._loop.give_up(reader, now)
            self._loop.wake(now)

    def _make_task(
        self, reader: Reader, prompt: Prompt, index: int, *, parent: Task | None = None
    ) -> Task:
        self._next_task += 1
        return Task(self._next_task, reader, prompt, index, parent=parent)
