"""TLS, unix sockets, and how a socket is set."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path

import pytest

from slotgate.errors import BrokenAnswerError, UnreachableError
from slotgate.net.address import Address
from slotgate.net.client import Client
from slotgate.net.connection import Connection
from tests.net.conftest import ServerFactory
from tests.net.scripted import (
    Peer,
    answer,
    answer_and_close,
    chunked,
    open_sockets,
    plain,
    wait_until,
)

pytestmark = pytest.mark.anyio


async def test_tls_carries_kept_and_single_use_exchanges(
    scripted_server: ServerFactory, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    server = await scripted_server(answer(chunked(b"hello", b"there")), tls=server_tls)
    client = Client(server.address, ssl_context=client_tls)
    for single_use in (False, False, True, False):
        exchange = client.exchange("POST", "/", body=b"{}", single_use=single_use)
        await exchange.open()
        assert await exchange.read_all(100) == b"hellothere"
    assert [len(peer.requests) for peer in server.peers] == [3, 1]
    client.close()
    await wait_until(lambda: not server.running)


async def test_tls_carries_large_bodies_both_ways(
    scripted_server: ServerFactory, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    body = b"0123456789abcdef" * (1 << 18)

    async def echo(peer: Peer) -> None:
        request = await peer.read_request()
        await peer.send(plain(request.partition(b"\r\n\r\n")[2]))
        await peer.wait_closed_by_client()

    server = await scripted_server(echo, tls=server_tls)
    client = Client(server.address, ssl_context=client_tls, high_water_bytes=100_000)
    exchange = client.exchange("POST", "/", body=body, single_use=True)
    await exchange.open()
    assert await exchange.read_all(len(body)) == body
    await wait_until(lambda: not server.running)


async def test_a_certificate_nobody_vouches_for_is_unreachable_and_says_so(
    scripted_server: ServerFactory, server_tls: ssl.SSLContext
) -> None:
    server = await scripted_server(answer(plain(b"")), tls=server_tls)
    baseline = open_sockets()
    exchange = Client(server.address).exchange("GET", "/")
    with pytest.raises(UnreachableError, match="its certificate is not trusted"):
        await exchange.open()
    assert not exchange.sent
    await wait_until(lambda: open_sockets() == baseline)


async def test_a_server_without_tls_is_unreachable_over_https(
    scripted_server: ServerFactory,
) -> None:
    async def greet(peer: Peer) -> None:
        await peer.send(b"220 smtp.example ready\r\n")

    server = await scripted_server(greet)
    address = Address.parse(server.url.replace("http:", "https:"))
    with pytest.raises(UnreachableError, match="no connection: TLS failed"):
        await Client(address).exchange("GET", "/").open()


async def test_closed_at_any_turn_a_tls_exchange_leaves_nothing(
    scripted_server: ServerFactory, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async def hold(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(chunked(b"hello")[:-5])
        await peer.wait_closed_by_client()

    server = await scripted_server(hold, tls=server_tls)
    client = Client(server.address, ssl_context=client_tls)
    baseline = open_sockets()
    for turns in range(0, 40, 2):
        for is_cancelled in (False, True):
            exchange = client.exchange("POST", "/", single_use=True)

            async def work(exchange=exchange) -> None:  # type: ignore[no-untyped-def]
                with exchange:
                    await exchange.open()
                    await exchange.read_all(100)

            working = asyncio.ensure_future(work())
            for _ in range(turns):
                await asyncio.sleep(0)
            if is_cancelled:
                working.cancel()
            else:
                exchange.close()
            await asyncio.wait([working])
            assert working.cancelled() or working.exception() is not None
    await wait_until(lambda: not server.running)
    await wait_until(lambda: open_sockets() == baseline)


async def test_a_tls_connection_reset_in_the_body_is_broken(
    scripted_server: ServerFactory, server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    read = asyncio.Event()

    async def play(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(chunked(b"hello")[:-5])
        await read.wait()
        peer.reset()

    server = await scripted_server(play, tls=server_tls)
    client = Client(server.address, ssl_context=client_tls)
    exchange = client.exchange("POST", "/", single_use=True)
    await exchange.open()
    assert await exchange.read() == b"hello"
    read.set()
    with pytest.raises(BrokenAnswerError, match="the connection was"):
        await exchange.read()


async def test_a_unix_socket_is_spoken_to_with_its_prefix(
    scripted_server: ServerFactory, tmp_path: Path
) -> None:
    server = await scripted_server(answer_and_close(plain(b"hello")), unix_path=tmp_path / "s")
    client = Client(Address.parse(server.url + ":/llm"))
    exchange = client.exchange("GET", "/health", single_use=True)
    await exchange.open()
    assert await exchange.read_all(100) == b"hello"
    assert server.requests[0].startswith(b"GET /llm/health HTTP/1.1\r\nhost: localhost\r\n")


async def test_a_unix_socket_that_is_not_there_is_unreachable_and_says_so(tmp_path: Path) -> None:
    exchange = Client(Address.parse(f"unix://{tmp_path}/none")).exchange("GET", "/")
    with pytest.raises(UnreachableError, match="no such socket; is the server running"):
        await exchange.open()


class Idle:
    """An owner that does nothing."""

    def on_connected(self) -> None: ...
    def on_data(self, data: bytes) -> None: ...
    def on_lost(self, error: Exception | None) -> None: ...
    def on_writable(self) -> None: ...


async def test_small_writes_are_not_held_back(scripted_server: ServerFactory) -> None:
    """TCP_NODELAY is what the loops set on their own; this client counts on it."""
    server = await scripted_server(answer(plain(b"")))
    address = server.address

    connection = Connection(Idle())
    transport, _ = await asyncio.get_running_loop().create_connection(
        lambda: connection, address.host, address.port
    )
    raw = transport.get_extra_info("socket")
    assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    connection.abort()


async def test_a_connection_aborted_before_it_stands_is_closed_as_it_does(
    scripted_server: ServerFactory,
) -> None:
    async def hold(peer: Peer) -> None:
        await peer.wait_closed_by_client()

    server = await scripted_server(hold)
    address = server.address
    connection = Connection(Idle())
    connection.abort()
    await asyncio.get_running_loop().create_connection(
        lambda: connection, address.host, address.port
    )
    await wait_until(lambda: len(server.peers) == 1 and not server.running)
