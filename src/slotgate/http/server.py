"""uvicorn, with the guards that a public HTTP server needs and uvicorn leaves to its front proxy.

The parser (llhttp, strict) refuses smuggling shapes: both lengths at once, bare line feeds,
unknown transfer codings.  Here are added: a time and a size for the head, a number of headers, a
bound on silence while a body arrives and on a body that nobody reads any more, and a number of
connections.

Besides, a request can have itself told the moment its client leaves (`Request.on_leaving`), a
half-closed connection included, as llama-server has it.  ASGI's `receive` would need a task for
each request to wait on it, and says nothing while a client that has half-closed still reads.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn
from typing_extensions import override
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from slotgate.wire.errors import error_body

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from slotgate.config import LimitSettings

# A client that goes on sending a body after it was answered is cut off past this many bytes.
UNREAD_BODY_SLACK_BYTES = 8 << 20


# The key of the scope through which a request learns that its client leaves.
ON_LEAVING = "slotgate.on_leaving"


class Flag:
    """`asyncio.Event` for one waiter: a tenth of its size, and two of it are in each connection."""

    __slots__ = ("_is_set", "_waiter")

    def __init__(self, *, is_set: bool = False) -> None:
        self._is_set = is_set
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        self._is_set = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def clear(self) -> None:
        self._is_set = False

    async def wait(self) -> None:
        while not self._is_set:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None


class Pipeline(list[Any]):
    """Requests that came before the answer to the one before them: nearly always none."""

    def appendleft(self, item: Any) -> None:
        self.insert(0, item)


class Part(Enum):
    """What a connection must send next, within a time."""

    HEAD = "head"
    BODY = "body"
    NOTHING = ""


class GuardedProtocol(HttpToolsProtocol):
    """One client connection.  `limits` is set on a subclass, one a server."""

    limits: LimitSettings

    # Not in the instance's dictionary, which would outgrow what instances can share of one:
    # ten thousand clients wait on as many connections, so here bytes count.
    __slots__ = (
        "_awaits",
        "_body_bytes",
        "_due",
        "_fires_at",
        "_head_bytes",
        "_leaving_hook",
        "_rejected",
        "_timer",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.pipeline = Pipeline()  # type: ignore[assignment]
        self._rejected = False
        self._awaits = Part.NOTHING
        self._head_bytes = self._body_bytes = 0
        self._due = 0.0
        # When the timer fires, which it cannot be asked: uvloop makes none for what is due at once.
        self._fires_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._leaving_hook: Callable[[], None] | None = None

    # The connection.

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow._is_writable_event = Flag(is_set=True)  # type: ignore[assignment]
        if len(self.connections) > self.limits.max_connections:
            self._reject(503, "too many connections (limits.max_connections)")
            return
        self._expect(Part.HEAD, self.limits.head_timeout)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._rejected = True
        super().connection_lost(exc)
        self._tell_leaving()

    @override
    def eof_received(self) -> None:
        super().eof_received()
        if self._leaving_hook is not None and self.cycle is not None:
            # The transport closes itself now.  Else uvicorn would log an answer that never ended.
            self.cycle.disconnected = True
        self._tell_leaving()

    def on_leaving(self, hook: Callable[[], None] | None) -> None:
        """Have the hook called once, when the client of the request under way leaves."""
        self._leaving_hook = hook

    def _tell_leaving(self) -> None:
        hook, self._leaving_hook = self._leaving_hook, None
        if hook is not None:
            hook()

    @override
    def data_received(self, data: bytes) -> None:
        if self._rejected:
            return
        super().data_received(data)
        if self._awaits is Part.HEAD and not self._rejected:
            # Still no end of the head: the parser keeps what it has got so far.
            self._head_bytes += len(data)
            if self._head_bytes > self.limits.max_head_bytes:
                self._reject_head()

    @override
    def send_400_response(self, msg: str) -> None:
        self._reject(400, "the request is not well-formed HTTP/1.1")

    # The parser's callbacks.

    @override
    def on_message_begin(self) -> None:
        self._head_bytes = self._body_bytes = 0
        self._expect(Part.HEAD, self.limits.head_timeout)
        super().on_message_begin()
        self.scope[ON_LEAVING] = self.on_leaving  # type: ignore[literal-required]

    @override
    def on_headers_complete(self) -> None:
        self._expect(Part.BODY, self.limits.body_timeout)
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self.limits.max_head_bytes or len(self.headers) > self.limits.max_header_count:
            self._reject_head()
        elif not self._is_plain():
            self._reject(400, "only HTTP/1.0 and 1.1, and no transfer coding but chunked")
        if not self._rejected:
            super().on_headers_complete()
            self.cycle.message_event = Flag()  # type: ignore[assignment]

    @override
    def on_body(self, body: bytes) -> None:
        if self._rejected:
            return
        self._due = self.loop.time() + self.limits.body_timeout
        self._body_bytes += len(body)
        if self._body_bytes > self.limits.max_body_bytes + UNREAD_BODY_SLACK_BYTES:
            self._rejected = True
            self.transport.close()
            return
        super().on_body(body)

    @override
    def on_message_complete(self) -> None:
        self._awaits = Part.NOTHING
        if not self._rejected:
            super().on_message_complete()

    # The guards.

    def _is_plain(self) -> bool:
        """Whether the head asks for nothing that the parser lets pass and we do not speak."""
        codings = [value for name, value in self.headers if name == b"transfer-encoding"]
        is_plain = not codings or (len(codings) == 1 and codings[0].lower() == b"chunked")
        return is_plain and self.parser.get_http_version() in {"1.0", "1.1"}

    def _expect(self, part: Part, seconds: float) -> None:
        self._awaits = part
        self._due = self.loop.time() + seconds
        if self._timer is not None and self._fires_at > self._due:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._watch_time()

    def _watch_time(self) -> None:
        # One timer a connection, re-armed when it fires: none is made a request.
        self._fires_at = self._due
        self._timer = self.loop.call_at(self._due, self._time_is_up)

    def _time_is_up(self) -> None:
        self._timer = None
        if self._awaits is Part.NOTHING or self._rejected:
            return
        if self.loop.time() < self._due:
            self._watch_time()
        else:
            name = self._awaits.value
            self._reject(408, f"the {name} did not arrive in time (limits.{name}_timeout)")

    def _reject_head(self) -> None:
        bounds = f"{self.limits.max_head_bytes} bytes and {self.limits.max_header_count} headers"
        self._reject(431, f"the head exceeds {bounds} (limits.max_head_bytes, max_header_count)")

    def _reject(self, status: int, message: str) -> None:
        """Answer at the level of the connection, and close it."""
        if self._rejected:
            return
        self._rejected = True
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete or not cycle.response_started:
            body = error_body(
                None,
                message=message,
                type="invalid_request_error" if status < 500 else "unavailable_error",
                code="invalid_http" if status < 500 else "too_many_connections",
            )
            head = b"content-type: application/json; charset=utf-8\r\nconnection: close\r\n"
            length = b"content-length: %d\r\n\r\n" % len(body)
            self.transport.write(STATUS_LINE[status] + head + length + body)
        self.transport.close()


class Server(uvicorn.Server):
    """uvicorn's server, started and stopped by us: signals belong to runtime.lifecycle."""

    def relimit(self, limits: LimitSettings) -> None:
        """Bound by other numbers, connections that stand included."""
        self.config.http.limits = limits  # type: ignore[union-attr]

    @contextlib.contextmanager
    @override
    def capture_signals(self) -> Iterator[None]:
        yield


def make_server(app: Callable[..., Any], limits: LimitSettings) -> Server:
    """Return a server for `app`, not yet listening; `Server.serve(sockets=[...])` runs it."""
    protocol = type("Protocol", (GuardedProtocol,), {"limits": limits})
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        loop="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=round(limits.idle_timeout),
        backlog=2048,
    )
    return Server(config)


def listen(host: str, port: int, *, backlog: int = 2048) -> socket.socket:
    """Bind a listening TCP socket.  Raises `OSError` when the address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(backlog)
        sock.settimeout(0)
    except BaseException:
        sock.close()
        raise
    return sock


def listen_unix(path: str, *, backlog: int = 2048) -> socket.socket:
    """Bind a listening unix socket, in place of one that nobody listens on any more."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_dead_socket(path)
        sock.bind(path)
        sock.listen(backlog)
        sock.settimeout(0)
    except BaseException:
        sock.close()
        raise
    return sock


def _remove_dead_socket(path: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink()
        except FileNotFoundError:
            pass
        else:
            raise OSError(errno.EADDRINUSE, "another process listens there")
