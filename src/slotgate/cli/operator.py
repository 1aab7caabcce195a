"""What the operator's commands share: they ask a running gateway, and say in words what is wrong.

Exit codes: 1 the gateway says no (or a drain was not over in time), 2 the command itself is wrong,
3 the gateway cannot be reached, 4 there is nothing of that name, 5 the key is not the operator's.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
from contextlib import closing
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import quote, urlsplit

import typer
from typing_extensions import override

DEFAULT_GATEWAY = "http://127.0.0.1:8080"
DEFAULT_KEY_VARIABLE = "SLOTGATE_ADMIN_KEY"
TIMEOUT_SECONDS = 10.0
SAYS_NO, WRONG_USE, NOT_REACHED, NO_SUCH_NAME, WRONG_KEY = 1, 2, 3, 4, 5
_STATUSES = {404: NO_SUCH_NAME, 401: WRONG_KEY, 403: WRONG_KEY}
_UNIX = "unix://"

GatewayOption = Annotated[
    str,
    typer.Option(
        "--gateway", envvar="SLOTGATE_GATEWAY", help="Where it serves: a URL, or unix:///PATH."
    ),
]
KeyOption = Annotated[
    str | None,
    typer.Option(
        "--admin-key-env",
        help=f"The variable that holds the operator's key, instead of {DEFAULT_KEY_VARIABLE}.",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the gateway's answer as JSON.")]


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, *, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    @override
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


@dataclass(frozen=True, slots=True)
class GatewayClient:
    """Asks one gateway; every fault ends the command with its exit code."""

    url: str
    key: str | None

    def ask(self, method: str, *path: str, query: str = "", patience: float = 0.0) -> Any:
        """Return the answer to a request below `/-/`; `patience` is for what takes its time."""
        target = "/-/" + "/".join(quote(part, safe="") for part in path) + query
        headers = {} if self.key is None else {"authorization": f"Bearer {self.key}"}
        connection = self._connection(TIMEOUT_SECONDS + patience)
        try:
            with closing(connection):
                connection.request(method, target, headers=headers)
                response = connection.getresponse()
                status, body = response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise fail(f"no gateway answers on {self.url}: {why}", NOT_REACHED) from error
        return self._read(status, body)

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        if self.url.startswith(_UNIX):
            return _UnixConnection(self.url.removeprefix(_UNIX), timeout=timeout)
        try:
            parts = urlsplit(self.url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if not host or parts.scheme not in {"http", "https"}:
            words = f"--gateway: {self.url!r} is not http://host:port or unix:///path"
            raise fail(words, WRONG_USE)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else None
        return (kind or http.client.HTTPConnection)(host, port, timeout=timeout)

    def _read(self, status: int, body: bytes) -> Any:
        try:
            answer = json.loads(body)
            if status == 200:
                return answer
            words = answer["error"]["message"]
        except (ValueError, LookupError, TypeError):
            words = f"{self.url} answered {status}, and not as a Slotgate gateway does"
            raise fail(words, NOT_REACHED) from None
        raise fail(str(words), _STATUSES.get(status, SAYS_NO))


def connect(gateway: str, key_variable: str | None) -> GatewayClient:
    """Return a client with the operator's key, if there is one in the environment."""
    key = os.environ.get(key_variable or DEFAULT_KEY_VARIABLE)
    if key is None and key_variable is not None:
        raise fail(f"the environment variable {key_variable} is not set", WRONG_USE)
    return GatewayClient(gateway, key.strip() if key is not None else None)


def fail(words: str, status: int) -> typer.Exit:
    """Print what is wrong and return the exit to raise."""
    typer.echo(f"slotgate: {words}", err=True)
    return typer.Exit(status)


def show_json(answer: Any) -> None:
    typer.echo(json.dumps(answer, indent=2))
