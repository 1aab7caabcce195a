"""The real clock: the event loop's own, so that timers and decisions agree."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio


class LoopClock:
    """Seconds of the running event loop's monotonic clock."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.now = loop.time
