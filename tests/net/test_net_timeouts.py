"""A silent backend: each of the three timeouts, and what does not count as silence."""

from __future__ import annotations

import asyncio

import pytest

from slotgate.errors import BackendTimeoutError
from slotgate.net.address import Address
from slotgate.net.client import Client, Exchange, Timeouts
from tests.net.conftest import ServerFactory
from tests.net.scripted import Peer, chunked, open_sockets, wait_until

pytestmark = pytest.mark.anyio

SHORT = 0.05
STREAM = chunked(b"one", b"two")


def exchange_with(server_address: Address, timeouts: Timeouts) -> Exchange:
    return Client(server_address, timeouts=timeouts).exchange("POST", "/", single_use=True)


async def turn_for(seconds: float) -> None:
    """Let the loop work for so long."""
    loop = asyncio.get_running_loop()
    due = loop.time() + seconds
    await wait_until(lambda: loop.time() >= due)


async def say_nothing(peer: Peer) -> None:
    await peer.wait_closed_by_client()


async def test_a_connection_that_does_not_stand_in_time_is_a_timeout(
    scripted_server: ServerFactory,
) -> None:
    """The server accepts, and never says a word of TLS."""
    server = await scripted_server(say_nothing)
    address = Address.parse(server.url.replace("http:", "https:"))
    exchange = exchange_with(address, Timeouts(connect=SHORT))
    with pytest.raises(BackendTimeoutError, match=r"no connection within 0\.05 s"):
        await exchange.open()
    assert not exchange.sent
    await wait_until(lambda: not server.running)


async def test_an_answer_that_does_not_come_in_time_is_a_timeout(
    scripted_server: ServerFactory,
) -> None:
    server = await scripted_server(say_nothing)
    exchange = exchange_with(server.address, Timeouts(first_byte=SHORT))
    with pytest.raises(BackendTimeoutError, match=r"no answer within 0\.05 s"):
        await exchange.open()
    assert exchange.sent
    await wait_until(lambda: not server.running)


async def test_one_exchange_may_have_its_own_patience(scripted_server: ServerFactory) -> None:
    server = await scripted_server(say_nothing)
    exchange = server.client().exchange("POST", "/", first_byte=SHORT)
    with pytest.raises(BackendTimeoutError, match="no answer"):
        await exchange.open()


async def test_a_head_that_drips_is_a_timeout_all_the_same(
    scripted_server: ServerFactory,
) -> None:
    async def drip(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")
        while True:
            await peer.send(b"x: y\r\n")
            await turn_for(SHORT / 5)

    server = await scripted_server(drip)
    exchange = exchange_with(server.address, Timeouts(first_byte=SHORT))
    with pytest.raises(BackendTimeoutError, match="no answer"):
        await exchange.open()


async def test_a_stream_that_stops_is_a_timeout_after_what_came(
    scripted_server: ServerFactory,
) -> None:
    async def stop(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(STREAM[:-10])
        await peer.wait_closed_by_client()

    server = await scripted_server(stop)
    exchange = exchange_with(server.address, Timeouts(idle=SHORT))
    await exchange.open()
    await wait_until(lambda: not server.running)
    assert await exchange.read() == b"one"
    with pytest.raises(BackendTimeoutError, match=r"nothing more of the answer within 0\.05 s"):
        await exchange.read()


async def test_an_upload_that_stops_is_a_timeout(scripted_server: ServerFactory) -> None:
    async def play(peer: Peer) -> None:
        await peer.read_head()
        await asyncio.get_running_loop().create_future()

    server = await scripted_server(play)
    client = Client(server.address, timeouts=Timeouts(first_byte=SHORT))
    exchange = client.exchange("POST", "/", body=b"x" * (60 << 20), single_use=True)
    with pytest.raises(BackendTimeoutError, match="no answer"):
        await exchange.open()


async def test_timeouts_leave_no_descriptor_behind(scripted_server: ServerFactory) -> None:
    server = await scripted_server(say_nothing)
    baseline = open_sockets()
    exchanges = [exchange_with(server.address, Timeouts(first_byte=SHORT / 10)) for _ in range(100)]
    errors = await asyncio.gather(*(each.open() for each in exchanges), return_exceptions=True)
    assert {type(error) for error in errors} == {BackendTimeoutError}
    await wait_until(lambda: open_sockets() == baseline)
