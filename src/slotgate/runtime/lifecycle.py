"""Stopping: the first signal lets everything that was accepted end, the second ends it.

| signal | newcomers | waiting | running |
|---|---|---|---|
| none yet | admitted | wait | run |
| first | refused, 503 `draining` | are served, within their deadlines | run to their end |
| second, or `drain_timeout` | the listener closes | refused, 503 `draining` | are ended |

After the first signal, who waits is refused (503 `no_backend` or `draining`) once no backend can
serve it that is ready or coming back: an engine of ours that is being restarted is, a server that
others started and that is down is not.

SIGHUP reads the configuration anew, and stops nothing (http.operating).
"""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from slotgate.runtime.driver import Driver

SIGNALS = (signal.SIGINT, signal.SIGTERM)
RELOAD = getattr(signal, "SIGHUP", None)  # Windows has none


class Lifecycle:
    """Turns signals into the two steps of stopping."""

    def __init__(
        self,
        driver: Driver,
        *,
        drain_timeout_seconds: float,
        on_reload: Callable[[], None] = lambda: None,
    ) -> None:
        self.drain_timeout_seconds = drain_timeout_seconds
        self._driver = driver
        self._on_reload = on_reload
        self._loop = asyncio.get_running_loop()
        self._first = asyncio.Event()
        self._second = asyncio.Event()

    def listen(self) -> None:
        """Take the process's signals from now on."""
        for number in SIGNALS:
            self._loop.add_signal_handler(number, self.stop)
        if RELOAD is not None:
            self._loop.add_signal_handler(RELOAD, self._on_reload)

    def unlisten(self) -> None:
        for number in SIGNALS if RELOAD is None else (*SIGNALS, RELOAD):
            self._loop.remove_signal_handler(number)

    def stop(self) -> None:
        """Take one step: drain, then end."""
        if self._first.is_set():
            self._second.set()
        self._first.set()

    @property
    def is_forced(self) -> bool:
        return self._second.is_set()

    async def wait_stop(self) -> None:
        """Wait for the first signal."""
        await self._first.wait()

    async def drain(self) -> None:
        """Refuse newcomers and wait until the rest has ended, or is made to."""
        self._driver.begin_draining()
        try:
            async with asyncio.timeout(self.drain_timeout_seconds), asyncio.TaskGroup() as group:
                forced = group.create_task(self._second.wait())
                idle = group.create_task(self._driver.wait_idle())
                await asyncio.wait({forced, idle}, return_when=asyncio.FIRST_COMPLETED)
                forced.cancel()
                idle.cancel()
        except TimeoutError:
            self._second.set()
        if self.is_forced:
            self._driver.abort_all("the gateway is shutting down")
            await self._driver.wait_idle()
