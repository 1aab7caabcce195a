"""One request as ASGI gives it: its head in a handy form, and its body within limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from slotgate.errors import ExchangeClosedError, SlotgateError
from slotgate.http.problems import Problem
from slotgate.http.server import ON_LEAVING
from slotgate.http.whole import write_whole
from slotgate.wire.routes import ADMIN_PREFIX

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]

# Longest value of a client's own x-request-id that is taken over.
REQUEST_ID_LIMIT = 128
# Web pages of any origin may read the answers, as llama-server has it, and unlike there what a
# header says of a refusal; but not what is the operator's.
FOR_PAGES = (
    (b"access-control-allow-origin", b"*"),
    (b"access-control-expose-headers", b"*"),
)


class ProblemError(SlotgateError):
    """Carries a `Problem` up to where it is answered."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class Request:
    """One HTTP request."""

    __slots__ = (
        "_on_leaving",
        "_raw_path",
        "has_answered",
        "id",
        "method",
        "path",
        "query",
        "raw_headers",
        "receive",
        "send",
    )

    def __init__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query: bytes = scope["query_string"]
        self._raw_path: bytes = scope["raw_path"]
        self._on_leaving: Callable[[Callable[[], None] | None], None] = scope[ON_LEAVING]
        self.raw_headers: list[tuple[bytes, bytes]] = scope["headers"]
        self.receive = receive
        self.send = send
        self.id = ""
        self.has_answered = False

    @property
    def headers(self) -> dict[bytes, bytes]:
        """The headers by lower-cased name, the last of several equal ones.

        Made anew each time: thousands of requests wait, and each would keep its own.
        """
        return dict(self.raw_headers)

    def param(self, name: str) -> str | None:
        """Return a query parameter; an empty string when it stands there without a value."""
        pairs = parse_qsl(self.query.decode("latin-1"), keep_blank_values=True)
        return next((value for key, value in pairs if key == name), None)

    @property
    def target(self) -> str:
        """Path and query, as the client wrote them."""
        path = self._raw_path.decode("latin-1")
        return f"{path}?{self.query.decode('latin-1')}" if self.query else path

    def own_id(self) -> str | None:
        """Return the client's own x-request-id, if it is fit to be echoed and logged."""
        value = self.headers.get(b"x-request-id", b"")
        if 0 < len(value) <= REQUEST_ID_LIMIT and value.isascii():
            text = value.decode()
            return text if text.isprintable() else None
        return None

    def on_leaving(self, hook: Callable[[], None] | None) -> None:
        """Have the hook called once, when the client leaves; None takes it back."""
        self._on_leaving(hook)

    async def read_body(self, limit_bytes: int) -> bytes:
        """Read the whole body; how long that may take is the connection's affair.

        Raises `ProblemError` when it is too large, and `ExchangeClosedError` when the client
        leaves first.
        """
        headers = self.headers
        declared = headers.get(b"content-length", b"")
        if declared.isdigit() and int(declared) > limit_bytes:
            raise _too_large(int(declared), limit_bytes)
        chunks: list[bytes] = []
        size, more = 0, True
        while more:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ExchangeClosedError("the client left")
            more = message["more_body"]
            chunks.append(message["body"])
            size += len(chunks[-1])
            if size > limit_bytes:
                raise _too_large(size, limit_bytes)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def reply(
        self, status: int, headers: list[tuple[bytes, bytes]], body: bytes = b""
    ) -> None:
        """Send a whole response."""
        self.has_answered = True
        await write_whole(self.send, status, self._shown(headers), body)

    async def send_head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """Send the head of a response; without a content-length its body goes in chunks."""
        self.has_answered = True
        start = {"type": "http.response.start", "status": status, "headers": self._shown(headers)}
        await self.send(start)

    async def send_part(self, body: bytes, *, is_last: bool = False) -> None:
        """Send a part of a response's body."""
        await self.send({"type": "http.response.body", "body": body, "more_body": not is_last})

    async def reply_json(self, status: int, body: bytes) -> None:
        """Send a whole JSON response."""
        await self.reply(status, [(b"content-type", b"application/json; charset=utf-8")], body)

    def _shown(self, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        return headers if self.path.startswith(ADMIN_PREFIX) else [*headers, *FOR_PAGES]


def _too_large(size: int, limit: int) -> ProblemError:
    words = f"the body has {size} bytes or more and limits.max_body_bytes is {limit}"
    return ProblemError(Problem("request_too_large", words))
