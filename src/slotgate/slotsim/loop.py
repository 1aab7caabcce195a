"""The server's loop: it runs batch after batch over the slots.

Between two batches it takes what has arrived, gives it slots or puts it off, and builds the next
batch.  While a batch runs nothing changes: what arrives is not seen, and the slots look as they
did when it began.  All that llama-server does to a gateway follows from these two sentences.

Passes of equal length are run as one *stretch*, which ends where something happens or is cut short
by something that arrives.  So work is done by event, not by token, unless a job asked to hear of
each token.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from slotgate.slotsim.counters import Counters
from slotgate.slotsim.job import (
    Failed,
    Fault,
    Finished,
    Generated,
    Progressed,
    Started,
    Work,
)
from slotgate.slotsim.queue import TaskQueue
from slotgate.slotsim.rack import Rack
from slotgate.slotsim.slot import Phase
from slotgate.slotsim.stretch import Stretch

if TYPE_CHECKING:
    from slotgate.slotsim.pace import Pace
    from slotgate.slotsim.readers import Reader
    from slotgate.slotsim.results import Results
    from slotgate.slotsim.slot import Slot, Task

# An enumeration's members are found slowly, and these are asked of each slot in each pass.
_IDLE = Phase.IDLE
_GENERATING = Phase.GENERATING


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec:
    """How a server was started.

    `ctx` is what one slot may hold, `pool` what all of them share (None: each has its own `ctx`),
    `batch` the most tokens of one pass, `memory` the tokens that the host keeps of what slots had
    to give up (`--cache-ram`).  After `wedge_after` tokens of any answer nothing more comes, ever.
    """

    slots: int
    ctx: int
    pace: Pace
    pool: int | None = None
    batch: int = 2048
    memory: int = 0
    wedge_after: int | None = None


class Loop:
    """The loop's thread.  `results` is where its answers go."""

    def __init__(self, spec: ServerSpec, results: Results) -> None:
        self.rack = Rack(spec.slots, spec.ctx, pool=spec.pool, memory=spec.memory)
        self.queue = TaskQueue()
        self.counters = Counters()
        # Faults: see SimulatedServer.
        self.slowness = 1.0
        self.wedges_after = spec.wedge_after
        self.is_wedged = False
        self.keeps_cancelled = False
        self._spec = spec
        self._results = results
        self._stretch = Stretch()

    @property
    def next_boundary(self) -> float:
        """When the batch or stretch ends; infinite while it rests or is wedged."""
        return inf if self.is_wedged else self._stretch.until

    def post(self, task: Task) -> None:
        """Put a task before the loop; `wake` it afterwards."""
        self.queue.post(task)

    def wake(self, now: float) -> None:
        """Something was posted: act at once if at rest, else at the next boundary."""
        if self._stretch.until == inf and not self.is_wedged:
            self._turn(now)
        else:
            self.cut(now)

    def recover(self, now: float) -> None:
        """Stop being wedged; the batch that never ended ends now."""
        self.is_wedged = False
        if self._stretch.until == inf:
            self._turn(now)
        else:
            self._stretch.until = max(self._stretch.until, now)

    def give_up(self, reader: Reader, now: float) -> None:
        """Erase the reader's waiting tasks at once; its slots go at the next batch boundary."""
        self._results.cancel(reader)
        self._results.close_tasks(reader, self.queue.drop(reader), now)
        mine = [slot for slot in self.rack.busy if slot.running.reader is reader]
        for slot in mine:
            slot.silence()
        if not self.keeps_cancelled:
            self.queue.cancelled += [slot.running for slot in mine]

    def settle(self, now: float) -> None:
        """Book the passes of the stretch that are over."""
        if self.is_wedged or not (passes := self._stretch.split(now)):
            return
        self._book(passes)
        if self._stretch.is_streaming:
            self._results.notify(self._stretch.since)

    def cut(self, now: float) -> None:
        self.settle(now)
        self._stretch.shorten()

    # One turn of the loop: take tasks, build a batch, run it.

    def _turn(self, now: float) -> None:
        while True:
            self._take(now)
            self._fill(now)
            if not self._stretch.is_empty:
                if self.rack.fits(self._stretch.tokens):
                    self._start(now)
                    return
                self._kill_all(now)
            elif not self.queue:
                self._stretch.rest()
                return

    def _take(self, now: float) -> None:
        if self.queue.cancelled:
            cancelled, self.queue.cancelled = self.queue.cancelled, []
            for slot in self.rack.busy:
                if slot.task in cancelled:
                    self._release(slot, now)
        while (task := self.queue.take()) is not None:
            if not self.rack.launch(task):
                self.queue.defer(task)

    def _fill(self, now: float) -> None:
        """Every decoding slot adds one token, then prompts fill the batch in the slots' order."""
        self._stretch.fill(self.rack)
        room = self._spec.batch - len(self._stretch.decoding)
        for slot in self.rack:
            if room <= 0:
                break
            phase = slot.phase
            if phase is _IDLE or phase is _GENERATING:
                continue
            if phase is Phase.STARTED:
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
            self.counters.prompt_tokens_cached += slot.cached
            if task.job.stream:
                self._announce(slot, now)

    def _announce(self, slot: Slot, now: float) -> None:
        task = slot.running
        if task.job.progress:
            self._report_progress(slot, now)
        else:
            self._results.send(
                task.reader,
                Started(now, task.job.id, task.index, task.prompt.tokens, slot.cached),
            )

    def _start(self, now: float) -> None:
        stretch = self._stretch
        seconds = self._spec.pace.seconds(len(stretch.decoding), stretch.chunk) * self.slowness
        for slot in stretch.reading:
            slot.held += slot.chunk
        stretch.start(now, seconds, self._plan_passes(seconds))
        self.is_wedged = self.is_wedged or self._reaches_wedge()

    def _plan_passes(self, seconds: float) -> int:
        """How many passes will be alike, and of interest to nobody but the last one."""
        stretch, slots = self._stretch, self._stretch.decoding
        if stretch.reading or self.queue or self._results.gone or seconds >= 1.0:
            return 1
        longest = stretch.due_in if seconds > 0 else stretch.shortest
        passes = min(longest, self.rack.headroom() // len(slots))
        if self.wedges_after is not None:
            ahead = (self.wedges_after - slot.decoded for slot in slots)
            passes = min([passes, *(tokens for tokens in ahead if tokens > 0)])
        return passes

    def _reaches_wedge(self) -> bool:
        return self.wedges_after is not None and any(
            slot.decoded >= self.wedges_after for slot in self._stretch.decoding
        )

    def _kill_all(self, now: float) -> None:
        for slot in self.rack.busy:
            self._fail(slot, Fault.POOL_EXHAUSTED, now)
            slot.clear()

    # The end of a batch.

    def complete(self, now: float) -> None:
        stretch = self._stretch
        passes = stretch.passes
        self._book(passes)
        for slot in stretch.reading:
            self.counters.prompt_tokens += slot.chunk
            slot.processed += slot.chunk
            slot.chunk = 0
        if stretch.is_streaming:
            self._results.notify(now)
        concerned = stretch.decoding
        if not self._results.gone:
            concerned = [slot for slot in concerned if slot.decoded >= slot.due_at]
        if stretch.reading:
            concerned = sorted([*concerned, *stretch.reading], key=lambda slot: slot.id)
        for slot in concerned:
            if slot.phase is Phase.PROMPT:
                self._has_read(slot, now)
            else:
                self._has_written(slot, now)
        self._turn(now)

    def _book(self, passes: int) -> None:
        self.counters.decodes += passes
        self.counters.busy_slots += passes * (
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
        self.counters.prompt_seconds += now - slot.began_at
        if slot.running.job.work is Work.EMBED:
            self._finish(slot, now)
            return
        children = self.rack.children_of(slot.running)
        slot.start_writing(now)
        for child in children:
            child.follow(slot, now)
        for each in sorted([slot, *children], key=lambda slot: slot.id):
            self._has_written(each, now)

    def _has_written(self, slot: Slot, now: float) -> None:
        task = slot.running
        if slot.decoded >= slot.report_at:
            event = Generated(now, task.job.id, task.index, slot.report(), slot.decoded)
            self._results.send(task.reader, event)
        elif slot.is_streaming:
            self._results.answer(task.reader, now)
        if slot.decoded >= slot.limit:
            self._finish(slot, now)

    def _report_progress(self, slot: Slot, now: float) -> None:
        task = slot.running
        processed = slot.cached + slot.processed
        self._results.send(
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
        self._results.send(
            reader, Finished(now, task.job.id, task.index, slot.id, slot.result(now), is_last)
        )
        self._release(slot, now)
        if is_last:
            self._results.remove(reader)

    def _fail(self, slot: Slot, fault: Fault, now: float) -> None:
        task, reader = slot.running, slot.running.reader
        self._results.fail(
            reader,
            Failed(
                at=now,
                job=task.job.id,
                index=task.index,
                fault=fault,
                prompt_tokens=task.prompt.tokens,
                is_first=not (reader.job.stream and reader.answered),
                input_tokens=slot.processed,
                output_tokens=slot.decoded,
            ),
        )
        self._release(slot, now)

    def _release(self, slot: Slot, now: float) -> None:
        reader = slot.running.reader
        reader.input_tokens += slot.processed
        reader.output_tokens += slot.decoded
        self.counters.add_output(slot.decoded, now - slot.first_token_at, slot.held)
        slot.release(now)
        self.queue.wake(slot.id, len(self.rack))
        self._results.close_tasks(reader, 1, now)
