"""Runs a short-lived helper process and hands over its output line by line.

Fetching happens in processes, not threads: a process can be ended when the user has had enough.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

# Runs a module of ours or pip.  -P: what lies in the current directory must not stand in for it.
PYTHON = (sys.executable, "-P", "-m")
KEPT_LINES = 200
LINE_BYTES = 1 << 16


async def run_lines(
    argv: Sequence[str],
    on_line: Callable[[str], None],
    *,
    environ: Mapping[str, str] | None = None,
) -> tuple[int, list[str]]:
    """Run a command to its end; return its exit status and the last lines it printed.

    Standard output and error are one stream.  Cancelling kills the process and waits for it.
    """
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, env=environ, limit=LINE_BYTES
    )
    tail: deque[str] = deque(maxlen=KEPT_LINES)
    try:
        await _read_lines(process, tail, on_line)
        return await process.wait(), list(tail)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _read_lines(process: Process, tail: deque[str], on_line: Callable[[str], None]) -> None:
    if process.stdout is None:
        raise ValueError("the process has no pipe to read")
    rest = b""
    while chunk := await process.stdout.read(LINE_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        rest = rest[-LINE_BYTES:]
        for raw in lines:
            line = raw.decode("utf-8", "replace").rstrip()
            tail.append(line)
            on_line(line)
    if rest:
        tail.append(rest.decode("utf-8", "replace"))
