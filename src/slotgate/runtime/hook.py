"""Runs the operator's command for what the watchdog found."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


async def run_hook(command: Sequence[str], document: bytes, timeout_seconds: float) -> str | None:
    """Run it with the document on its standard input; return why it failed, None if it did not.

    No shell is involved.  It leads a session of its own, which is killed when its time is over or
    the caller is cancelled.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return f"it cannot be run: {error}"
    try:
        async with asyncio.timeout(timeout_seconds):
            await process.communicate(document)
    except TimeoutError:
        return f"it was killed after {timeout_seconds:g} s"
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return None if process.returncode == 0 else f"it ended with status {process.returncode}"
