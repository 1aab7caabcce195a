"""What is not silence, however long it takes: told by a clock that moves only when it is moved."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from slotgate.errors import BackendTimeoutError
from slotgate.net.client import Client, Timeouts
from tests.net.conftest import ServerFactory
from tests.net.scripted import ManualClockLoop, Peer, chunked, plain, turn, wait_until

pytestmark = pytest.mark.anyio

LIMIT = 10.0
HALF = 5.0
MIB = 1 << 20


@pytest.fixture
def anyio_backend() -> Any:
    return ("asyncio", {"loop_factory": ManualClockLoop})


def clock() -> ManualClockLoop:
    return cast("ManualClockLoop", asyncio.get_running_loop())


async def test_a_stream_that_goes_on_outlives_its_idle_timeout(
    scripted_server: ServerFactory,
) -> None:
    async def play(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(chunked(b"")[:-10])
        await peer.wait_closed_by_client()

    server = await scripted_server(play)
    client = Client(server.address, timeouts=Timeouts(idle=LIMIT))
    exchange = client.exchange("POST", "/", single_use=True)
    await exchange.open()
    for _ in range(10):
        await clock().advance(HALF)
        await server.peers[0].send(b"1\r\n.\r\n")
        assert await exchange.read() == b"."
    await clock().advance(LIMIT - 0.1)
    reading = asyncio.ensure_future(exchange.read())
    await turn(3)
    assert not reading.done()
    await clock().advance(0.1)
    with pytest.raises(BackendTimeoutError, match="nothing more of the answer within 10 s"):
        await reading


async def test_a_head_that_takes_all_its_time_leaves_the_body_its_own(
    scripted_server: ServerFactory,
) -> None:
    async def play(peer: Peer) -> None:
        await peer.read_request()
        await peer.wait_closed_by_client()

    server = await scripted_server(play)
    client = Client(server.address, timeouts=Timeouts(first_byte=LIMIT, idle=LIMIT))
    exchange = client.exchange("POST", "/", single_use=True)
    opening = asyncio.ensure_future(exchange.open())
    await wait_until(lambda: bool(server.requests))
    await clock().advance(LIMIT - 1)
    await server.peers[0].send(plain(b"hello")[:-5])
    await opening
    await clock().advance(LIMIT - 1)
    await server.peers[0].send(b"hello")
    assert await exchange.read_all(10) == b"hello"


async def test_a_short_idle_timeout_is_kept_to_after_a_long_one_for_the_head(
    scripted_server: ServerFactory,
) -> None:
    async def play(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(plain(b"hello")[:-5])
        await peer.wait_closed_by_client()

    server = await scripted_server(play)
    client = Client(server.address, timeouts=Timeouts(first_byte=1000, idle=LIMIT))
    exchange = client.exchange("POST", "/", single_use=True)
    await exchange.open()
    reading = asyncio.ensure_future(exchange.read())
    await clock().advance(LIMIT)
    with pytest.raises(BackendTimeoutError):
        await reading


async def test_a_reader_that_is_slow_is_not_a_server_that_is_silent(
    scripted_server: ServerFactory,
) -> None:
    async def play(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(plain(b"x" * 100_001)[:-1])
        await peer.wait_closed_by_client()

    server = await scripted_server(play)
    client = Client(server.address, timeouts=Timeouts(idle=LIMIT), high_water_bytes=1000)
    exchange = client.exchange("POST", "/", single_use=True)
    await exchange.open()
    size = 0
    for _ in range(5):
        await clock().advance(LIMIT)
        await clock().advance(HALF)
    while size < 100_000:
        size += len(await exchange.read())
    # Its patience begins anew where the reader has caught up.
    await clock().advance(LIMIT - 0.1)
    await server.peers[0].send(b"x")
    assert await exchange.read_all(10) == b"x"


async def test_an_upload_that_moves_outlives_the_timeout_for_the_answer(
    scripted_server: ServerFactory,
) -> None:
    async def play(peer: Peer) -> None:
        await peer.read_head()
        for _ in range(7):
            await turn(100)  # the client has filled all buffers by now
            await clock().advance(HALF)
            await peer.reader.readexactly(8 * MIB)
        await peer.reader.readexactly(4 * MIB)
        await peer.send(plain(b"thanks"))

    server = await scripted_server(play)
    client = Client(server.address, timeouts=Timeouts(first_byte=LIMIT))
    exchange = client.exchange("POST", "/", body=b"x" * (60 * MIB), single_use=True)
    await exchange.open()
    assert await exchange.read_all(100) == b"thanks"
