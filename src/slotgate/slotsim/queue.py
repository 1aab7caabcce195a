"""llama-server's two queues: tasks to be looked at, and tasks put off because no slot was free."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slotgate.slotsim.readers import Reader
    from slotgate.slotsim.slot import Task


class TaskQueue:
    """Unbounded, first in first out, without deadlines: what a gateway must keep empty."""

    def __init__(self) -> None:
        self._ready: deque[Task] = deque()
        self._deferred: deque[Task] = deque()
        self._pinned = 0  # how many of the deferred want a certain slot
        self.max_deferred = 0
        # Tasks in slots whose readers gave up; acted upon between two batches.
        self.cancelled: list[Task] = []

    def __bool__(self) -> bool:
        return bool(self._ready or self.cancelled)

    @property
    def deferred(self) -> int:
        return len(self._deferred)

    def post(self, task: Task) -> None:
        self._ready.append(task)

    def take(self) -> Task | None:
        return self._ready.popleft() if self._ready else None

    def defer(self, task: Task) -> None:
        self._deferred.append(task)
        self._pinned += task.job.slot is not None
        self.max_deferred = max(self.max_deferred, len(self._deferred))

    def wake(self, slot: int, slots: int) -> None:
        """Slot number `slot` of `slots` was released: one deferred task gets another look.

        That is the first one pinned to the slot, else the first of all.  It goes before all that
        is ready; of two woken by the same batch the second is in front.
        """
        if not self._deferred:
            return
        chosen = self._find_pinned(slot, slots) if self._pinned else None
        if chosen is None:
            chosen = self._deferred.popleft()
        else:
            self._deferred.remove(chosen)
        self._pinned -= chosen.job.slot is not None
        self._ready.appendleft(chosen)

    def drop(self, reader: Reader) -> int:
        """Erase the tasks of a reader that gave up; return how many sequences that were."""
        dropped = 0
        for queue in (self._ready, self._deferred):
            kept = [task for task in queue if task.reader is not reader]
            dropped += sum(1 + len(task.children) for task in queue) - sum(
                1 + len(task.children) for task in kept
            )
            queue.clear()
            queue.extend(kept)
        self._pinned = sum(task.job.slot is not None for task in self._deferred)
        return dropped

    def _find_pinned(self, slot: int, slots: int) -> Task | None:
        for task in self._deferred:
            if task.job.slot is not None and task.job.slot % slots == slot:
                return task
        return None
