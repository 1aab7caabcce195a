"""A reader that needs much at once is woken rarely, and never stalls the server by that."""

from __future__ import annotations

import asyncio

import pytest

from slotgate.errors import BrokenAnswerError
from slotgate.net.client import Client
from tests.net.conftest import ServerFactory
from tests.net.scripted import Peer, Script, wait_until

pytestmark = pytest.mark.anyio

PIECE = b"x" * 100


def pieces(count: int, gate: asyncio.Event, rest: int) -> Script:
    """Send some pieces, and the rest once the gate opens."""

    async def play(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (100 * (count + rest)))
        for _ in range(count):
            await peer.send(PIECE)
        await gate.wait()
        for _ in range(rest):
            await peer.send(PIECE)
        await peer.wait_closed_by_client()

    return play


async def test_so_many_bytes_are_waited_for(scripted_server: ServerFactory) -> None:
    gate = asyncio.Event()
    server = await scripted_server(pieces(3, gate, 4))
    with Client(server.address).exchange("GET", "/", single_use=True) as exchange:
        await exchange.open()
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(exchange.read(at_least=500))
            await wait_until(lambda: exchange.bytes_received >= 300)
            await asyncio.sleep(0)
            assert not reading.done()
            gate.set()
        first = reading.result()
        assert 500 <= len(first) <= 700
        assert first + await exchange.read_all(1000) == 7 * PIECE


async def test_the_end_comes_before_so_many_bytes(scripted_server: ServerFactory) -> None:
    gate = asyncio.Event()
    gate.set()
    server = await scripted_server(pieces(2, gate, 0))
    with Client(server.address).exchange("GET", "/", single_use=True) as exchange:
        await exchange.open()
        assert await exchange.read(at_least=1 << 20) == 2 * PIECE
        assert await exchange.read(at_least=1 << 20) == b""


async def test_more_than_the_high_water_mark_can_be_waited_for(
    scripted_server: ServerFactory,
) -> None:
    gate = asyncio.Event()
    gate.set()
    server = await scripted_server(pieces(5000, gate, 0))
    client = Client(server.address, high_water_bytes=1000)
    with client.exchange("GET", "/", single_use=True) as exchange:
        await exchange.open()
        await wait_until(lambda: exchange.bytes_received > 1000)
        assert len(await exchange.read_all(1 << 20)) == 500_000


async def test_a_body_beyond_the_limit_is_not_read_on(scripted_server: ServerFactory) -> None:
    gate = asyncio.Event()
    server = await scripted_server(pieces(5, gate, 1))
    with Client(server.address).exchange("GET", "/", single_use=True) as exchange:
        await exchange.open()
        with pytest.raises(BrokenAnswerError, match="larger than 300 bytes"):
            await exchange.read_all(300)
