"""Backends that are made to fail while clients ask, and what the clients saw of it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from tests.e2e.asking import CHAT, PATIENCE_LOOKS, ask, chat, wait_until
from tests.e2e.processes import END_SECONDS, LLAMA_PROGRAM, gateway, write_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.e2e.processes import Running

    Record = Callable[[str, object], None]

ADDRESS = re.compile(r"http://[^:]+:(\d+)")
CLIENT_SECONDS = 60
# Nobody waits long in a test; a backend that was out may soon show that it serves again.
SETTINGS: dict[str, Any] = {
    "listen": "127.0.0.1:0",
    "settle_bound": "2s",
    "health": {"first_pause": "1s", "longest_pause": "2s"},
}
TIMEOUTS = {"connect": "1s", "first_byte": "8s", "idle": "4s"}


class Backend:
    """A server in a process of its own that takes a free port, and keeps it over restarts."""

    def __init__(self, name: str, command: Callable[[int], list[str]]) -> None:
        self.name = name
        self.port = 0
        self._command = command
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, *more: str) -> None:
        """Start it, with more options perhaps."""
        self._process = subprocess.Popen(
            [*self._command(self.port), *more],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def wait_ready(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        found = ADDRESS.search(self._process.stdout.readline())
        assert found, f"{self.name} did not start"
        self.port = int(found[1])

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it as `kill -9` does."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(END_SECONDS)
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()

    def fault(self, **order: str) -> None:
        assert ask(self.url, "POST", "/stub/fault", order).status == 200


def stub_backend(name: str, *options: str) -> Backend:
    command = [sys.executable, "-m", "slotgate", "stub", *options, "--listen"]
    return Backend(name, lambda port: [*command, f"127.0.0.1:{port}"])


def llama_backend(name: str, model: Path, options: dict[str, Any]) -> Backend:
    command = [sys.executable, str(LLAMA_PROGRAM), str(model)]
    return Backend(name, lambda port: [*command, json.dumps({**options, "port": port})])


@contextlib.contextmanager
def running(*backends: Backend) -> Iterator[None]:
    """Run the backends within the block, whatever became of them."""
    try:
        for backend in backends:
            backend.start()
        for backend in backends:
            backend.wait_ready()
        yield
    finally:
        for backend in backends:
            backend.kill()


@dataclass(frozen=True, slots=True)
class Seen:
    """What a client saw of one request."""

    wants_stream: bool
    status: int
    body: bytes

    @property
    def is_served(self) -> bool:
        if self.wants_stream:
            return self.status == 200 and self.body.endswith(b"data: [DONE]\n\n")
        return self.status == 200 and b'"error"' not in self.body

    @property
    def has_broken_off(self) -> bool:
        """Whether its answer had begun and ended with one error of the gateway's, and no more."""
        frames = self.body.rstrip().split(b"\n\n")
        return (
            self.wants_stream
            and self.status == 200
            and len(frames) > 1
            and b'"error"' in frames[-1]
            and not any(b'"error"' in frame or b"[DONE]" in frame for frame in frames[:-1])
        )


class Load:
    """Clients that ask one request after the other, every second one for a stream."""

    def __init__(self, url: str, clients: int, tokens: int) -> None:
        self._url = url
        self._tokens = tokens
        self._is_over = False
        self._threads = [
            threading.Thread(target=self._ask, args=(number % 2 == 0,)) for number in range(clients)
        ]
        self.seen: list[Seen] = []

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._is_over = True
        for thread in self._threads:
            thread.join()

    def wait_for_more(self, answers: int) -> None:
        """Wait until so many more requests have been answered."""
        wanted = len(self.seen) + answers
        wait_until(lambda: self._look() >= wanted)

    def _look(self) -> int:
        assert ask(self._url, "GET", "/health").status == 200
        return len(self.seen)

    def _ask(self, wants_stream: bool) -> None:
        while not self._is_over:
            self.seen.append(self._once(wants_stream))
            wants_stream = not wants_stream

    def _once(self, wants_stream: bool) -> Seen:
        body = json.dumps(chat(max_tokens=self._tokens, stream=wants_stream))
        connection = http.client.HTTPConnection(urlsplit(self._url).netloc, timeout=CLIENT_SECONDS)
        try:
            connection.request("POST", CHAT, body, {"content-type": "application/json"})
            response = connection.getresponse()
            return Seen(wants_stream, response.status, response.read())
        finally:
            connection.close()


class Front:
    """The gateway of a drill, looked at through its own routes."""

    def __init__(self, process: Running, names: list[str]) -> None:
        self.url = process.url
        self.names = names
        self._process = process
        self._descriptors = 0

    def states(self) -> dict[str, str]:
        backends = ask(self.url, "GET", "/ready").json()["backends"]
        return {name: backends[name]["state"] for name in self.names}

    def wait_for(self, name: str, state: str, *, looks: int = PATIENCE_LOOKS) -> None:
        wait_until(lambda: self.states()[name] == state, looks=looks)

    def wait_ready(self) -> None:
        wait_until(lambda: set(self.states().values()) == {"ready"})

    def ejections(self) -> float:
        return sum(self._process.metrics("slotgate_ejections_total").values())

    def begin(self) -> None:
        """Remember what it holds while nobody asks."""
        self.wait_idle()
        self._descriptors = self._count_descriptors()

    def wait_idle(self) -> None:
        """Wait until every slot is free again, and nothing is held that was not at first."""

        def is_idle() -> bool:
            counts = self._process.queue()
            return counts["slots_idle"] == counts["slots"] and counts["slots_processing"] == 0

        wait_until(is_idle)
        if self._descriptors:
            wait_until(lambda: self._count_descriptors() <= self._descriptors)

    def _count_descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self._process.process.pid}/fd"))  # noqa: PTH208


@contextlib.contextmanager
def front(backends: dict[str, int], path: Path) -> Iterator[Front]:
    """Run a gateway in front of these ports within the block."""
    settings = {
        **SETTINGS,
        "backends": [
            {"name": name, "url": f"http://127.0.0.1:{port}", "timeouts": TIMEOUTS}
            for name, port in backends.items()
        ],
    }
    with gateway("-c", write_config(path, settings)) as process:
        yield Front(process, list(backends))


def check(seen: list[Seen]) -> int:
    """Check that nobody lost a request of which it had no byte; return how many broke off."""
    lost = [each for each in seen if not (each.is_served or each.has_broken_off)]
    assert not lost, f"{len(lost)} of {len(seen)}, such as {lost[0]}"
    return sum(not each.is_served for each in seen)


class Drill:
    """Backends of which one is struck, clients that ask meanwhile, and what must not happen."""

    def __init__(
        self, gateway: Front, bad: Backend, *, clients: int, tokens: int, rounds: int
    ) -> None:
        self.gateway = gateway
        self.bad = bad
        self._clients = clients
        self._tokens = tokens
        self._rounds = rounds  # how often each client asks in each part of a drill

    def run(
        self,
        name: str,
        *,
        strike: Callable[[], None],
        lift: Callable[[], None],
        record: Record,
        is_left: str = "down",
    ) -> int:
        """Strike one while clients ask, lift it again; return how many streams broke off."""
        gateway, enough = self.gateway, self._rounds * self._clients
        gateway.wait_ready()
        gateway.begin()
        ejections = gateway.ejections()
        with Load(gateway.url, self._clients, self._tokens) as load:
            load.wait_for_more(enough)
            assert set(gateway.states().values()) == {"ready"}
            assert gateway.ejections() == ejections, "a false alarm"
            assert check(load.seen) == 0
            began = perf_counter()
            strike()
            gateway.wait_for(name, is_left)
            record("seconds until it is left alone", round(perf_counter() - began, 2))
            others = {state for each, state in gateway.states().items() if each != name}
            assert others == {"ready"}, "a false alarm"
            load.wait_for_more(enough)
            lift()
            gateway.wait_ready()
            load.wait_for_more(enough)
        broken = check(load.seen)
        record("requests", len(load.seen))
        record("streams that broke off", broken)
        gateway.wait_idle()
        return broken
