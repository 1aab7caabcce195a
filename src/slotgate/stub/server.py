"""A stub llama-server in this process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from slotgate.stub.app import StubApplication
from slotgate.stub.connection import Connection
from slotgate.stub.options import Fault, FaultKind, StubOptions

if TYPE_CHECKING:
    from types import TracebackType

    from slotgate.stub.record import Observed


class StubServer:
    """Serves from `start` to `stop`, or for the block of an `async with`."""

    def __init__(self, options: StubOptions | None = None) -> None:
        self.options = options or StubOptions()
        self._application: StubApplication | None = None
        self._listener: asyncio.Server | None = None
        self._exited = asyncio.Event()

    async def start(self) -> None:
        """Listen.  Raises OSError if the address cannot be had."""
        self._application = StubApplication(self.options, exits=self.exit)
        self._exited.clear()
        self._listener = await asyncio.get_running_loop().create_server(
            self._connect, self.options.host, self.options.port, backlog=512
        )

    async def stop(self) -> None:
        """Close at once; calling it again does nothing."""
        if self._listener is None:
            return
        self.exit()
        listener, self._listener = self._listener, None
        await listener.wait_closed()
        # One turn, so that every transport has told its protocol.
        await asyncio.sleep(0)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    @property
    def port(self) -> int:
        if self._listener is None or not self._listener.sockets:
            raise RuntimeError("the stub does not listen")
        port: int = self._listener.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """Where it listens; the API prefix is not part of it."""
        return f"http://{self.options.host}:{self.port}"

    @property
    def observed(self) -> Observed:
        return self._running.observed

    def set_fault(self, fault: Fault | str) -> None:
        """Switch a fault on, by value or as `NAME[:ARG]`."""
        self._running.set_fault(Fault.parse(fault) if isinstance(fault, str) else fault)

    def clear_faults(self, kind: FaultKind | None = None) -> None:
        """Switch one kind of fault off, or all."""
        self._running.clear_faults(kind)

    async def wait_exited(self) -> None:
        """Wait until the fault `exits` has struck, or `stop` was called."""
        await self._exited.wait()

    @property
    def _running(self) -> StubApplication:
        if self._application is None:
            raise RuntimeError("the stub was not started")
        return self._application

    def _connect(self) -> Connection:
        return Connection(self._running, idle_seconds=self.options.keep_alive_seconds)

    def exit(self) -> None:
        """Close everything at once, as a process that ends does."""
        if self._listener is not None:
            self._close_listener(self._listener)
        self._running.close()
        self._exited.set()

    def _close_listener(self, listener: asyncio.Server) -> None:
        """Accept nothing more, and close a turn later.

        Whoever was accepted in this turn gets its transport in the next, and until Python 3.13
        asyncio loses its socket if the listener is closed by then (python/cpython#109564).
        """
        loop = asyncio.get_running_loop()
        for sock in listener.sockets:
            loop.remove_reader(sock.fileno())
        loop.call_soon(listener.close)
