"""Connections that wait for their next exchange.  It limits nothing: the only queue is the core's.

A server closes an idle connection when it likes, and a request that meets the close half-way is
lost.  So a connection is kept for at most half the time that the server grants, never for the
last request that it grants, and never after an error.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable

from slotgate.net.connection import Connection

_IDLE_SECONDS = 2.0  # llama-server closes after 5
_PARAMETER = re.compile(rb"\b(timeout|max)\s*=\s*\"?(\d{1,9})", re.IGNORECASE)


def idle_seconds(status: int, headers: Iterable[tuple[bytes, bytes]], uses: int) -> float:
    """How long a connection may rest after this answer, its `uses`-th; 0 means close it.

    `max` is read both ways that servers mean it, requests left and requests in all: the stricter.
    """
    if status >= 400:
        return 0.0
    seconds = _IDLE_SECONDS
    for name, value in headers:
        if name != b"keep-alive":
            continue
        for key, number in _PARAMETER.findall(value):
            if key.lower() == b"timeout":
                seconds = min(seconds, int(number) / 2)
            elif uses >= int(number) - 1:
                return 0.0
    return seconds


class Pool:
    """Idle connections, the one used last goes first."""

    __slots__ = ("_idle", "_is_closed", "_sweeps_at", "_timer")

    def __init__(self) -> None:
        # Connection -> when it expires, in order of use.
        self._idle: dict[Connection, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        # When it fires, which it cannot be asked: uvloop makes none for what is due at once.
        self._sweeps_at = 0.0
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._idle)

    def take(self, now: float) -> Connection | None:
        """The connection used last, if one is still good."""
        while self._idle:
            connection, expires_at = self._idle.popitem()
            connection.home = None
            if connection.let_go() and now < expires_at:
                return connection
            connection.abort()
        return None

    def put(
        self, connection: Connection, seconds: float, *, loop: asyncio.AbstractEventLoop
    ) -> None:
        """Keep the connection for so long, or close it if that is no time at all."""
        if seconds <= 0 or self._is_closed:
            connection.abort()
            return
        connection.home = self
        expires_at = self._idle[connection] = loop.time() + seconds
        if self._timer is None or expires_at < self._sweeps_at:
            self._sweep_at(expires_at, loop)

    def forget(self, connection: Connection) -> None:
        """It died while it rested."""
        self._idle.pop(connection, None)

    def close(self) -> None:
        """Close what rests, and keep nothing from now on."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        idle, self._idle = self._idle, {}
        for connection in idle:
            connection.home = None
            connection.abort()

    def _sweep_at(self, when: float, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._sweeps_at = when
        self._timer = loop.call_at(when, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        for connection in [each for each, expires_at in self._idle.items() if expires_at <= now]:
            del self._idle[connection]
            connection.home = None
            connection.abort()
        if self._idle:
            self._sweep_at(min(self._idle.values()), loop)
