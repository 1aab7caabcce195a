"""Asks a llama.cpp that is starting whether it serves yet."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

PROBE_SECONDS = 2.0


async def is_serving(url: str, *, api_key: str | None) -> bool:
    """Whether `/health` says 200; every failure means no."""
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            return await _probe(url, api_key)
    except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return False


async def _probe(url: str, api_key: str | None) -> bool:
    parts = urlsplit(url)
    if parts.scheme == "unix":
        path, _, prefix = parts.path.partition(":")
        reader, writer = await asyncio.open_unix_connection(path)
    else:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        prefix = parts.path
    try:
        key = f"Authorization: Bearer {api_key}\r\n" if api_key else ""
        head = f"GET {prefix}/health HTTP/1.1\r\nHost: localhost\r\n{key}Connection: close\r\n\r\n"
        writer.write(head.encode())
        status = (await reader.readuntil(b"\r\n")).split(b" ")
        return len(status) > 1 and status[1] == b"200"
    finally:
        writer.close()
