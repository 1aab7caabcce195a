"""How a whole answer goes to its client, and which headers pass the gateway on either side.

Rule: an allow-list towards the backend, so that no client reaches more of it than it must; a short
list of what stays here towards the client, so that a backend's answer is its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slotgate.http.problems import Problem
    from slotgate.http.request import Request
    from slotgate.net.exchange import Exchange
    from slotgate.wire.routes import Shape

    Headers = list[tuple[bytes, bytes]]

JSON = b"application/json; charset=utf-8"
# Client headers that reach a backend.  Everything else stops here.
FORWARDED_HEADERS = (b"accept", b"content-type", b"traceparent", b"tracestate", b"x-request-id")
# Backend headers that do not reach a client: hop-by-hop, or the gateway's own affair.
DROPPED_HEADERS = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"content-length",
        b"access-control-allow-origin",
        b"access-control-allow-credentials",
        b"date",
        b"x-request-id",
    }
)


async def answer(request: Request, shape: Shape | None, problem: Problem) -> None:
    """Reply with an error of ours, in the shape of the route."""
    headers = [*problem.headers(), (b"x-request-id", request.id.encode())]
    await request.reply(problem.status(shape), headers, problem.body(shape))


async def reply_plain(request: Request, exchange: Exchange, headers: Headers, body: bytes) -> None:
    """Reply with the backend's answer as it is, under our `headers` and its own."""
    headers = [*headers, *passed_headers(exchange)]
    if request.method == "HEAD":
        # The length is that of the body which GET would have brought.
        lengths = [pair for pair in exchange.headers if pair[0] == b"content-length"]
        await request.send_head(exchange.status, [*headers, *lengths])
        await request.send_part(b"", is_last=True)
    else:
        await request.reply(exchange.status, headers, body)


def forwarded_headers(request: Request) -> Headers:
    """The client's headers that a backend may see."""
    headers = request.headers
    return [(name, headers[name]) for name in FORWARDED_HEADERS if name in headers]


def passed_headers(exchange: Exchange) -> Headers:
    """The backend's headers that a client may see."""
    return [pair for pair in exchange.headers if pair[0] not in DROPPED_HEADERS]


def is_event_stream(exchange: Exchange) -> bool:
    """Whether the answer is a stream of events, and no error."""
    return exchange.status == 200 and any(
        name == b"content-type" and value.startswith(b"text/event-stream")
        for name, value in exchange.headers
    )
