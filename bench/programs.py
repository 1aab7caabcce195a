"""Programs that a benchmark starts, and ends again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from typing import TYPE_CHECKING

from bench.overhead import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@contextlib.asynccontextmanager
async def slotgate(*words: str, **env: str) -> AsyncIterator[str]:
    """Run a command of ours that serves; yields its URL."""
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "slotgate", *words, "--listen", f"127.0.0.1:{port}",
        stdout=asyncio.subprocess.PIPE, env=os.environ | env,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        while b"ready" not in (line := await process.stdout.readline()):
            if not line:
                raise SystemExit(f"slotgate {words[0]} did not start")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        await process.wait()


async def opened(port: int) -> None:
    """Wait until something listens there."""
    for _ in range(500):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.02)
            continue
        writer.close()
        return
    raise SystemExit(f"nothing listens on {port}")


def key_of(tenant: str) -> str:
    """Return the key of a tenant of a benchmark."""
    return f"sg_{tenant}_{'0' * 40}"
