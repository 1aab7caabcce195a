"""Which connections are used again, and that none is which the server is about to close."""

from __future__ import annotations

import asyncio

import pytest
from typing_extensions import override

from slotgate.errors import ExchangeClosedError, UnreachableError
from slotgate.net.client import Client
from slotgate.net.connection import Connection
from slotgate.net.pool import idle_seconds
from tests.net.conftest import ServerFactory
from tests.net.scripted import Peer, Script, answer, answer_and_close, chunked, plain, wait_until

KEPT = plain(b"ok", b"Keep-Alive: timeout=5, max=100")


async def get(client: Client, *, single_use: bool = False) -> bytes:
    exchange = client.exchange("POST", "/tokenize", body=b"{}", single_use=single_use)
    await exchange.open()
    return await exchange.read_all(1 << 20)


@pytest.mark.parametrize(
    ("status", "keep_alive", "uses", "seconds"),
    [
        (200, None, 1, 2.0),
        (200, b"timeout=5, max=100", 1, 2.0),
        (200, b"timeout=1", 1, 0.5),
        (200, b"Timeout = 3", 1, 1.5),
        (200, b'timeout="2"', 1, 1.0),
        (200, b"timeout=0", 1, 0.0),
        (200, b"max=100", 98, 2.0),
        (200, b"max=100", 99, 0.0),
        (200, b"max=1", 1, 0.0),
        (200, b"max=0", 1, 0.0),
        (200, b"nonsense", 1, 2.0),
        (399, None, 1, 2.0),
        (400, None, 1, 0.0),
        (503, b"timeout=5", 1, 0.0),
    ],
)
def test_a_connection_rests_half_the_granted_time_and_never_for_the_last_request(
    status: int, keep_alive: bytes | None, uses: int, seconds: float
) -> None:
    headers = [(b"date", b"now")] + ([(b"keep-alive", keep_alive)] if keep_alive else [])
    assert idle_seconds(status, headers, uses) == seconds


@pytest.mark.anyio
@pytest.mark.parametrize("wire", [KEPT, chunked(b"o", b"k"), plain(b"ok")])
async def test_a_clean_connection_is_used_again(
    scripted_server: ServerFactory, wire: bytes
) -> None:
    server = await scripted_server(answer(wire))
    client = server.client()
    for _ in range(5):
        assert await get(client) == b"ok"
    assert len(server.peers) == 1
    assert len(server.requests) == 5
    assert client.idle_connections == 1
    client.close()
    assert client.idle_connections == 0
    await wait_until(lambda: not server.running)


@pytest.mark.anyio
async def test_single_use_neither_takes_from_the_pool_nor_gives_to_it(
    scripted_server: ServerFactory,
) -> None:
    server = await scripted_server(answer(KEPT))
    client = server.client()
    await get(client)
    for _ in range(2):
        await get(client, single_use=True)
    assert len(server.peers) == 3
    assert client.idle_connections == 1
    client.close()


@pytest.mark.anyio
@pytest.mark.parametrize(
    "wire",
    [
        plain(b"ok", b"Connection: close"),
        plain(b"ok", b"connection: Close"),
        plain(b"ok", b"Keep-Alive: timeout=5, max=1"),
        plain(b"ok", b"Keep-Alive: timeout=0"),
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        plain(b"ok", status=b"404 Not Found"),
        plain(b"ok", status=b"500 Error"),
        plain(b"ok") + b"x",
        plain(b"ok") + plain(b"another"),
    ],
    ids=["close", "Close", "max", "timeout", "1.0", "404", "500", "surplus", "second-answer"],
)
async def test_a_doomed_connection_is_closed_and_not_used_again(
    scripted_server: ServerFactory, wire: bytes
) -> None:
    server = await scripted_server(answer(wire))
    client = server.client()
    for _ in range(3):
        assert await get(client) == b"ok"
    assert len(server.peers) == 3
    assert client.idle_connections == 0
    await wait_until(lambda: not server.running)


@pytest.mark.anyio
async def test_the_last_request_that_a_server_grants_is_not_used(
    scripted_server: ServerFactory,
) -> None:
    server = await scripted_server(answer(plain(b"ok", b"Keep-Alive: timeout=5, max=4")))
    client = server.client()
    for _ in range(6):
        await get(client)
    assert [len(peer.requests) for peer in server.peers] == [3, 3]
    client.close()


@pytest.mark.anyio
async def test_an_idle_connection_expires_and_is_closed(scripted_server: ServerFactory) -> None:
    server = await scripted_server(answer(plain(b"ok", b"Keep-Alive: timeout=1")))
    client = server.client()
    await get(client)
    assert client.idle_connections == 1
    started = asyncio.get_running_loop().time()
    await wait_until(lambda: not server.running)
    assert client.idle_connections == 0
    assert asyncio.get_running_loop().time() - started >= 0.4


@pytest.mark.anyio
async def test_idle_connections_expire_each_in_its_time(scripted_server: ServerFactory) -> None:
    async def play(peer: Peer) -> None:
        await wait_until(lambda: len(server.peers) == 2)
        seconds = 4 if peer is server.peers[0] else 1
        await answer(plain(b"ok", b"Keep-Alive: timeout=%d" % seconds))(peer)

    server = await scripted_server(play)
    client = server.client()
    await asyncio.gather(get(client), get(client))
    assert client.idle_connections == 2
    await wait_until(lambda: client.idle_connections == 1)
    assert await get(client) == b"ok"
    assert len(server.peers) == 2
    client.close()


async def answer_then_close_idle(peer: Peer) -> None:
    await peer.read_request()
    await peer.send(KEPT)
    await asyncio.sleep(0)
    peer.close()


async def answer_then_speak_idle(peer: Peer) -> None:
    await peer.read_request()
    await peer.send(KEPT)
    for _ in range(5):
        await asyncio.sleep(0)
    await peer.send(b"H")
    await peer.wait_closed_by_client()


@pytest.mark.anyio
@pytest.mark.parametrize("script", [answer_then_close_idle, answer_then_speak_idle])
async def test_an_idle_connection_that_ends_or_speaks_is_discarded_at_once(
    scripted_server: ServerFactory, script: Script
) -> None:
    server = await scripted_server(script)
    client = server.client()
    await get(client)
    # Long before it would expire, which is after 2 s.
    await wait_until(lambda: not server.running, within_seconds=1.5)
    await wait_until(lambda: client.idle_connections == 0, within_seconds=1.5)
    await get(client)
    assert len(server.peers) == 2
    client.close()


@pytest.mark.anyio
async def test_a_connection_that_the_server_closes_as_we_use_it_is_replaced(
    scripted_server: ServerFactory,
) -> None:
    async def answer_then_drop_the_next(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(KEPT)
        await peer.read_head()
        peer.close()

    server = await scripted_server(answer_then_drop_the_next, answer(KEPT))
    client = server.client()
    assert await get(client) == b"ok"
    assert await get(client) == b"ok"
    assert [len(peer.requests) for peer in server.peers] == [2, 1]
    client.close()


@pytest.mark.anyio
async def test_a_connection_reset_as_we_use_it_is_replaced(
    scripted_server: ServerFactory,
) -> None:
    async def answer_then_reset_the_next(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(KEPT)
        await peer.read_head()
        peer.reset()

    server = await scripted_server(answer_then_reset_the_next, answer(KEPT))
    client = server.client()
    assert await get(client) == b"ok"
    assert await get(client) == b"ok"
    assert len(server.peers) == 2
    client.close()


@pytest.mark.anyio
async def test_a_fresh_connection_is_not_replaced_when_it_dies(
    scripted_server: ServerFactory,
) -> None:
    async def answer_then_drop_the_next(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(KEPT)
        await peer.read_head()
        peer.close()

    async def drop(peer: Peer) -> None:
        await peer.read_request()
        peer.close()

    server = await scripted_server(answer_then_drop_the_next, drop, answer(KEPT))
    client = server.client()
    await get(client)
    with pytest.raises(UnreachableError):
        await get(client)
    assert len(server.peers) == 2


@pytest.mark.anyio
async def test_an_answer_that_had_begun_is_not_asked_for_again(
    scripted_server: ServerFactory,
) -> None:
    async def answer_then_begin(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(KEPT)
        await peer.read_request()
        await peer.send(b"HTTP/1.1 ")
        peer.close()

    server = await scripted_server(answer_then_begin, answer(KEPT))
    client = server.client()
    await get(client)
    with pytest.raises(Exception, match="closed in the middle of the head"):
        await get(client)
    assert len(server.peers) == 1


@pytest.mark.anyio
async def test_no_number_of_closes_at_the_worst_moment_fails_a_request(
    scripted_server: ServerFactory,
) -> None:
    """The server ends each idle connection while the next request is on its way."""

    async def race(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(KEPT)
        for _ in range(len(server.peers) % 5):
            await asyncio.sleep(0)
        peer.close()

    server = await scripted_server(race)
    client = server.client()
    for turns in range(60):
        assert await get(client) == b"ok"
        for _ in range(turns % 4):
            await asyncio.sleep(0)
    client.close()


@pytest.mark.anyio
async def test_a_connection_whose_answer_was_left_half_read_is_closed(
    scripted_server: ServerFactory,
) -> None:
    async def half(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(plain(b"x" * 100)[:-50])
        await peer.wait_closed_by_client()

    server = await scripted_server(half)
    client = server.client()
    exchange = client.exchange("GET", "/")
    await exchange.open()
    exchange.close()
    assert client.idle_connections == 0
    await wait_until(lambda: not server.running)


@pytest.mark.anyio
async def test_the_connection_is_free_before_the_answer_has_been_read(
    scripted_server: ServerFactory,
) -> None:
    server = await scripted_server(answer(KEPT))
    client = server.client()
    await get(client)
    first = client.exchange("GET", "/")
    await first.open()
    assert first.is_complete
    assert client.idle_connections == 1
    assert await get(client) == b"ok"
    assert await first.read() == b"ok"
    assert len(server.peers) == 1
    client.close()


class SlowToTell(Client):
    """Its loop takes a while to tell that a connection stands."""

    told: asyncio.Event

    @override
    async def connect(self, connection: Connection) -> None:
        await super().connect(connection)
        await self.told.wait()


@pytest.mark.anyio
@pytest.mark.parametrize("ending", ["opened", "cancelled", "closed"])
async def test_an_answer_faster_than_the_news_of_the_connection_is_taken(
    scripted_server: ServerFactory, ending: str
) -> None:
    server = await scripted_server(answer(KEPT))
    client = SlowToTell(server.address)
    client.told = asyncio.Event()
    exchange = client.exchange("GET", "/")
    opening = asyncio.ensure_future(exchange.open())
    await wait_until(lambda: exchange.is_complete)
    # Whoever cancels the opening now makes the loop close the connection: it is nobody's yet.
    assert client.idle_connections == 0
    if ending == "cancelled":
        opening.cancel()
        await asyncio.wait([opening])
        await wait_until(lambda: not server.running)
        assert client.idle_connections == 0
        return
    if ending == "closed":
        exchange.close()
    for _ in range(3):
        await asyncio.sleep(0)
    assert not opening.done()
    client.told.set()
    await asyncio.wait([opening])
    assert client.idle_connections == 1
    if ending == "opened":
        assert await exchange.read_all(10) == b"ok"
    else:
        assert isinstance(opening.exception(), ExchangeClosedError)
    assert await get(client) == b"ok"
    assert len(server.peers) == 1
    client.close()


@pytest.mark.anyio
async def test_as_many_connections_are_opened_as_are_asked_for(
    scripted_server: ServerFactory,
) -> None:
    async def play(peer: Peer) -> None:
        await peer.read_request()
        await wait_until(lambda: len(server.requests) == 200, within_seconds=20)
        await peer.send(KEPT)
        await peer.wait_closed_by_client()

    server = await scripted_server(play)
    client = server.client()
    assert await asyncio.gather(*(get(client) for _ in range(200))) == [b"ok"] * 200
    assert len(server.peers) == 200
    client.close()


@pytest.mark.anyio
async def test_a_closed_client_keeps_no_connection(scripted_server: ServerFactory) -> None:
    server = await scripted_server(answer_and_close(KEPT))
    client = server.client()
    client.close()
    await get(client)
    assert client.idle_connections == 0
    client.close()
