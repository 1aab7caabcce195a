"""Gateways and stubs as users run them: processes of their own, on free loopback ports."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# The stub is ready `at` an address, the gateway `on` one.
READY = re.compile(r"slotgate: ready (?:at|on) (http://[^\s,]+)")
END_SECONDS = 15
LLAMA_PROGRAM = Path(__file__).parents[1] / "wire" / "serve_llama.py"


@dataclass(frozen=True, slots=True)
class Running:
    """A process that serves, and where."""

    url: str
    process: subprocess.Popen[str]

    def metrics(self, name: str) -> dict[str, float]:
        """Return the samples of one metric, by their labels as they are written."""
        found = {}
        for line in read(f"{self.url}/metrics").decode().splitlines():
            series, _, value = line.rpartition(" ")
            if series.partition("{")[0] == name:
                found[series.partition("{")[2].rstrip("}")] = float(value)
        return found

    def queue(self) -> dict[str, int]:
        counts: dict[str, int] = json.loads(read(f"{self.url}/queue"))
        return counts


def read(url: str) -> bytes:
    with urlopen(url, timeout=10) as answer:
        body: bytes = answer.read()
        return body


@contextlib.contextmanager
def slotgate(*words: str, env: Mapping[str, str] | None = None) -> Iterator[Running]:
    """Run a command that serves; it is ready within the block and ended after it."""
    command = [sys.executable, "-m", "slotgate", *words, "--listen", "127.0.0.1:0"]
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=dict(env) if env is not None else None,
        ) as process,
    ):
        try:
            yield Running(_ready_url(process), process)
        finally:
            process.terminate()
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
            log.seek(0)
            told = log.read()
        assert not told, f"it logged an error: {told}"


def _ready_url(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        if found := READY.match(line):
            return found[1]
        seen.append(line)
    raise AssertionError(f"it did not become ready: {''.join(seen)}")


@contextlib.contextmanager
def stub(*options: str) -> Iterator[Running]:
    with slotgate("stub", *options) as running:
        yield running


@contextlib.contextmanager
def gateway(*options: str, env: Mapping[str, str] | None = None) -> Iterator[Running]:
    with slotgate("serve", "--log-level", "error", *options, env=env) as running:
        yield running


@contextlib.contextmanager
def llama_server(model: Path, options: dict[str, Any]) -> Iterator[str]:
    """Run a real llama.cpp with these parameters within the block; yields its URL."""
    with llama_process(model, options) as running:
        yield running.url


@contextlib.contextmanager
def llama_process(model: Path, options: dict[str, Any]) -> Iterator[Running]:
    """Run a real llama.cpp with these parameters within the block."""
    command = [sys.executable, str(LLAMA_PROGRAM), str(model), json.dumps(options)]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            url = child.stdout.readline().strip()
            assert url, "llama.cpp did not start"
            yield Running(url, child)
        finally:
            child.stdin.close()
            try:
                child.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()


def write_config(path: Path, settings: dict[str, Any]) -> str:
    """Write settings to a file (JSON is YAML) and return its name."""
    path.write_text(json.dumps(settings))
    return str(path)


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
