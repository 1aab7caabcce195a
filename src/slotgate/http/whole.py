"""A whole answer in one write: status line, headers and body.

ASGI sends the head and the body apart, and uvicorn checks, lowers and copies each header on the
way, which takes more than twice as long.  Here the same bytes are put together at once.  Streams go
the usual way.

Rule: what uvicorn notes of an answer is noted here in full, since it is what decides over the
connection afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    Header = tuple[bytes, bytes]

# A body up to this size is copied behind its head; a larger one is a write of its own.
JOINED_BYTES = 1 << 16


async def write_whole(
    send: Callable[..., Awaitable[None]], status: int, headers: Sequence[Header], body: bytes
) -> None:
    """Send a whole answer through the request that ASGI's `send` belongs to.

    Header names must be in lower case, and a length of the body is added.
    """
    cycle = cast("RequestResponseCycle", send.__self__)  # type: ignore[attr-defined]
    if cycle.flow.write_paused and not cycle.disconnected:
        await cycle.flow.drain()
    if cycle.disconnected:
        return
    if cycle.response_started:
        raise RuntimeError("a request is answered once")
    head = _head(status, headers, len(body), is_last=not cycle.keep_alive)
    if cycle.scope["method"] == "HEAD":
        body = b""
    if len(body) <= JOINED_BYTES:
        cycle.transport.write(head + body)
    else:
        cycle.transport.write(head)
        cycle.transport.write(body)
    _finish(cycle)


def _head(status: int, headers: Sequence[Header], length: int, *, is_last: bool) -> bytes:
    lines = [STATUS_LINE[status]]
    for name, value in headers:
        lines += name, b": ", value, b"\r\n"
    lines.append(b"content-length: %d\r\n" % length)
    if is_last:
        lines.append(b"connection: close\r\n")
    lines.append(b"\r\n")
    head = b"".join(lines)
    expected = len(headers) + 3 + is_last
    if head.count(b"\n") != expected or head.count(b"\r") != expected:
        raise RuntimeError("a header holds a line end")
    return head


def _finish(cycle: RequestResponseCycle) -> None:
    cycle.response_started = cycle.response_complete = True
    cycle.waiting_for_100_continue = False
    cycle.message_event.set()
    if not cycle.keep_alive:
        cycle.transport.close()
    cycle.on_response()
