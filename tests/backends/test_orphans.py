"""Nothing is left behind, however the gateway dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import IO, TYPE_CHECKING

import pytest

from slotgate.backends.orphan import ORPHANED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.process

# A gateway in small: starts an engine, says its process, and waits.
PARENT = """
import asyncio, sys
from pathlib import Path
from slotgate.backends.managed import EngineOptions, ManagedServer
model, binary, alias, when = sys.argv[1:]
options = EngineOptions(model=Path(model), alias=alias, parallel=1, ctx_size=512,
                        llama_server=Path(binary) if binary else None)
async def main():
    def say(line):
        if when == "loading":
            print(server.pid, flush=True)
    server = ManagedServer(options, say)
    await server.start()
    print(server.pid, flush=True)
    await server.wait_exit()
asyncio.run(main())
"""


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    running: list[subprocess.Popen[str]] = []

    def run(*argv: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, *map(str, argv)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return process

    yield run
    for process in running:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe:
                pipe.close()


def line(pipe: IO[str] | None) -> str:
    assert pipe is not None
    return pipe.readline().strip()


@pytest.mark.llama
def test_kill_9_of_the_gateway_ends_the_engine(
    start: Callable[..., subprocess.Popen[str]],
    small_model: Path,
    llama_server: Path | None,
    wait_gone: Callable[[int], None],
) -> None:
    parent = start("-c", PARENT, small_model, llama_server or "", "m", "serving")
    pid = int(line(parent.stdout))
    parent.send_signal(signal.SIGKILL)
    wait_gone(pid)


def test_kill_9_of_the_gateway_ends_an_engine_that_still_loads(
    start: Callable[..., subprocess.Popen[str]],
    small_model: Path,
    fake_llama_server: Path,
    wait_gone: Callable[[int], None],
) -> None:
    parent = start("-c", PARENT, small_model, fake_llama_server, "never", "loading")
    pid = int(line(parent.stdout))
    parent.send_signal(signal.SIGKILL)
    wait_gone(pid)


# Starts an engine whose lifeline somebody else holds.
GO_BETWEEN = """
import os, subprocess, sys
engine = subprocess.Popen([sys.executable, "-m", "slotgate.backends.engine"])
print(os.getpid(), engine.pid, flush=True)
engine.wait()
"""


@pytest.mark.llama
def test_without_the_lifeline_the_kernel_ends_the_embedded_engine(
    start: Callable[..., subprocess.Popen[str]],
    small_model: Path,
    wait_gone: Callable[[int], None],
) -> None:
    between = start("-c", GO_BETWEEN)
    parent, engine = map(int, line(between.stdout).split())
    tell_engine(between, model=small_model, parent=parent)
    between.send_signal(signal.SIGKILL)
    wait_gone(engine)


def tell_engine(process: subprocess.Popen[str], *, model: Path, parent: int) -> None:
    """Tell it what to run, and wait until it does."""
    assert process.stdin is not None
    document = {"model.path": str(model), "parent": parent, "n_ctx": 256}
    process.stdin.write(json.dumps(document) + "\n")
    process.stdin.flush()
    while "listening on" not in line(process.stdout):
        pass


@pytest.mark.llama
def test_without_the_kernels_help_the_lifeline_ends_the_embedded_engine(
    start: Callable[..., subprocess.Popen[str]], small_model: Path
) -> None:
    engine = start("-m", "slotgate.backends.engine")
    tell_engine(engine, model=small_model, parent=os.getpid())
    assert engine.stdin is not None
    engine.stdin.close()
    assert engine.wait(10) == 0


def test_an_engine_whose_parent_died_before_it_began_ends_at_once(
    start: Callable[..., subprocess.Popen[str]],
) -> None:
    engine = start("-m", "slotgate.backends.engine")
    assert engine.stdin is not None
    engine.stdin.write('{"model.path": "/m.gguf", "parent": 1}\n')
    engine.stdin.flush()
    assert engine.wait(10) == ORPHANED
    engine = start("-m", "slotgate.backends.engine")
    assert engine.stdin is not None
    engine.stdin.close()
    assert engine.wait(10) == ORPHANED


SLEEPER = "import os, signal; print(os.getpid(), flush=True); signal.pause()"


def guarded(*flags: str, parent: int | None = None, program: str = sys.executable) -> list[str]:
    whose = str(os.getpid() if parent is None else parent)
    guardian = ["-m", "slotgate.backends.guardian", *flags, "--parent", whose, "--"]
    return [*guardian, program, "-c", SLEEPER]


def test_where_the_kernel_helps_the_guardian_becomes_the_program(
    start: Callable[..., subprocess.Popen[str]],
) -> None:
    process = start(*guarded())
    assert int(line(process.stdout)) == process.pid


def test_where_it_does_not_the_guardian_kills_the_program_when_the_lifeline_ends(
    start: Callable[..., subprocess.Popen[str]], wait_gone: Callable[[int], None]
) -> None:
    process = start(*guarded("--supervise"))
    pid = int(line(process.stdout))
    assert pid != process.pid
    assert process.stdin is not None
    process.stdin.close()
    wait_gone(pid)
    assert process.wait(10) == 128 + signal.SIGKILL


def test_a_guardian_that_stays_hands_on_sigterm(
    start: Callable[..., subprocess.Popen[str]], wait_gone: Callable[[int], None]
) -> None:
    process = start(*guarded("--supervise"))
    pid = int(line(process.stdout))
    process.terminate()
    assert process.wait(10) == 128 + signal.SIGTERM
    wait_gone(pid)


def test_a_guardian_whose_parent_is_gone_starts_nothing(
    start: Callable[..., subprocess.Popen[str]],
) -> None:
    process = start(*guarded(parent=1))
    assert process.wait(10) == ORPHANED
    assert line(process.stdout) == ""


@pytest.mark.parametrize("flags", [(), ("--supervise",)])
def test_a_program_that_cannot_be_run_is_named(
    start: Callable[..., subprocess.Popen[str]], flags: tuple[str, ...]
) -> None:
    process = start(*guarded(*flags, program="/no/such/program"))
    assert line(process.stdout) == "/no/such/program: cannot be run: No such file or directory"
    assert process.wait(10) == 126


def test_the_program_gets_its_signals_as_if_started_from_a_shell(
    start: Callable[..., subprocess.Popen[str]],
) -> None:
    guardian = guarded()[:-3]
    process = start(*guardian, "/bin/sh", "-c", "grep SigIgn /proc/self/status")
    ignored = int(line(process.stdout).split()[1], 16)
    for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM):
        assert not ignored & 1 << (number - 1)
