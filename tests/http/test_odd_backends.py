"""Backends that are no plain llama-server: a router with a dead child, servers of other makes."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from tests.http.by_hand import served_by
from tests.http.rig import CHAT, chat, gateway_at

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio

PROPS = b'{"default_generation_settings":{"n_ctx":4096},"total_slots":2}'
WHOLE = b'{"object":"chat.completion","choices":[{"message":{"content":"hi"}}],"usage":{}}'
FRAME = b'data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":null}]}\n\n'


def plain(body: bytes, status: bytes = b"200 OK") -> bytes:
    head = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % (status, len(body)) + body


def stream(*pieces: bytes) -> bytes:
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return head + chunks + b"0\r\n\r\n"


@contextlib.asynccontextmanager
async def backend(answer: bytes, props: bytes = plain(PROPS)) -> AsyncIterator[str]:
    """A server that gives every POST the same answer."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"POST"):
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                await reader.readexactly(length)
                writer.write(answer)
            elif b" /props" in head:
                writer.write(props)
            elif b" /health" in head:
                writer.write(plain(b'{"status":"ok"}'))
            else:
                writer.write(plain(b"{}", b"404 Not Found"))
            await writer.drain()
        writer.close()

    async with served_by(serve) as url:
        yield url


@pytest.mark.parametrize("wants_stream", [True, False])
async def test_a_stream_that_ends_cleanly_without_its_end_mark_is_a_broken_answer(
    wants_stream: bool,
) -> None:
    async with backend(stream(FRAME)) as url, gateway_at(url) as rig:
        answer = await rig.post(CHAT, chat(stream=wants_stream))
        assert answer.status == (200 if wants_stream else 502)
        assert b"backend_unreachable" in answer.body
        assert rig.counts.processing == 0


@pytest.mark.parametrize("wants_stream", [True, False])
async def test_a_routers_word_of_its_dead_child_is_an_error(wants_stream: bool) -> None:
    broken = stream(FRAME, b"proxy error: Failed to read connection\n")
    async with backend(broken) as url, gateway_at(url) as rig:
        answer = await rig.post(CHAT, chat(stream=wants_stream))
        assert b"proxy error: Failed to read connection" in answer.body
        if not wants_stream:
            assert answer.status == 500
        assert rig.counts.processing == 0


async def test_an_empty_stream_is_a_broken_answer() -> None:
    async with backend(stream()) as url, gateway_at(url) as rig:
        assert (await rig.post(CHAT, chat(stream=True))).status == 502
        assert (await rig.post(CHAT, chat())).status == 502
        assert rig.counts.processing == 0


async def test_a_server_that_does_not_stream_is_passed_as_it_is() -> None:
    async with backend(plain(WHOLE)) as url, gateway_at(url) as rig:
        for wants_stream in (True, False):
            answer = await rig.post(CHAT, chat(stream=wants_stream))
            assert answer.status == 200
            assert answer.body == WHOLE


async def test_a_server_without_props_has_the_slots_of_the_configuration() -> None:
    nothing = plain(b"{}", b"404 Not Found")
    async with backend(plain(WHOLE), nothing) as url:
        async with gateway_at(url, backend={"slots": 3}) as rig:
            assert rig.counts.slots == 3
            assert (await rig.post(CHAT, chat())).status == 200
        async with gateway_at(url) as rig:
            assert rig.counts.slots == 1


async def test_an_answer_that_is_no_http_is_a_502() -> None:
    async with backend(b"SSH-2.0-OpenSSH\r\n\r\n") as url, gateway_at(url) as rig:
        answer = await rig.post(CHAT, chat())
        assert answer.status == 502
        assert answer.headers["retry-after"] == "1"
