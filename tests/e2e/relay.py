"""A relay between the gateway and a backend, which makes a healthy backend look like a sick one."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from tests.e2e.processes import END_SECONDS

if TYPE_CHECKING:
    from collections.abc import Coroutine

BACKLOG = 64
REQUEST = re.compile(rb"[A-Z]+ ([^ ?]+)[^ ]* HTTP/1\.1\r\n")
# What llama-server answers without its loop.
WITHOUT_LOOP = {b"/health", b"/props", b"/v1/models"}
STREAMED = b"/v1/chat/completions"
# Events of a stream that pass before it is cut.
EVENTS_BEFORE_CUT = 3
# Closing sends a reset, and not an end.
RESET = struct.pack("ii", 1, 0)
# Where an event of a stream ends; llama-server sends each as a chunk of its own.
EVENT_END = b"\n\n\r\n"


@dataclass(slots=True)
class Link:
    """A connection and its counterpart to the backend; `path` is that of the latest request."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    inner_reader: asyncio.StreamReader
    inner_writer: asyncio.StreamWriter
    path: bytes = b""
    # Events of its streams that were carried.
    events: int = 0


class Relay:
    """Carries bytes both ways, in a thread of its own, until it is told to do otherwise."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        # How many events of streams have been carried one at a time.
        self.events = 0
        self._pace_seconds = 0.0
        self._cuts = False
        # What it answers itself, by path; None is any other.
        self._answers: dict[bytes | None, bytes] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        # Whether bytes are carried, and whether connections are taken.
        self._flows, self._accepts = asyncio.Event(), asyncio.Event()
        # Whether the backend's loop seems to turn, and whether the backend hears who has left.
        self._turns, self._tells = asyncio.Event(), asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._fillers: list[socket.socket] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        self.heal()
        self._do(self._start(self._accept()))
        return self

    def __exit__(self, *_exception: object) -> None:
        self.heal()
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        for sock in (self._listener, *self._fillers):
            sock.close()

    def mute(self) -> None:
        """Accept every connection and answer nothing."""
        self._loop.call_soon_threadsafe(self._flows.clear)

    def fill(self) -> None:
        """Let connecting hang, as where packets are lost; what stands is frozen."""
        self.mute()
        self._loop.call_soon_threadsafe(self._accepts.clear)
        self._listener.listen(0)
        for _ in range(BACKLOG // 8):  # more than its queue holds now
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", self.port))
            self._fillers.append(filler)

    def wedge(self) -> None:
        """Withhold what needs the backend's loop: all but the answers of its HTTP threads."""
        self._loop.call_soon_threadsafe(self._turns.clear)

    def keep(self) -> None:
        """Do not tell the backend who leaves: it works on for nobody."""
        self._loop.call_soon_threadsafe(self._tells.clear)

    def pace(self, seconds: float) -> None:
        """Carry one event of each stream in so many seconds."""
        self._pace_seconds = seconds

    def cut(self) -> None:
        """Reset each stream in its middle."""
        self._cuts = True

    def answer(self, status: str, message: str, kind: str, path: bytes | None = None) -> None:
        """Answer requests itself, with an error as llama-server has them; of one path, or all."""
        error = {"code": int(status[:3]), "message": message, "type": kind}
        body = json.dumps({"error": error}).encode()
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        self._answers[path] = head.encode() + body

    def heal(self) -> None:
        """Carry everything again."""
        fillers, self._fillers = self._fillers, []
        for filler in fillers:
            filler.close()
        self._listener.listen(BACKLOG)
        self._pace_seconds = 0.0
        self._cuts = False
        self._answers.clear()
        for event in (self._accepts, self._flows, self._turns, self._tells):
            self._loop.call_soon_threadsafe(event.set)

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(END_SECONDS)

    async def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self) -> None:
        while True:
            await self._accepts.wait()
            sock, _ = await self._loop.sock_accept(self._listener)
            await self._start(self._serve(sock))

    async def _serve(self, sock: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=sock)
        try:
            await self._flows.wait()
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self._target)
            link = Link(reader, writer, inner_reader, inner_writer)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._carry_requests(link))
                    group.create_task(self._carry_answers(link))
            finally:
                inner_writer.close()
        except OSError:
            pass
        finally:
            writer.close()

    async def _carry_requests(self, link: Link) -> None:
        try:
            while data := await link.reader.read(1 << 16):
                if found := REQUEST.match(data):
                    link.path = found[1]
                await self._flows.wait()
                if (own := self._answers.get(link.path, self._answers.get(None))) is not None:
                    link.writer.write(own)
                    break
                link.inner_writer.write(data)
                await link.inner_writer.drain()
        except OSError:
            pass
        finally:
            await self._tells.wait()
            link.inner_writer.close()

    async def _carry_answers(self, link: Link) -> None:
        try:
            while data := await self._next(link):
                await self._flows.wait()
                if link.path not in WITHOUT_LOOP:
                    await self._turns.wait()
                link.writer.write(data)
                await link.writer.drain()
                link.events += data.endswith(EVENT_END)
                if self._cuts and link.events >= EVENTS_BEFORE_CUT:
                    sock = link.writer.get_extra_info("socket")
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                    break
        except OSError:
            pass
        finally:
            link.writer.close()

    async def _next(self, link: Link) -> bytes:
        """The next bytes of an answer; empty at its end."""
        if not (self._pace_seconds or self._cuts) or link.path != STREAMED:
            return await link.inner_reader.read(1 << 16)
        try:
            data = await link.inner_reader.readuntil(EVENT_END)
        except asyncio.IncompleteReadError as error:
            return error.partial
        if self._pace_seconds:
            await asyncio.sleep(self._pace_seconds)  # no test waits by it: it is what is slow here
        self.events += 1
        return data
