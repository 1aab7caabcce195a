"""A real llama.cpp in a child process, and plain requests to it."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = Path(__file__).parent / "serve_llama.py"


class Server:
    """An address to send requests to, one connection each."""

    def __init__(self, address: str) -> None:
        self._authority = address.removeprefix("http://")

    def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self._authority, timeout=100)
        try:
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()


@contextmanager
def serving(model: Path, options: dict[str, Any]) -> Iterator[Server]:
    """Start a server with these options, one thread, on a free port of the loopback."""
    command = [sys.executable, str(PROGRAM), str(model), json.dumps(options)]
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
            address = child.stdout.readline().strip()
            assert address, "the server did not start"
            yield Server(address)
        finally:
            child.stdin.close()
            child.wait(timeout=60)
