"""HTTP by hand: heads, chunks and ends of connections, as they come."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from tests.polling import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

PATIENCE = 30.0
"""Nothing that a test waits for may take longer, in seconds."""


@dataclass(frozen=True)
class Head:
    """A status line and headers, in their order."""

    status: int
    headers: list[tuple[str, str]]

    def get(self, name: str) -> str | None:
        return next((v for n, v in self.headers if n.lower() == name.lower()), None)


@dataclass(frozen=True)
class Answer:
    """A whole response; `was_closed` says that the connection ended with it."""

    head: Head
    body: bytes
    chunks: list[bytes]
    was_closed: bool

    @property
    def status(self) -> int:
        return self.head.status

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def frames(self) -> list[tuple[str | None, Any]]:
        return list(parse_frames(self.body))


def parse_frames(text: bytes) -> Iterator[tuple[str | None, Any]]:
    """Take a stream's frames apart: the event's name, and its data (as JSON where it is)."""
    for block in text.decode().split("\n\n"):
        if not block:
            continue
        event, data = None, None
        for line in block.split("\n"):
            name, _, value = line.partition(": ")
            if name == "event":
                event = value
            elif name == "data":
                data = value if value == "[DONE]" else json.loads(value)
            else:
                data = line
        yield event, data


class Connection:
    """One TCP connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self._buffer = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def half_close(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        data = body if isinstance(body, bytes) else b"" if body is None else _encode(body)
        lines = [f"{method} {path} HTTP/1.1", "Host: test"]
        lines += [f"{name}: {value}" for name, value in headers]
        if body is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {len(data)}"]
        self._socket.sendall(("\r\n".join(lines) + "\r\n\r\n").encode() + data)

    def send_raw(self, data: bytes) -> None:
        self._socket.sendall(data)

    def head(self) -> Head:
        """Wait for a response's head."""
        block = self._until(b"\r\n\r\n").decode("latin-1")
        lines = block.split("\r\n")
        pairs = [line.partition(":")[::2] for line in lines[1:] if line]
        return Head(int(lines[0].split(" ")[1]), [(n, v.strip()) for n, v in pairs])

    def chunk(self) -> bytes:
        """Wait for a chunk of a stream; empty: the last one."""
        size = int(self._until(b"\r\n"), 16)
        data = self._exactly(size + 2)
        return data[:-2]

    def read(self, count: int) -> bytes:
        """Wait for so many bytes of a body."""
        return self._exactly(count)

    def answer(self, *, is_head: bool = False) -> Answer:
        """Read a whole response, and see whether the connection ends with it."""
        head = self.head()
        chunks: list[bytes] = []
        if head.get("Transfer-Encoding") == "chunked":
            while data := self.chunk():
                chunks.append(data)
            body = b"".join(chunks)
        else:
            body = b"" if is_head else self._exactly(int(head.get("Content-Length") or 0))
        is_last = bool(chunks) or head.get("Connection") == "close"
        return Answer(head, body, chunks, self.ends(within=2.0 if is_last else 0.05))

    def ends(self, *, within: float) -> bool:
        """Whether the other side closes in so many seconds."""
        self._socket.settimeout(within)
        try:
            more = self._socket.recv(65536)
        except TimeoutError:
            return False
        except ConnectionResetError:
            return True
        finally:
            self._socket.settimeout(PATIENCE)
        self._buffer += more
        return not more

    def is_silent(self) -> bool:
        """Whether nothing has come so far."""
        self._socket.settimeout(0.001)
        try:
            self._buffer += self._socket.recv(65536)
        except TimeoutError:
            pass
        finally:
            self._socket.settimeout(PATIENCE)
        return not self._buffer

    def _until(self, mark: bytes) -> bytes:
        while mark not in self._buffer:
            self._more()
        part, _, self._buffer = self._buffer.partition(mark)
        return part

    def _exactly(self, count: int) -> bytes:
        while len(self._buffer) < count:
            self._more()
        part, self._buffer = self._buffer[:count], self._buffer[count:]
        return part

    def _more(self) -> None:
        data = self._socket.recv(65536)
        if not data:
            raise EOFError(f"the connection ended after {self._buffer!r}")
        self._buffer += data


def _encode(value: Any) -> bytes:
    return json.dumps(value).encode()


class Server:
    """A running server."""

    def __init__(self, port: int) -> None:
        self.port = port

    def accepts(self) -> bool:
        """Whether it listens yet."""
        try:
            self.connect().close()
        except ConnectionRefusedError:
            return False
        return True

    def connect(self) -> Connection:
        return Connection(self.port)

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Sequence[tuple[str, str]] = (),
    ) -> Answer:
        """Send one request on its own connection and read the whole answer."""
        with self.connect() as connection:
            connection.send(method, path, body, headers)
            return connection.answer(is_head=method == "HEAD")

    def get(self, path: str, headers: Sequence[tuple[str, str]] = ()) -> Answer:
        return self.request("GET", path, None, headers)

    def post(self, path: str, body: Any, headers: Sequence[tuple[str, str]] = ()) -> Answer:
        return self.request("POST", path, body, headers)

    def open(self, path: str, body: Any) -> Connection:
        """Send a request and leave its answer unread."""
        connection = self.connect()
        connection.send("POST", path, body)
        return connection

    def slots(self) -> list[dict[str, Any]]:
        slots: list[dict[str, Any]] = self.get("/slots").json
        return slots

    def busy(self) -> int:
        return sum(slot["is_processing"] for slot in self.slots())

    def metrics(self) -> dict[str, float]:
        lines = self.get("/metrics").body.decode().splitlines()
        pairs = (line.split(" ") for line in lines if line and not line.startswith("#"))
        return {name.removeprefix("llamacpp:"): float(value) for name, value in pairs}

    def wait_busy(self, count: int) -> float:
        return wait_for(lambda: self.busy() == count)

    def wait_idle(self) -> None:
        self.wait_busy(0)
