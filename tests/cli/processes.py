"""Real processes of the command line, found, watched and ended by their ids."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from queue import Empty, Queue
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_SECONDS = 60.0
READY = "slotgate: ready on "
CHAT = "/v1/chat/completions"


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class Command:
    """One `slotgate ...` process; its output is read line by line as it comes."""

    def __init__(self, *arguments: str, env: dict[str, str] | None = None) -> None:
        self.lines: list[str] = []
        self._queue: Queue[str | None] = Queue()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "slotgate", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={**os.environ, **(env or {})},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as stdout:
            for line in stdout:
                self._queue.put(line.rstrip("\n"))
        self._queue.put(None)

    def wait_line(self, mark: str) -> str:
        """Wait for a line that contains `mark`; everything before it is kept in `lines`."""
        while True:
            try:
                line = self._queue.get(timeout=PATIENCE_SECONDS)
            except Empty:
                raise AssertionError(f"no line with {mark!r} in {self.lines}") from None
            if line is None:
                raise AssertionError(f"it ended before a line with {mark!r}: {self.lines}")
            self.lines.append(line)
            if mark in line:
                return line

    def wait_ready(self) -> int:
        """Wait for the ready line and return the port in it."""
        return int(self.wait_line("ready on http").rpartition(":")[2])

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        """Wait for the end and return the exit status."""
        status = self.process.wait(PATIENCE_SECONDS)
        self._reader.join(PATIENCE_SECONDS)
        while (line := self._queue.get(timeout=PATIENCE_SECONDS)) is not None:
            self.lines.append(line)
        return status

    @property
    def output(self) -> str:
        return "\n".join(self.lines)


@contextlib.contextmanager
def command(*arguments: str, env: dict[str, str] | None = None) -> Iterator[Command]:
    running = Command(*arguments, env=env)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.kill()
        running.process.wait(PATIENCE_SECONDS)


@contextlib.contextmanager
def stub(*arguments: str) -> Iterator[str]:
    """A `slotgate stub` process; yields its URL."""
    port = free_port()
    with stub_at(port, *arguments) as running:
        yield f"http://127.0.0.1:{port}"
        running.signal(signal.SIGTERM)
        running.wait()


@contextlib.contextmanager
def stub_at(port: int, *arguments: str) -> Iterator[Command]:
    """A `slotgate stub` process on a port that is known before."""
    with command("stub", "--listen", f"127.0.0.1:{port}", *arguments) as running:
        running.wait_line("ready")
        yield running


class Stream:
    """A chat whose answer is read piece by piece."""

    def __init__(self, port: int, tokens: int, *, key: str = "", model: str = "m") -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
        body = {"messages": [{"role": "user", "content": "count"}], "max_tokens": tokens}
        text = json.dumps({**body, "model": model, "stream": True})
        self.connection.request("POST", CHAT, text, _bearer(key))
        self.response = self.connection.getresponse()

    def read_some(self) -> bytes:
        return self.response.read1()

    def read_rest(self) -> bytes:
        with contextlib.closing(self.connection):
            return self.response.read()


def ask(port: int, method: str, path: str, body: Any = None, key: str = "") -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
    with contextlib.closing(connection):
        text = json.dumps(body) if body is not None else None
        connection.request(method, path, text, _bearer(key))
        response = connection.getresponse()
        return response.status, json.loads(response.read())


def chat(port: int, tokens: int = 4, *, key: str = "", model: str = "m") -> tuple[int, Any]:
    messages = [{"role": "user", "content": "count"}]
    body = {"messages": messages, "max_tokens": tokens, "model": model}
    return ask(port, "POST", CHAT, body, key)


def wait_queue(port: int, count: int) -> None:
    """Wait until so many requests wait, with a bound; asking takes the time that is needed."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (found := ask(port, "GET", "/health")[1]["queue"]) != count:
        assert time.monotonic() < deadline, f"{found} wait"


def _bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"} if key else {}


def children_of(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(stat.parent.name))
    return found


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
