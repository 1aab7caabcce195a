"""Noticing that nothing has happened for too long, without a timer for each thing that happens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

# A timer may fire this much early, by the loop's resolution.
_SLACK_SECONDS = 0.001


class Silence:
    """Calls back once, when `limit_seconds` have passed since `last_seconds`.

    Whoever notices something stores the loop's time in `last_seconds`; the one timer looks at it
    when it fires, and sleeps again for what is left.  While `is_held`, time does not count.
    """

    __slots__ = ("_call_back", "_loop", "_timer", "is_held", "last_seconds", "limit_seconds")

    def __init__(self) -> None:
        self.limit_seconds = 0.0
        self.last_seconds = 0.0
        self.is_held = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._call_back: Callable[[], None] | None = None

    def watch(
        self, loop: asyncio.AbstractEventLoop, limit_seconds: float, call_back: Callable[[], None]
    ) -> None:
        """Start from now, with this limit in place of an earlier one."""
        self._loop = loop
        self._call_back = call_back
        self.limit_seconds = limit_seconds
        self.last_seconds = loop.time()
        due = self.last_seconds + limit_seconds
        if self._timer is not None:
            if self._timer.when() <= due:  # it will see for itself that it fires too early
                return
            self._timer.cancel()
        self._timer = loop.call_at(due, self._look)

    def hold(self) -> None:
        """Let time not count from now on."""
        self.is_held = True

    def release(self) -> None:
        """Let it count again, from now."""
        self.is_held = False
        if self._loop is not None:
            self.last_seconds = self._loop.time()

    def stop(self) -> None:
        """Never call back.  This also parts it from its owner, which the call would lead to."""
        self._call_back = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if self._loop is None or self._call_back is None:
            return
        now = self._loop.time()
        due = self.limit_seconds + (now if self.is_held else self.last_seconds)
        if due - now > _SLACK_SECONDS:
            self._timer = self._loop.call_at(due, self._look)
        else:
            self._call_back()
