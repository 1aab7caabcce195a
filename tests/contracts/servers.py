"""How the servers under contract are started: the stub and llama.cpp, alike."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.contracts.wire import Server

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Options that both have.  `ctx` is a slot's, or with `unified` that of all."""

    slots: int = 2
    ctx: int = 512
    batch: int = 64
    unified: bool = False
    api_keys: tuple[str, ...] = ()
    api_prefix: str = ""
    has_slots: bool = True
    has_metrics: bool = True
    embeddings: bool = False
    sleep_idle_seconds: int = -1  # never
    is_fresh: bool = False  # a server of its own, that nobody used before


class Servers:
    """Starts servers on demand, and the same launch only once."""

    def __init__(self, model: Path | None) -> None:
        self._model = model
        self._stack = ExitStack()
        self._running: dict[Launch, Server] = {}

    def __call__(self, launch: Launch = Launch()) -> Server:
        if launch.is_fresh or launch not in self._running:
            self._running[launch] = self._stack.enter_context(self.started(launch))
        return self._running[launch]

    def close(self) -> None:
        self._stack.close()

    @contextmanager
    def started(self, launch: Launch, *, waits: bool = True) -> Iterator[Server]:
        """Start one, and wait until it has loaded its model."""
        port = _free_port()
        program = ["serve_stub.py"] if self._model is None else ["serve_llama.py", str(self._model)]
        options = json.dumps(asdict(launch))
        command = [sys.executable, str(HERE / program[0]), *program[1:], options, str(port)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as child:
            assert child.stdin is not None
            assert child.stdout is not None
            try:
                if waits:
                    assert child.stdout.readline(), "the server did not start"
                yield Server(port)
            finally:
                child.stdin.close()
                try:
                    child.wait(timeout=10)
                except subprocess.TimeoutExpired:
                    child.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
