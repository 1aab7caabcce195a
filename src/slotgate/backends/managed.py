"""A llama.cpp server that we start, watch and stop: the embedded engine, or a binary.

Its life: *new* -> `start` -> *running* -> (`stop` | it dies) -> *ended* -> `start` again.

- It runs in a process of its own, so its crash costs the gateway nothing but requests; in a
  session of its own, so that Ctrl-C in the terminal reaches only us, who drain first; and it never
  outlives us (see `orphan`).
- It listens on a unix socket in a directory that only we may enter: nobody can pass the gateway
  by, and no port can be taken from under us.  Options may ask for a port instead.
- What it prints goes to a bounded ring, and to a file if wished; never to our standard output.
- Nothing here makes a task: the child's output arrives through a protocol, and the methods run in
  whichever task calls them.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

from slotgate.backends.binary import read_version
from slotgate.backends.child import BINARY_LISTENS, ENGINE_LISTENS, Child
from slotgate.backends.failures import explain
from slotgate.backends.helper import PYTHON
from slotgate.backends.model_files import find_model_file
from slotgate.backends.options import EngineOptions, command_line, engine_document
from slotgate.backends.private_dir import PrivateDirectory
from slotgate.backends.ready import is_serving
from slotgate.errors import ConfigError, ModelError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

__all__ = ["EngineOptions", "ManagedServer"]

LOAD_SECONDS = 600.0  # a large model from a slow disk takes minutes
POLL_SECONDS = 0.25
SAY_SECONDS = 5.0
KILL_SECONDS = 5.0


class ManagedServer:
    """One llama.cpp server process.  `log` is told in plain words what happens to it."""

    def __init__(self, options: EngineOptions, log: Callable[[str], None] = lambda _: None) -> None:
        self._options = options
        self._log = log
        self._child: Child | None = None
        self._transport: asyncio.SubprocessTransport | None = None
        self._directory = PrivateDirectory()
        self._url = ""

    @property
    def options(self) -> EngineOptions:
        return self._options

    @property
    def url(self) -> str:
        """Where it serves, as `Address.parse` reads it; "" before it first did."""
        return self._url

    @property
    def pid(self) -> int | None:
        """Its process, None when it does not run."""
        return self._transport.get_pid() if self.is_running and self._transport else None

    @property
    def is_running(self) -> bool:
        return self._child is not None and not self._child.exited.done()

    @property
    def command(self) -> tuple[str, ...]:
        """The llama-server command line that is equivalent, secrets left out, for display."""
        return command_line(self._options, host=self._host, port=self._options.port)

    def log_tail(self) -> tuple[str, ...]:
        """The last lines that llama.cpp printed, oldest first."""
        return self._child.tail if self._child else ()

    async def start(self, *, load_seconds: float = LOAD_SECONDS) -> None:
        """Start it and wait until it serves.

        Raises ModelError, saying why in plain words, if it ends or is not ready in time, and
        ConfigError if an option stands in the way.  Nothing is left behind then, nor when the
        caller is cancelled.
        """
        if self.is_running:
            raise ValueError("it is running already")
        if self._options.llama_server is not None:
            await read_version(self._options.llama_server)
        await self._end(0)  # what is left of a process that died
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            child = await self._spawn(await asyncio.to_thread(self._prepare))
            self._log(f"loading {self._options.model.name} in process {self.pid}")
            async with asyncio.timeout(load_seconds):
                await self._wait_ready(child)
        except TimeoutError as error:
            await self.stop(0)
            raise ModelError(
                f"{self._options.model}: llama.cpp was not ready after {load_seconds:.0f} s; "
                f"its last line: {''.join(self.log_tail()[-1:])}"
            ) from error
        except BaseException:
            await self.stop(0)
            raise
        self._log(f"loaded {self._options.alias} in {loop.time() - started:.1f} s")

    async def wait_exit(self) -> int:
        """Wait until it ends, by whatever cause; the exit status, -N for signal N."""
        if self._child is None:
            raise ValueError("it was never started")
        return await asyncio.shield(self._child.exited)

    async def stop(self, grace_seconds: float) -> None:
        """End it: SIGTERM, and SIGKILL after the grace.  Harmless if it has ended."""
        try:
            await self._end(grace_seconds)
        finally:
            self._directory.remove()

    async def end_process(self, grace_seconds: float) -> None:
        """End its process, as `stop` does, and let whoever waits for its exit start it again."""
        await self._end(grace_seconds)

    async def restart(self, *, grace_seconds: float = 0.0) -> None:
        """End it if it runs, and start it again; its address stays, unless `port` was 0."""
        await self._end(grace_seconds)
        await self.start()

    # Preparing.

    def _prepare(self) -> BinaryIO | None:
        options = self._options
        find_model_file(options.model)
        if options.port is None:
            self._directory.make()
            Path(self._host).unlink(missing_ok=True)
        elif options.port:
            _check_port(options.host, options.port)
        try:
            return options.log_file.open("ab", buffering=0) if options.log_file else None
        except OSError as error:
            raise ConfigError(f"log_file: {options.log_file}: {error.strerror}") from error

    async def _spawn(self, log_file: BinaryIO | None) -> Child:
        loop = asyncio.get_running_loop()
        listens = ENGINE_LISTENS if self._options.llama_server is None else BINARY_LISTENS
        child = Child(loop, listens=listens, log_file=log_file)
        # The pipe that is its standard input is also its lifeline.
        try:
            transport, _ = await loop.subprocess_exec(
                lambda: child,
                *self._argv(),
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
                env=self._environ(),
            )
        except BaseException:
            child.connection_lost(None)
            raise
        self._child, self._transport = child, transport
        if self._options.llama_server is None:
            document = engine_document(self._options, host=self._host, port=self._options.port)
            stdin = cast("asyncio.WriteTransport", transport.get_pipe_transport(0))
            stdin.write(json.dumps({**document, "parent": os.getpid()}).encode() + b"\n")
        return child

    @property
    def _host(self) -> str:
        if self._options.port is not None:
            return self._options.host
        return str(self._directory.socket)

    def _argv(self) -> list[str]:
        if self._options.llama_server is None:
            return [*PYTHON, "slotgate.backends.engine"]
        guardian = ["slotgate.backends.guardian", "--parent", str(os.getpid())]
        return [*PYTHON, *guardian, "--", *self.command]

    def _environ(self) -> dict[str, str]:
        # The second would write prompts into the answers of /slots.
        ours = ("LLAMA_API_KEY", "LLAMA_SERVER_SLOTS_DEBUG")
        environ = {name: value for name, value in os.environ.items() if name not in ours}
        if self._options.api_key is not None and self._options.llama_server is not None:
            environ["LLAMA_API_KEY"] = self._options.api_key
        return environ

    # Waiting.

    async def _wait_ready(self, child: Child) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        said = waited = 0.0
        while not child.exited.done():
            url = self._address(child)
            if url and await is_serving(url, api_key=self._options.api_key):
                self._url = url
                child.serving = True
                return
            # Often at first, for small models; seldom later.
            await asyncio.wait([child.exited], timeout=min(0.02 + waited / 20, POLL_SECONDS))
            if (waited := loop.time() - started) > said + SAY_SECONDS:
                said = waited
                last = "".join(child.tail[-1:])
                self._log(f"loading {self._options.model.name}: {waited:.0f} s so far; {last}")
        # Its last lines may still be on their way.
        await asyncio.wait([child.closed], timeout=1.0)
        raise ModelError(explain(child.tail, child.exited.result(), self._options))

    def _address(self, child: Child) -> str | None:
        port, prefix = self._options.port, self._options.api_prefix
        if port is None:
            return f"unix://{self._host}" + (f":{prefix}" if prefix else "")
        if port:
            host = f"[{self._host}]" if ":" in self._host else self._host
            return f"http://{host}:{port}{prefix}"
        return f"{child.listening}{prefix}" if child.listening else None

    # Ending.

    async def _end(self, grace_seconds: float) -> None:
        child, transport = self._child, self._transport
        if child is None or transport is None:
            return
        try:
            for number, seconds in (
                (signal.SIGTERM, grace_seconds),
                (signal.SIGKILL, KILL_SECONDS),
            ):
                if not child.exited.done():
                    _signal_group(transport.get_pid(), number)
                    await asyncio.wait([child.exited], timeout=seconds)
        finally:
            if not child.exited.done():
                _signal_group(transport.get_pid(), signal.SIGKILL)
            transport.close()


def _signal_group(pid: int, number: signal.Signals) -> None:
    # It leads its own session, so its group is all that it may have started.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _check_port(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ConfigError(
                f"llama.cpp cannot listen on {host}:{port}: {error.strerror}; choose another port"
            ) from error
