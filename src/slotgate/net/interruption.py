"""Stopping what a task waits for, without cancelling the task.

`asyncio.timeout` does so for one reason, time, and costs a timer for each use.  An exchange has a
second reason, `close`, and a timer already.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class Interruption:
    """While a task waits in `with Interruption() as it`, `it.interrupt()` ends the block early.

    The block is left without an error then; unless somebody cancels the task as well, which goes
    on as always.
    """

    __slots__ = ("_cancelling", "_is_used", "_task")

    def __init__(self) -> None:
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._is_used = False

    def interrupt(self) -> None:
        """End the block.  Outside of it, or a second time, this does nothing."""
        if self._task is not None and not self._is_used:
            self._is_used = True
            self._task.cancel()

    def __enter__(self) -> Self:
        self._task = asyncio.current_task()
        if self._task is None:
            raise RuntimeError("there is no task that could be interrupted")
        self._cancelling = self._task.cancelling()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        task, self._task = self._task, None
        if task is None or not self._is_used:
            return False
        # As `asyncio.timeout` counts: more cancellations than ours mean that somebody else's is
        # under way.
        is_ours_alone = task.uncancel() <= self._cancelling
        return is_ours_alone and kind is asyncio.CancelledError
