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
        self.max_deferred = max(self.max_deferred, len(self._deferred))

    def wake(self, slot: int, slots: int) -> None:
        """Slot number `slot` of `slots` was released: one deferred task gets another look.

        That is the first one pinned to the slot, else the first of all.  It goes before all that
        is ready; of two woken by the same batch the second is in front.
        """
        if not self._deferred:
            return
        chosen = next((task for task in self._deferred if _pinned_to(task, slots) == slot), None)
        if chosen is None:
            chosen = self._deferred.popleft()
        else:
            self._deferred.remove(chosen)
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
        return dropped


def _pinned_to(task: Task, slots: int) -> int | None:
    return None if task.job.slot is None else task.job.slot % slots
