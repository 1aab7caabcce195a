"""The operator's command: what it gets, and that it cannot hold anything up."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from slotgate.runtime.hook import run_hook
from tests.polling import wait_until

pytestmark = pytest.mark.anyio

READ = "import sys; open(sys.argv[1], 'w').write(sys.stdin.read())"


async def test_it_gets_the_document_and_its_own_arguments(tmp_path: Path) -> None:
    target = tmp_path / "a name; with $signs"
    assert await run_hook([sys.executable, "-c", READ, str(target)], b'{"a": 1}', 30) is None
    assert target.read_text() == '{"a": 1}'


async def test_one_that_fails_is_told_with_its_status() -> None:
    command = [sys.executable, "-c", "raise SystemExit(3)"]
    assert await run_hook(command, b"", 30) == "it ended with status 3"


async def test_one_that_is_not_there_is_told() -> None:
    why = await run_hook(["/nowhere/to/be/found"], b"", 30)
    assert why is not None
    assert why.startswith("it cannot be run: ")


async def test_one_that_takes_too_long_is_killed() -> None:
    assert await run_hook(["/bin/sleep", "1000"], b"", 0.2) == "it was killed after 0.2 s"


async def test_when_it_is_killed_all_that_it_started_is_too(tmp_path: Path) -> None:
    target = tmp_path / "pid"
    script = f"read line; sleep 1000 & echo $! > '{target}'; wait"
    async with asyncio.TaskGroup() as group:
        running = group.create_task(run_hook(["/bin/sh", "-c", script], b"go\n", 1000))
        await wait_until(lambda: target.exists() and target.read_text().endswith("\n"))
        running.cancel()
    child = Path("/proc") / target.read_text().strip() / "stat"
    await wait_until(lambda: not child.exists() or child.read_text().split()[2] == "Z")


async def test_one_that_reads_nothing_does_no_harm() -> None:
    assert await run_hook(["/bin/sh", "-c", "exit 0"], b"x" * 1_000_000, 30) is None
