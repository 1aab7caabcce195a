"""What a client may do to a connection, before any route is looked at."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from slotgate.config import LimitSettings
from slotgate.http.server import listen, listen_unix, make_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.anyio

PATIENCE_SECONDS = 10.0


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the path and the number of body bytes."""
    size = 0
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size += len(message["body"])
        more = message["more_body"]
    body = f"{scope['path']} {size}".encode()
    head = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def deaf(scope: Any, receive: Any, send: Any) -> None:
    """Answer at once, without reading the body."""
    await send(
        {"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"0")]}
    )
    await send({"type": "http.response.body", "body": b"", "more_body": False})


@contextlib.asynccontextmanager
async def serving(app: Any = echo, **limits: Any) -> AsyncIterator[int]:
    sock = listen("127.0.0.1", 0)
    server = make_server(app, LimitSettings(**limits))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(server.serve(sockets=[sock]))
        try:
            yield sock.getsockname()[1]
        finally:
            server.should_exit = True
            await task


async def talk(port: int, data: bytes, *, eof: bool = False) -> bytes:
    """Send bytes and return all that comes until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        with contextlib.suppress(ConnectionError):
            writer.write(data)
            await writer.drain()
            if eof:
                writer.write_eof()
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


BODY = b"hello"
MALFORMED = {
    "both lengths": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n",
    "both lengths, other order": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
    b"Content-Length: 5\r\n\r\n0\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n"
    b"Content-Length: 6\r\n\r\nhello",
    "a length that is no number": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5x\r\n\r\nhello",
    "a negative length": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\nhello",
    "an absurd length": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: " + b"9" * 40 + b"\r\n\r\n",
    "an unknown transfer coding": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: zork\r\n\r\n",
    "chunked twice": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n",
    "bare line feeds": b"GET / HTTP/1.1\nHost: x\n\n",
    "a bare line feed between headers": b"GET / HTTP/1.1\r\nHost: x\nA: b\r\n\r\n",
    "a bare carriage return in a value": b"GET / HTTP/1.1\r\nHost: x\rA: b\r\n\r\n",
    "a space before the colon": b"GET / HTTP/1.1\r\nHost : x\r\n\r\n",
    "a folded header": b"GET / HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n",
    "a NUL in a value": b"GET / HTTP/1.1\r\nHost: x\x00y\r\n\r\n",
    "a chunk size that is no number": b"POST / HTTP/1.1\r\nHost: x\r\n"
    b"Transfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
    "a chunk size with a bare line feed": b"POST / HTTP/1.1\r\nHost: x\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n",
    "no HTTP at all": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "an unknown version": b"GET / HTTP/3.7\r\nHost: x\r\n\r\n",
    "HTTP/0.9": b"GET /\r\n\r\n",
    "a path that is not ASCII": b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
}


@pytest.mark.parametrize("request_bytes", MALFORMED.values(), ids=MALFORMED.keys())
async def test_malformed_http_is_refused_once_and_the_connection_closed(
    request_bytes: bytes,
) -> None:
    async with serving() as port:
        answer = await talk(port, request_bytes)
    assert status_of(answer) == 400
    assert answer.count(b"HTTP/1.1 ") == 1, "what followed was taken for another request"
    assert b"smuggled" not in answer
    assert b'"src":"slotgate"' in answer


async def test_a_well_formed_request_passes_and_the_connection_stays() -> None:
    request = b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
    last = b"GET /b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    async with serving() as port:
        answer = await talk(port, request + last)
    assert answer.count(b"HTTP/1.1 200") == 2
    assert b"/a 5" in answer
    assert b"/b 0" in answer


async def test_a_chunked_body_is_read() -> None:
    request = (
        b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        b"5\r\nhello\r\n6;ext=1\r\n world\r\n0\r\n\r\n"
    )
    async with serving() as port:
        assert b"/a 11" in await talk(port, request)


async def test_a_head_that_never_ends_is_cut_off_in_time() -> None:
    async with serving(head_timeout=0.1) as port:
        answer = await talk(port, b"GET / HTTP/1.1\r\nHost: x\r\n")
    assert status_of(answer) == 408
    assert b"limits.head_timeout" in answer


async def test_a_connection_that_says_nothing_is_cut_off_in_time() -> None:
    async with serving(head_timeout=0.1) as port:
        assert status_of(await talk(port, b"")) == 408


async def test_a_body_that_never_comes_is_cut_off_in_time() -> None:
    async with serving(body_timeout=0.1) as port:
        head = b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhel"
        answer = await talk(port, head)
    assert status_of(answer) == 408
    assert b"limits.body_timeout" in answer


async def test_a_second_head_that_never_ends_is_cut_off_too() -> None:
    first = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"
    async with serving(head_timeout=0.1) as port:
        answer = await talk(port, first + b"GET /b HTTP/1.1\r\nHo")
    assert b"/a 0" in answer
    assert b"HTTP/1.1 408" in answer


@pytest.mark.parametrize(
    "head",
    [
        b"".join(b"X-%d: y\r\n" % number for number in range(20)),
        b"X: " + b"y" * 2000 + b"\r\n",
    ],
    ids=["too many headers", "a header too long"],
)
async def test_an_absurd_head_is_refused(head: bytes) -> None:
    async with serving(max_header_count=16, max_head_bytes=1024) as port:
        answer = await talk(port, b"GET / HTTP/1.1\r\n" + head + b"\r\n")
    assert status_of(answer) == 431


async def test_a_header_without_end_is_refused_before_it_fills_the_memory() -> None:
    async with serving(max_head_bytes=4096) as port:
        answer = await talk(port, b"GET / HTTP/1.1\r\nX: " + b"y" * (1 << 20))
    assert answer == b"" or status_of(answer) == 431


async def test_an_overlong_path_is_refused() -> None:
    async with serving(max_head_bytes=4096) as port:
        answer = await talk(port, b"GET /" + b"y" * 8000 + b" HTTP/1.1\r\nHost: x\r\n\r\n")
    assert status_of(answer) == 431


async def test_a_body_that_nobody_reads_is_not_read_for_ever() -> None:
    async with serving(deaf, max_body_bytes=1024) as port:
        head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n"
        answer = await talk(port, head + bytes(20 << 20))
    assert answer == b"" or status_of(answer) == 401


async def test_connections_beyond_the_limit_are_told_so() -> None:
    async with serving(max_connections=1) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
        assert status_of(await talk(port, b"")) == 503
        writer.close()
        await writer.wait_closed()


async def test_a_client_that_expects_continue_is_told_to_go_on() -> None:
    request = (
        b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n"
        b"Connection: close\r\n\r\n"
    )
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(b"hello")
            assert b"/a 5" in await reader.read()
        writer.close()
        await writer.wait_closed()


async def test_a_dead_unix_socket_is_replaced_and_a_living_one_is_not(tmp_path: Path) -> None:
    path = str(tmp_path / "gateway.sock")
    listen_unix(path).close()
    living = listen_unix(path)
    with pytest.raises(OSError, match="another process"):
        listen_unix(path)
    living.close()
