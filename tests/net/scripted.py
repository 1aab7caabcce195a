"""Servers that play a script, byte by byte if they are told so, and remember what they saw."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import struct
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from ssl import SSLContext

from typing_extensions import override

from slotgate.net.address import Address
from slotgate.net.client import Client


class Peer:
    """The server's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.requests: list[bytes] = []

    async def read_head(self) -> bytes:
        """One request's head; its bytes are kept in `requests`."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        self.requests.append(head)
        return head

    async def read_request(self) -> bytes:
        """One request, head and body."""
        head = await self.read_head()
        length = 0
        for line in head.split(b"\r\n"):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        body = await self.reader.readexactly(length)
        self.requests[-1] += body
        return head + body

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def send_in_pieces(self, data: bytes, cuts: list[int]) -> None:
        """Send the data cut at these offsets, each piece in a packet and a read of its own."""
        start = 0
        for cut in [*sorted(cuts), len(data)]:
            if cut > start:
                await self.send(data[start:cut])
                # The client shares this loop: it has read the piece after a few turns.
                for _ in range(3):
                    await asyncio.sleep(0)
                start = cut

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        """Close with a TCP reset instead of an end."""
        raw = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def wait_closed_by_client(self) -> None:
        """Until the client has closed its side."""
        while await self.reader.read(65536):
            pass


Script = Callable[[Peer], Awaitable[None]]
# From accepting a connection to serving it.
TURNS = 5


async def accept_no_more(server: asyncio.Server) -> None:
    """Serve who was accepted; closing at once would lose their sockets (python/cpython#109564)."""
    for listener in server.sockets:
        asyncio.get_running_loop().remove_reader(listener.fileno())
    for _ in range(TURNS):
        await asyncio.sleep(0)


@dataclass
class ScriptedServer:
    """The i-th connection plays the i-th script, and those beyond the last one play the last."""

    scripts: tuple[Script, ...]
    url: str = ""
    peers: list[Peer] = field(default_factory=list)
    running: set[asyncio.Task[None]] = field(default_factory=set)
    errors: list[BaseException] = field(default_factory=list)
    server: asyncio.Server | None = None

    async def play(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.running.add(task)
        peer = Peer(reader, writer)
        self.peers.append(peer)
        try:
            await self.scripts[min(len(self.peers), len(self.scripts)) - 1](peer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client left: what that means is the test's business
        except BaseException as error:
            self.errors.append(error)
        finally:
            self.running.discard(task)
            writer.close()

    async def start(self, *, tls: SSLContext | None = None, unix_path: Path | None = None) -> None:
        if unix_path is not None:
            self.server = await asyncio.start_unix_server(self.play, unix_path)
            self.url = f"unix://{unix_path}"
            return
        self.server = await asyncio.start_server(
            self.play, "127.0.0.1", 0, ssl=tls, backlog=1024, limit=1 << 20
        )
        port = self.server.sockets[0].getsockname()[1]
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{port}"

    async def stop(self) -> None:
        assert self.server is not None
        await accept_no_more(self.server)
        self.server.close()
        for task in list(self.running):
            task.cancel()
        await wait_until(lambda: not self.running)
        for peer in self.peers:
            peer.writer.transport.abort()
        await asyncio.sleep(0)
        assert not self.errors, self.errors

    @property
    def address(self) -> Address:
        return Address.parse(self.url)

    @property
    def requests(self) -> list[bytes]:
        """All requests of all connections."""
        return [request for peer in self.peers for request in peer.requests]

    def client(self) -> Client:
        return Client(self.address)


def answer(data: bytes) -> Script:
    """Read requests and answer each with these bytes, until the client closes."""

    async def play(peer: Peer) -> None:
        while True:
            await peer.read_request()
            await peer.send(data)

    return play


def answer_and_close(data: bytes) -> Script:
    """Read one request, answer with these bytes, close."""

    async def play(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(data)
        peer.close()

    return play


def plain(body: bytes, *headers: bytes, status: bytes = b"200 OK") -> bytes:
    """A response with a Content-Length."""
    lines = b"".join(header + b"\r\n" for header in headers)
    return b"HTTP/1.1 %b\r\n%bContent-Length: %d\r\n\r\n%b" % (status, lines, len(body), body)


def chunked(*pieces: bytes, trailers: bytes = b"") -> bytes:
    """A response with these chunks."""
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%b0\r\n%b\r\n" % (
        chunks,
        trailers,
    )


async def wait_until(is_so: Callable[[], bool], *, within_seconds: float = 5.0) -> None:
    """Let the loop turn until something is so; fail when it takes too long."""
    deadline = time.monotonic() + within_seconds
    while not is_so():
        assert time.monotonic() < deadline, "it did not come about"
        await asyncio.sleep(0)


async def turn(times: int) -> None:
    """Let the loop turn so many times."""
    for _ in range(times):
        await asyncio.sleep(0)


class ManualClockLoop(asyncio.SelectorEventLoop):
    """Real sockets, and a time that stands still until somebody advances it."""

    now_seconds = 1000.0

    @override
    def time(self) -> float:
        return self.now_seconds

    async def advance(self, seconds: float) -> None:
        """Let this much time pass at once, and what it makes due happen."""
        self.now_seconds += seconds
        await turn(5)


def open_sockets() -> int:
    """How many sockets this process has open.  (Other descriptors are the loop's business.)"""
    count = 0
    for name in os.listdir("/dev/fd"):  # noqa: PTH208  (a Path for each would be slow)
        with contextlib.suppress(OSError):  # the listing's own is gone by now
            count += stat.S_ISSOCK(os.fstat(int(name)).st_mode)
    return count
