"""CPU of the upstream client: microseconds for a request and for a stream of 64 chunks.

Run it with `python bench/net_client.py`.  The server is another process, so only the client's CPU
is counted.  "raw asyncio" is the floor: a protocol that writes a constant request and looks for
the end of the answer, and does nothing else.  aiohttp is measured only where it is installed.
"""

from __future__ import annotations

import asyncio
import importlib.util
import multiprocessing
import time
from collections.abc import Awaitable, Callable
from typing import cast

import uvloop
from typing_extensions import override

from slotgate.net.address import Address
from slotgate.net.client import Client

CHUNKS = 64
PACE_SECONDS = 0.001  # so that every chunk arrives by itself
CONCURRENT = 16
FRAME = b'data: {"index":0,"content":" token","tokens":[29],"stop":false}\n\n'
ANSWER = (
    b"HTTP/1.1 200 OK\r\nServer: llama.cpp\r\nContent-Type: application/json; charset=utf-8\r\n"
    b"Keep-Alive: timeout=5, max=100000\r\nContent-Length: 300\r\n\r\n" + b"x" * 300
)
STREAM = (
    b"HTTP/1.1 200 OK\r\nServer: llama.cpp\r\nContent-Type: text/event-stream\r\n"
    b"Keep-Alive: timeout=5, max=100000\r\nTransfer-Encoding: chunked\r\n\r\n"
)
CHUNK = b"%x\r\n%b\r\n" % (len(FRAME), FRAME)
BODY = b'{"prompt":"' + b"p" * 1000 + b'","stream":true}'
HEADERS = [
    (b"content-type", b"application/json"),
    (b"accept", b"text/event-stream"),
    (b"x-request-id", b"0123456789abcdef"),
]


class Server(asyncio.Protocol):
    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.buffer = b""

    @override
    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if not self.buffer.endswith(BODY):
            return
        if self.buffer.startswith(b"POST /s"):
            self.transport.write(STREAM)
            self.step(CHUNKS)
        else:
            self.transport.write(ANSWER)
        self.buffer = b""

    def step(self, left: int) -> None:
        if left:
            self.transport.write(CHUNK)
            asyncio.get_running_loop().call_later(PACE_SECONDS, self.step, left - 1)
        else:
            self.transport.write(b"0\r\n\r\n")
            self.transport.close()


def serve(ready: multiprocessing.SimpleQueue[int]) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Server, "127.0.0.1", 0, backlog=1024)
        ready.put(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    uvloop.run(main())


class Raw(asyncio.Protocol):
    """Writes, and knows from the last bytes that it is over."""

    def __init__(self, request: bytes, end: bytes) -> None:
        self.request = request
        self.end = end
        self.waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(self.request)

    @override
    def data_received(self, data: bytes) -> None:
        if data.endswith(self.end):
            self.waiter.set_result(None)


def raw_head(path: str) -> bytes:
    lines = b"".join(b"%b: %b\r\n" % header for header in HEADERS)
    return (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(BODY)}\r\n".encode()
        + lines
        + b"\r\n"
        + BODY
    )


Work = Callable[[], Awaitable[None]]


async def cpu_microseconds(work: Work, times: int) -> float:
    async def worker() -> None:
        for _ in range(times // CONCURRENT):
            await work()

    await work()
    started = time.process_time()
    await asyncio.gather(*(worker() for _ in range(CONCURRENT)))
    return (time.process_time() - started) / (times // CONCURRENT * CONCURRENT) * 1e6


def raw_works(port: int) -> dict[str, Work]:
    loop = asyncio.get_running_loop()

    def fresh(path: str, end: bytes) -> Work:
        request = raw_head(path)

        async def work() -> None:
            transport, protocol = await loop.create_connection(
                lambda: Raw(request, end), "127.0.0.1", port
            )
            await protocol.waiter
            transport.abort()

        return work

    idle: list[tuple[asyncio.Transport, Raw]] = []
    request = raw_head("/a")

    async def kept() -> None:
        if idle:
            transport, protocol = idle.pop()
            protocol.waiter = loop.create_future()
            transport.write(request)
        else:
            transport, protocol = await loop.create_connection(
                lambda: Raw(request, b"xxx"), "127.0.0.1", port
            )
        await protocol.waiter
        idle.append((transport, protocol))

    return {
        "kept connection": kept,
        "new connection": fresh("/a", b"xxx"),
        "64-chunk stream": fresh("/s", b"0\r\n\r\n"),
    }


def our_works(port: int) -> dict[str, Work]:
    client = Client(Address.parse(f"http://127.0.0.1:{port}"))

    def work_for(path: str, *, single_use: bool) -> Work:
        async def work() -> None:
            exchange = client.exchange("POST", path, HEADERS, BODY, single_use=single_use)
            try:
                await exchange.open()
                while await exchange.read():
                    pass
            finally:
                exchange.close()

        return work

    return {
        "kept connection": work_for("/a", single_use=False),
        "new connection": work_for("/a", single_use=True),
        "64-chunk stream": work_for("/s", single_use=True),
    }


def aiohttp_works(port: int) -> dict[str, Work]:
    import aiohttp  # type: ignore[import-not-found, unused-ignore]

    kept = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
    fresh = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True))
    headers = {name.decode(): value.decode() for name, value in HEADERS}

    def work_for(session: aiohttp.ClientSession, path: str) -> Work:
        url = f"http://127.0.0.1:{port}{path}"

        async def work() -> None:
            async with session.post(url, headers=headers, data=BODY) as answer:
                async for _ in answer.content.iter_any():
                    pass

        return work

    return {
        "kept connection": work_for(kept, "/a"),
        "new connection": work_for(fresh, "/a"),
        "64-chunk stream": work_for(fresh, "/s"),
    }


PEERS: dict[str, Callable[[int], dict[str, Work]]] = {
    "raw asyncio": raw_works,
    "slotgate.net": our_works,
}
if importlib.util.find_spec("aiohttp"):
    PEERS["aiohttp"] = aiohttp_works
TIMES = {"kept connection": 8000, "new connection": 4000, "64-chunk stream": 640}
ROUNDS = 3  # the best one counts


async def measure(port: int, make: Callable[[int], dict[str, Work]]) -> list[float]:
    works = make(port)
    return [
        min([await cpu_microseconds(works[name], times) for _ in range(ROUNDS)])
        for name, times in TIMES.items()
    ]


def main() -> None:
    ready: multiprocessing.SimpleQueue[int] = multiprocessing.SimpleQueue()
    server = multiprocessing.Process(target=serve, args=(ready,), daemon=True)
    server.start()
    port = ready.get()
    print(f"{'CPU, us':<24}" + "".join(f"{name:>18}" for name in TIMES))
    for loop_name, factory in (
        ("uvloop", uvloop.new_event_loop),
        ("asyncio", asyncio.new_event_loop),
    ):
        for peer, make in PEERS.items():
            with asyncio.Runner(loop_factory=factory) as runner:
                figures = runner.run(measure(port, make))
            row = "".join(f"{figure:>18.1f}" for figure in figures)
            print(f"{f'{peer}, {loop_name}':<24}{row}")
    server.terminate()
    server.join()


if __name__ == "__main__":
    main()
