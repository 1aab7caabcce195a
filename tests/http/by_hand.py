"""Backends whose every answer is written by hand."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from tests.net.scripted import accept_no_more

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def served_by(serve: Serve) -> AsyncIterator[str]:
    """Have each connection served within the block; yields the URL.  None is left open."""
    writers: set[asyncio.StreamWriter] = set()

    async def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        await serve(reader, writer)

    server = await asyncio.start_server(begin, "127.0.0.1", 0)
    [listener] = server.sockets
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        await accept_no_more(server)
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0)
