"""A llama-server in virtual time: one loop that runs batch after batch over its slots.

Between two batches the loop takes what has arrived, gives it slots or puts it off, and builds the
next batch.  While a batch runs nothing changes: what arrives is not seen, and the slots look as
they did when it began.  All that llama-server does to a gateway follows from these two sentences.

Rule 1: time is an argument and never goes back.
Rule 2: passes of equal length are run as one *stretch*, which ends where something happens or is
        cut short by something that arrives.  So work is done by event, not by token, unless a job
        asked to hear of each token.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from slotgate.slotsim.counters import Counters
from slotgate.slotsim.job import (
    Cancelled,
    Event,
    Failed,
    Fault,
    Finished,
    Generated,
    Pinged,
    Progressed,
    Started,
    Work,
)
from slotgate.slotsim.queue import TaskQueue
from slotgate.slotsim.rack import Rack
from slotgate.slotsim.readers import Readers
from slotgate.slotsim.slot import Phase, Slot, SlotView, Task
from slotgate.slotsim.stretch import Stretch

if TYPE_CHECKING:
    from collections.abc import Hashable

    from slotgate.slotsim.job import Job, Prompt
    from slotgate.slotsim.pace import Pace
    from slotgate.slotsim.readers import Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec:
    """How a server was started.

    `ctx` is what one slot may hold, `pool` what all of them share (None: each has its own `ctx`),
    `batch` the most tokens of one pass.  After `wedge_after` tokens of any answer nothing more
    comes, ever.
    """

    slots: int
    ctx: int
    pace: Pace
    pool: int | None = None
    batch: int = 2048
    wedge_after: int | None = None


class SimulatedServer:
    """The server's loop.  Events in, `advance` says what happened since, in order."""

    def __init__(self, spec: ServerSpec, now: float = 0.0) -> None:
        self._spec = spec
        self._rack = Rack(spec.slots, spec.ctx, pool=spec.pool)
        self._queue = TaskQueue()
        self._readers = Readers(now)
        self._counters = Counters()
        self._events: list[Event] = []
        # Readers that saw their client gone when they wrote to it just now.
        self._departing: list[Reader] = []
        self._next_task = 0
        self._slowness = 1.0
        self._wedge_after = spec.wedge_after
        self._is_wedged = False
        self._keeps_cancelled = False
        self._stretch = Stretch()

    # Events in.

    def submit(self, job: Job, now: float) -> None:
        """A request has arrived and was understood."""
        self._run(now)
        reader = self._readers.add(job, now)
        for number, prompt in enumerate(job.prompts):
            task = self._make_task(reader, prompt, number * job.n)
            task.children = [
                self._make_task(reader, prompt, number * job.n + child, parent=task)
                for child in range(1, job.n)
            ]
            self._queue.post(task)
        self._interrupt(now)

    def disconnect(self, job_id: Hashable, now: float) -> None:
        """The client left.  The server does not know it yet."""
        self._run(now)
        reader = self._readers.find(job_id)
        if reader is not None and reader.gone_at is None:
            reader.gone_at = now
            self._cut(now)

    def poll(self, now: float) -> None:
        """`/slots` or `/metrics` was answered; that too is a result that wakes every reader."""
        self._run(now)
        self._readers.notify(now)

    def advance(self, now: float) -> list[Event]:
        """Let time pass; return all that happened since the last call, in order."""
        self._run(now)
        events, self._events = self._events, []
        return events

    # Faults.

    def wedge(self, now: float) -> None:
        """Never end the batch that runs, or the next one."""
        self._run(now)
        self._is_wedged = True

    def wedge_after(self, tokens: int | None, now: float) -> None:
        """Wedge when any answer has this many tokens; None: not any more, and recover."""
        self._run(now)
        self._cut(now)
        self._wedge_after = tokens
        if tokens is None and self._is_wedged:
            self._is_wedged = False
            if self._stretch.until == inf:
                self._turn(now)
            else:
                self._stretch.until = max(self._stretch.until, now)

    def slow_down(self, factor: float, now: float) -> None:
        """Make each pass that begins from now on last `factor` times as long as it should."""
        self._run(now)
        self._cut(now)
        self._slowness = factor

    def keep_cancelled(self, *, keeps: bool) -> None:
        """Whether slots go on with work whose client is known to have left."""
        self._keeps_cancelled = keeps

    # Questions.

    @property
    def is_wedged(self) -> bool:
        """A wedged loop answers no polls."""
        return self._is_wedged

    @property
    def deferred(self) -> int:
        """How many tasks wait for a slot, as of the last batch boundary."""
        return self._queue.deferred

    @property
    def max_deferred(self) -> int:
        return self._queue.max_deferred

    def next_event_time(self) -> float:
        """When `advance` will have something to do; infinite: only if something arrives."""
        end = inf if self._is_wedged else self._stretch.until
        if end <= self._readers.earliest_look():
            return end
        return min(end, self._readers.next_look()[0])

    def slots(self, now: float) -> tuple[SlotView, ...]:
        """The slots as `/slots` shows them: as of the last batch boundary."""
        self._run(now)
        self._settle(now)
        return tuple(slot.view() for slot in self._rack)

    def metrics(self, now: float) -> Counters:
        """The counters as `/metrics` shows them; deferred are only those already looked at."""
        self._run(now)
        self._settle(now)
        return self._counters.copy(processing=len(self._rack.busy), deferred=self._queue.deferred)

    # Time.

    def _run(self, now: float) -> None:
        while (due := self.next_event_time()) <= now:
            if not self._is_wedged and self._stretch.until <= due:
                self._complete(self._stretch.until)
            else:
                self._look(due)
            self._part(due)

    def _look(self, now: float) -> None:
        _, reader = self._readers.next_look()
        if reader is None:
            return
        if reader.gone_at is not None:
            self._departing.append(reader)
        else:
            reader.since = now
            self._events.append(Pinged(now, reader.job.id))

    def _make_task(
        self, reader: Reader, prompt: Prompt, index: int, *, parent: Task | None = None
    ) -> Task:
        self._next_task += 1
        return Task(self._next_task, reader, prompt, index, parent=parent)

    def _interrupt(self, now: float) -> None:
        """Something was posted: act at once if the loop rests, else at the next boundary."""
        if self._stretch.until == inf and not self._is_wedged:
            self._turn(now)
            self._part(now)
        else:
            self._cut(now)

    def _settle(self, now: float) -> None:
        """Book the passes of the stretch that are over."""
        if self._is_wedged or not (passes := self._stretch.split(now)):
            return
        self._book(passes)
        if any(slot.running.job.stream for slot in self._stretch.decoding):
            self._readers.notify(self._stretch.since)

    def _cut(self, now: float) -> None:
        self._settle(now)
        self._stretch.shorten()

    # One turn of the loop: take tasks, build a batch, run it.

    def _turn(self, now: float) -> None:
        while True:
            self._take(now)
            self._fill(now)
            if not self._stretch.is_empty:
                if self._rack.fits(self._stretch.tokens):
                    self._start(now)
                    return
                self._kill_all(now)
            elif not self._queue:
                self._stretch.rest()
                return

    def _take(self, now: float) -> None:
        cancelled, self._queue.cancelled = self._queue.cancelled, []
        for slot in self._rack:
            if slot.task is not None and slot.task in cancelled:
                self._release(slot, now)
        while (task := self._queue.take()) is not None:
            if not self._rack.launch(task):
                self._queue.defer(task)

    def _fill(self, now: float) -> None:
        """Every decoding slot adds one token, then prompts fill the batch in the slots' order."""
        self._stretch.decoding = [slot for slot in self._rack if slot.phase is Phase.GENERATING]
        self._stretch.reading = []
        room = self._spec.batch - len(self._stretch.decoding)
        for slot in self._rack:
            if room <= 0:
                break
            if slot.phase is Phase.STARTED:
                self._begin(slot, now)
            if slot.phase is Phase.PROMPT and self._may_read(slot, room):
                slot.chunk = min(slot.unread, room)
                room -= slot.chunk
                self._stretch.reading.append(slot)

    def _may_read(self, slot: Slot, room: int) -> bool:
        return slot.running.job.work is Work.GENERATE or slot.unread <= room

    def _begin(self, slot: Slot, now: float) -> None:
        task = slot.running
        if task.prompt.tokens == 0:
            self._finish(slot, now)
        elif task.job.work is Work.EMBED and task.prompt.tokens > self._spec.batch:
            self._fail(slot, Fault.EXCEEDS_BATCH, now)
        elif task.prompt.tokens >= slot.n_ctx:
            self._fail(slot, Fault.EXCEEDS_CONTEXT, now)
        else:
            slot.begin(now)
            self._counters.prompt_tokens_cached += slot.cached
            if task.job.stream:
                self._announce(slot, now)

    def _announce(self, slot: Slot, now: float) -> None:
        task = slot.running
        if task.job.progress:
            self._report_progress(slot, now)
        else:
            self._send(
                task.reader,
                Started(now, task.job.id, task.index, task.prompt.tokens, slot.cached),
            )

    def _start(self, now: float) -> None:
        stretch = self._stretch
        seconds = self._spec.pace.seconds(len(stretch.decoding), stretch.chunk) * self._slowness
        for slot in stretch.reading:
            slot.held += slot.chunk
        stretch.start(now, seconds, self._plan_passes(seconds))
        self._is_wedged = self._is_wedged or self._reaches_wedge()

    def _plan_passes(self, seconds: float) -> int:
        """How many passes will be alike, and of interest to nobody but the last one."""
        slots = self._stretch.decoding
        if self._stretch.reading or self._queue or self._readers.has_gone() or seconds >= 1.0:
            return 1
        if seconds > 0 and any(self._is_watched(slot) for slot in slots):
            return 1
        passes = min(slot.unwritten for slot in slots)
        if self._rack.is_shared:
            passes = min(passes, self._rack.headroom() // len(slots))
        if self._wedge_after is not None:
            ahead = (self._wedge_after - slot.decoded for slot in slots)
            passes = min([passes, *(tokens for tokens in ahead if tokens > 0)])
        return passes

    @staticmethod
    def _is_watched(slot: Slot) -> bool:
        return slot.running.job.stream and slot.running.job.each_token

    def _reaches_wedge(self) -> bool:
        return self._wedge_after is not None and any(
            slot.decoded >= self._wedge_after for slot in self._stretch.decoding
        )

    def _kill_all(self, now: float) -> None:
        for slot in self._rack.busy:
            self._fail(slot, Fault.POOL_EXHAUSTED, now)
            slot.clear()

    # The end of a batch.

    def _complete(self, now: float) -> None:
        stretch = self._stretch
        passes = stretch.passes
        self._book(passes)
        for slot in stretch.reading:
            self._counters.prompt_tokens += slot.chunk
            slot.processed += slot.chunk
            slot.chunk = 0
        for slot in sorted([*stretch.decoding, *stretch.reading], key=lambda slot: slot.id):
            if slot.phase is Phase.PROMPT:
                self._has_read(slot, now)
            else:
                self._has_written(slot, passes, now)
        self._turn(now)

    def _book(self, passes: int) -> None:
        self._counters.decodes += passes
        self._counters.busy_slots += passes * (
            len(self._stretch.decoding) + len(self._stretch.reading)
        )
        for slot in self._stretch.decoding:
            slot.decoded += passes
            slot.held += passes

    def _has_read(self, slot: Slot, now: float) -> None:
        if slot.running.job.stream and slot.running.job.progress:
            self._report_progress(slot, now)
        if slot.unread:
            return
        self._counters.prompt_seconds += now - slot.began_at
        if slot.running.job.work is Work.EMBED:
            self._finish(slot, now)
            return
        children = self._rack.children_of(slot.running)
        slot.start_writing(now)
        for child in children:
            child.follow(slot, now)
        for each in sorted([slot, *children], key=lambda slot: slot.id):
            self._has_written(each, 1, now)

    def _has_written(self, slot: Slot, count: int, now: float) -> None:
        task, job = slot.running, slot.running.job
        if job.stream and (job.each_token or slot.decoded == count):
            self._send(task.reader, Generated(now, job.id, task.index, count, slot.decoded))
        elif job.stream:
            self._readers.answer(task.reader, now)
        if slot.unwritten <= 0:
            self._finish(slot, now)

    def _report_progress(self, slot: Slot, now: float) -> None:
        task = slot.running
        processed = slot.cached + slot.processed
        self._send(
            task.reader,
            Progressed(
                now,
                task.job.id,
                task.index,
                task.prompt.tokens,
                slot.cached,
                processed,
                now - slot.began_at,
            ),
        )

    # The ends of a task.

    def _finish(self, slot: Slot, now: float) -> None:
        task, reader = slot.running, slot.running.reader
        is_last = reader.open_tasks == 1
        self._send(
            reader, Finished(now, task.job.id, task.index, slot.id, slot.result(now), is_last)
        )
        self._release(slot, now)
        if is_last:
            self._readers.remove(reader)

    def _fail(self, slot: Slot, fault: Fault, now: float) -> None:
        """An error is the last that a reader takes: the rest of its job is cancelled."""
        task, reader = slot.running, slot.running.reader
        is_first = not (reader.job.stream and reader.answered)
        self._send(
            reader, Failed(now, task.job.id, task.index, fault, task.prompt.tokens, is_first)
        )
        self._release(slot, now)
        if not reader.cancelled:
            self._give_up(reader, now, silently=True)

    def _release(self, slot: Slot, now: float) -> None:
        reader = slot.running.reader
        self._counters.add_output(slot.decoded, now - slot.first_token_at, slot.held)
        slot.release(now)
        self._queue.wake(slot.id, len(self._rack))
        self._close_task(reader, 1, now)

    def _close_task(self, reader: Reader, count: int, now: float) -> None:
        reader.open_tasks -= count
        if reader.cancelled and reader.open_tasks == 0 and reader.gone_at is not None:
            self._events.append(Cancelled(now, reader.job.id))

    def _send(self, reader: Reader, event: Event) -> None:
        """Give a result to its reader; one that gave up gets none, and nobody is woken."""
        if reader.cancelled:
            return
        self._events.append(event)
        self._readers.answer(reader, event.at)
        if reader.job.stream and reader.gone_at is not None:
            self._departing.append(reader)

    def _part(self, now: float) -> None:
        departing, self._departing = self._departing, []
        for reader in departing:
            if not reader.cancelled and reader.open_tasks:
                self._give_up(reader, now)

    def _give_up(self, reader: Reader, now: float, *, silently: bool = False) -> None:
        """Erase the reader's waiting tasks at once; its slots go at the next batch boundary."""
        reader.cancelled = True
        self._readers.remove(reader)
        self._close_task(reader, self._queue.drop(reader), now)
        if self._keeps_cancelled:
            return
        mine = [slot.running for slot in self._rack.busy if slot.running.reader is reader]
        self._queue.cancelled.extend(mine)
        if mine and not silently:
            self._cut(now)
