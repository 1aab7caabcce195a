"""A client that reads what comes, as it comes."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from slotgate.stub import StubOptions, StubServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PATIENCE = 10.0


@asynccontextmanager
async def stub(**options: Any) -> AsyncIterator[StubServer]:
    """A fast one, unless the options say otherwise."""
    given: dict[str, Any] = {"decode": 200.0, "prefill": 0.0, "slots": 2, "output_tokens": None}
    async with StubServer(StubOptions(**(given | options))) as server:
        yield server


class Caller:
    """One connection with one request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def status(self) -> int:
        line = await asyncio.wait_for(self._reader.readline(), PATIENCE)
        return int(line.split(b" ")[1])

    async def rest(self) -> bytes:
        """Everything until the connection ends."""
        return await asyncio.wait_for(self._reader.read(), PATIENCE)

    async def until(self, mark: bytes) -> bytes:
        return await asyncio.wait_for(self._reader.readuntil(mark), PATIENCE)

    async def leave(self) -> None:
        self._writer.close()
        with suppress(ConnectionResetError):
            await self._writer.wait_closed()


async def call(server: StubServer, path: str, body: Any = None, **headers: str) -> Caller:
    """Send one request; GET without a body, else POST."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    data = b"" if body is None else json.dumps(body).encode()
    lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    if body is not None:
        lines.append(f"Content-Length: {len(data)}")
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + data)
    return Caller(reader, writer)


async def fetch(
    server: StubServer, path: str, body: Any = None, **headers: str
) -> tuple[int, bytes]:
    """Send one request and read its whole answer: status, and what follows the head."""
    caller = await call(server, path, body, **headers)
    try:
        status = await caller.status()
        await caller.until(b"\r\n\r\n")
        return status, await caller.rest()
    finally:
        await caller.leave()


def chat(tokens: int, *, stream: bool = True, content: str = "hi") -> dict[str, Any]:
    messages = [{"role": "user", "content": content}]
    return {"messages": messages, "max_tokens": tokens, "stream": stream}
