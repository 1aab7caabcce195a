"""HTTP/1.1 as llama-server speaks it: one connection, one exchange at a time.

What a gateway must cope with is kept: a stream ends with a FIN although its head advertised
`Keep-Alive`; a status of 400 and more closes; an idle connection lives five seconds; the hundredth
answer closes; a refusal that needs no body does not wait for the body.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from dataclasses import dataclass, field
from http import HTTPStatus
from ipaddress import ip_address
from typing import TYPE_CHECKING, Protocol, cast
from urllib.parse import parse_qsl, unquote, urlsplit

import httptools
from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_BODY_BYTES = 100 * 1024 * 1024
MAX_REQUESTS = 100
LINGER_SECONDS = 1.0
_RESET = struct.pack("ii", 1, 0)
JSON_TYPE = "application/json; charset=utf-8"


@dataclass(slots=True)
class Request:
    """A request as it was read.  Header names are in lower case; the first value counts."""

    method: str = ""
    path: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    is_local: bool = False  # whether it came over the loopback

    def set_target(self, target: str) -> None:
        parts = urlsplit(target)
        self.path = unquote(parts.path)
        self.query = dict(parse_qsl(parts.query, keep_blank_values=True))


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole response.  Status 400 and more closes the connection."""

    status: int
    body: bytes = b""
    content_type: str = JSON_TYPE
    headers: tuple[tuple[str, str], ...] = ()


class Application(Protocol):
    """What stands behind the connections: it answers at once or keeps the exchange."""

    def connected(self, connection: Connection) -> None: ...
    def disconnected(self, connection: Connection) -> None: ...
    def precheck(self, request: Request) -> Answer | None:
        """Refuse by the head alone, before the body is read."""

    def handle(self, request: Request, exchange: Exchange) -> None: ...
    def left(self, exchange: Exchange) -> None:
        """The client closed, or half closed, before the answer was complete."""


class Exchange:
    """The answer to one request; afterwards every call does nothing."""

    def __init__(self, connection: Connection, request: Request, *, closes: bool) -> None:
        self._connection = connection
        self._request = request
        self._closes = closes
        self.is_open = True
        self.is_streaming = False

    def answer(self, answer: Answer) -> None:
        if not self.is_open:
            return
        closes = self._closes or answer.status >= 400
        head = self._head(answer.status, answer.headers, answer.content_type)
        head.append(f"Content-Length: {len(answer.body)}")
        head.append("Connection: close" if closes else "Keep-Alive: timeout=5, max=100")
        is_head = self._request.method == "HEAD"
        if is_head and answer.status < 400:
            head.append("Accept-Ranges: bytes")
        self._end(_block(head) + (b"" if is_head else answer.body), closes=closes)

    def open_stream(self) -> None:
        """Send the head of an event stream."""
        if not self.is_open or self.is_streaming:
            return
        self.is_streaming = True
        head = self._head(200, (("X-Accel-Buffering", "no"),), "text/event-stream")
        head.append("Transfer-Encoding: chunked")
        head.append("Connection: close" if self._closes else "Keep-Alive: timeout=5, max=100")
        self._connection.write(_block(head))

    def write(self, data: bytes) -> None:
        """Send one chunk."""
        if self.is_open and data:
            self._connection.write(b"%x\r\n%b\r\n" % (len(data), data))

    def end_stream(self, data: bytes = b"") -> None:
        """Send the last chunk and close the connection, whatever was advertised."""
        if not self.is_open:
            return
        self.write(data)
        self._end(b"0\r\n\r\n", closes=True)

    def reset(self) -> None:
        """Break the connection off."""
        if self.is_open:
            self.is_open = False
            self._connection.abort()

    def _head(
        self, status: int, headers: tuple[tuple[str, str], ...], content_type: str
    ) -> list[str]:
        origin = self._request.headers.get("origin", "")
        head = [
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
            "Server: llama.cpp",
            f"Access-Control-Allow-Origin: {origin}",
        ]
        head += [f"{name}: {value}" for name, value in headers]
        if content_type:
            head.append(f"Content-Type: {content_type}")
        return head

    def _end(self, data: bytes, *, closes: bool) -> None:
        self.is_open = False
        self._connection.write(data)
        self._connection.ended(closes=closes)


def _block(head: list[str]) -> bytes:
    return ("\r\n".join(head) + "\r\n\r\n").encode("latin-1")


class Connection(asyncio.Protocol):
    """Reads requests and hands them to the application in order, one at a time."""

    _transport: asyncio.Transport

    def __init__(self, application: Application, *, idle_seconds: float) -> None:
        self._application = application
        self._idle_seconds = idle_seconds
        self._parser = httptools.HttpRequestParser(self)
        self._request = Request()
        self._target = b""
        self._chunks: list[bytes] = []
        self._size = 0
        self._answered = 0
        self._exchange: Exchange | None = None
        # Pipelined requests: read, not yet begun.
        self._waiting: deque[tuple[Request, bool]] = deque()
        self._idle_timer: asyncio.TimerHandle | None = None
        self._is_closing = False
        self._lingers = False
        self._is_local = False

    # The transport's side.

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        peer = transport.get_extra_info("peername")
        self._is_local = bool(peer) and ip_address(peer[0]).is_loopback
        self._application.connected(self)
        self._rest()

    @override
    def data_received(self, data: bytes) -> None:
        if self._is_closing:
            return
        self._stir()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError:
            raise  # a fault of ours
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._refuse(Answer(400, content_type=""))

    @override
    def eof_received(self) -> bool:
        """Take a half-close for a disconnect, as llama-server does."""
        self._gone()
        return False

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._stir()
        self._gone()
        self._application.disconnected(self)

    def _gone(self) -> None:
        self._waiting.clear()
        exchange, self._exchange = self._exchange, None
        if exchange is not None and exchange.is_open:
            exchange.is_open = False
            self._application.left(exchange)

    # The parser's side.

    def on_message_begin(self) -> None:
        self._request = Request()
        self._chunks = []
        self._size = 0
        self._target = b""

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._request.headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))

    def on_headers_complete(self) -> None:
        request = self._request
        request.is_local = self._is_local
        request.method = self._parser.get_method().decode("latin-1")
        request.set_target(self._target.decode("latin-1"))
        refusal = self._application.precheck(request)
        if refusal is None and "content-encoding" in request.headers:
            refusal = Answer(415, content_type="")
        if refusal is not None:
            self._refuse(refusal)
        elif request.headers.get("expect", "").lower() == "100-continue":
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._size += len(body)
        if self._size > MAX_BODY_BYTES:
            self._refuse(Answer(413, content_type=""))
        elif not self._is_closing:
            self._chunks.append(body)

    def on_message_complete(self) -> None:
        if self._is_closing:
            return
        self._request.body = b"".join(self._chunks)
        self._waiting.append((self._request, not self._parser.should_keep_alive()))
        self._begin_next()

    def _begin_next(self) -> None:
        if self._exchange is not None or not self._waiting or self._is_closing:
            return
        request, closes = self._waiting.popleft()
        self._answered += 1
        exchange = Exchange(self, request, closes=closes or self._answered >= MAX_REQUESTS)
        self._exchange = exchange
        self._application.handle(request, exchange)

    def _refuse(self, answer: Answer) -> None:
        """Answer before the body is read, and read on for a while: else a reset could overtake."""
        if self._is_closing:
            return
        self._lingers = True
        self._exchange = exchange = Exchange(self, self._request, closes=True)
        exchange.answer(answer)

    # The exchange's side.

    def write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    def ended(self, *, closes: bool) -> None:
        self._exchange = None
        if closes:
            self._is_closing = True
            self._close()
        elif self._waiting:
            asyncio.get_running_loop().call_soon(self._begin_next)
        else:
            self._rest()

    def abort(self) -> None:
        """Reset the connection."""
        self._exchange = None
        self._is_closing = True
        raw = self._transport.get_extra_info("socket")
        if raw is not None and raw.fileno() >= 0:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._transport.abort()

    def _close(self) -> None:
        if not self._lingers or not self._transport.can_write_eof():
            self._transport.close()
        elif not self._transport.is_closing():
            self._transport.write_eof()
            loop = asyncio.get_running_loop()
            self._idle_timer = loop.call_later(LINGER_SECONDS, self._transport.close)

    def _rest(self) -> None:
        self._stir()
        loop = asyncio.get_running_loop()
        self._idle_timer = loop.call_later(self._idle_seconds, self._transport.close)

    def _stir(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
