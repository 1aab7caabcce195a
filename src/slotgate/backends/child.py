"""The output and the end of a child process, as its asyncio protocol sees them."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from typing_extensions import override

from slotgate.backends.logfilter import harmless

if TYPE_CHECKING:
    from typing import BinaryIO

KEPT_LINES = 400
LINE_BYTES = 1 << 13

# llama.cpp's own words; an older build says more before and after them.
BINARY_LISTENS = re.compile(r"listening on ((?:unix|https?)://\S+)(?:\s|$)")
# The engine's line is written in one piece, but may land in the middle of one of llama.cpp's.
ENGINE_LISTENS = re.compile(r"engine: listening on (\S+)$")


class Child(asyncio.SubprocessProtocol):
    """Keeps the last lines a llama.cpp printed, and notes what they say about its address.

    From `serving` on, when requests may arrive, lines that could quote one are not kept.
    `exited` holds the exit status (-N for signal N); `closed` is done when its output has been
    read to the end as well.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        listens: re.Pattern[str],
        log_file: BinaryIO | None = None,
    ) -> None:
        self.exited: asyncio.Future[int] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        self.listening: str | None = None
        self.serving = False
        self._transport: asyncio.SubprocessTransport | None = None
        self._listens = listens
        self._log_file = log_file
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._rest = b""

    @property
    def tail(self) -> tuple[str, ...]:
        """The last lines, oldest first."""
        return tuple(self._lines)

    # What asyncio calls.

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    @override
    def pipe_data_received(self, fd: int, data: bytes) -> None:
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[-LINE_BYTES:]
        for line in lines:
            self._note(line)

    @override
    def process_exited(self) -> None:
        if self._transport is not None and not self.exited.done():
            status = self._transport.get_returncode()
            self.exited.set_result(-1 if status is None else status)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if self._rest:
            self._note(self._rest)
            self._rest = b""
        if self._log_file is not None:
            self._log_file.close()
            self._log_file = None
        if not self.closed.done():
            self.closed.set_result(None)

    def _note(self, raw: bytes) -> None:
        line: str | None = raw[:LINE_BYTES].decode("utf-8", "replace").rstrip()
        if self.serving and line is not None:
            line = harmless(line)
        if line is None:
            return
        self._lines.append(line)
        if self._log_file is not None:
            with suppress(OSError):  # a full disk must not end the engine
                self._log_file.write(line.encode() + b"\n")
        if self.listening is None and (found := self._listens.search(line)):
            self.listening = found[1]
            self.serving = True
