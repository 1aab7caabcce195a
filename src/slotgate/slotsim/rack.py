"""The slots of one server: which one a task gets, and how much KV cache they hold together."""

from __future__ import annotations

from sys import maxsize
from typing import TYPE_CHECKING

from slotgate.slotsim.memory import HostMemory, State
from slotgate.slotsim.slot import Phase, Slot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slotgate.slotsim.slot import Task

SIMILARITY = 0.1
"""A slot whose cache has more than this part of a prompt is preferred."""


class Rack:
    """Slots in the order of their ids; every loop of the server goes over them in this order."""

    def __init__(self, count: int, n_ctx: int, *, pool: int | None, memory: int = 0) -> None:
        self._slots = [Slot(number, n_ctx) for number in range(count)]
        self._pool = pool
        self._memory = HostMemory(memory) if memory else None

    def __iter__(self) -> Iterator[Slot]:
        return iter(self._slots)

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def busy(self) -> list[Slot]:
        return [slot for slot in self._slots if slot.phase is not Phase.IDLE]

    def launch(self, task: Task) -> bool:
        """Put the task and its children into slots, all or none of them."""
        first = self._choose(task)
        if first is None or first.phase is not Phase.IDLE:
            return False
        others = [slot for slot in self._slots if slot.phase is Phase.IDLE and slot is not first]
        if len(others) < len(task.children):
            return False
        if self._memory is not None:
            first.trade(self._memory, task.prompt)
        first.launch(task)
        for slot, child in zip(others, task.children, strict=False):
            slot.launch(child)
        self._clear_idle()
        return True

    def children_of(self, task: Task) -> list[Slot]:
        return [slot for slot in self._slots if slot.task is not None and slot.task.parent is task]

    def fits(self, more: int) -> bool:
        """Make room for `more` tokens in a shared pool, by forgetting what idle slots hold."""
        while self.headroom() < more:
            idle = next((s for s in self._slots if s.phase is Phase.IDLE and s.held), None)
            if idle is None:
                return False
            idle.clear()
        return True

    def headroom(self) -> int:
        """Tokens that still fit a shared pool; without one there is room for all slots' own."""
        if self._pool is None:
            return maxsize
        return self._pool - sum(slot.held for slot in self._slots)

    def _choose(self, task: Task) -> Slot | None:
        if task.job.slot is not None:
            return self._slots[task.job.slot % len(self._slots)]
        idle = [slot for slot in self._slots if slot.phase is Phase.IDLE]
        if not idle:
            return None
        best = max(idle, key=lambda slot: slot.similarity(task.prompt))
        if best.similarity(task.prompt) > SIMILARITY:
            return best
        # The least recently used; of equals the last one.
        return min(reversed(idle), key=lambda slot: slot.last_used)

    def _clear_idle(self) -> None:
        """With a shared pool, each launch moves what idle slots hold into host memory."""
        if self._pool is not None:
            for slot in self._slots:
                if slot.phase is Phase.IDLE:
                    if self._memory is not None:
                        self._memory.save(State(slot.text, slot.held))
                    slot.clear()
