"""Large bodies both ways: who is slow holds up the other, and an early answer is not lost."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import struct
import threading
from typing import Any

import anyio
import pytest

from slotgate.errors import BackendTimeoutError, UnreachableError
from slotgate.net.address import Address
from slotgate.net.client import Client, Exchange, Timeouts
from tests.net.conftest import ServerFactory
from tests.net.scripted import Peer, Script, plain, wait_until

pytestmark = pytest.mark.anyio

MIB = 1 << 20
ONE_READ = 256 * 1024  # the most that one read of either loop brings


async def wait_until_nothing_moves(exchange: Exchange) -> None:
    """Until no byte has arrived for many turns of the loop that the server shares."""
    seen, turns = -1, 0
    while turns < 200:
        await asyncio.sleep(0)
        turns = turns + 1 if exchange.bytes_received == seen else 0
        seen = exchange.bytes_received


def body_of(size: int) -> bytes:
    return hashlib.shake_128(b"body").digest(size)


def send_all(body: bytes) -> Script:
    async def play(peer: Peer) -> None:
        await peer.read_request()
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
        await peer.send(head)
        for start in range(0, len(body), 64 * 1024):
            await peer.send(body[start : start + 64 * 1024])
        await peer.wait_closed_by_client()

    return play


async def test_a_quiet_is_the_readers_own_while_it_leaves_what_has_come(
    scripted_server: ServerFactory,
) -> None:
    server = await scripted_server(send_all(body_of(MIB)))
    client = Client(server.address, high_water_bytes=MIB)
    with client.exchange("POST", "/", single_use=True) as exchange:
        await exchange.open()
        await wait_until(lambda: exchange.bytes_received > 64 * 1024)
        assert exchange.is_held
        await exchange.read()
        assert not exchange.is_held


async def test_a_slow_reader_stalls_the_server_at_the_high_water_mark(
    scripted_server: ServerFactory,
) -> None:
    body = body_of(32 * MIB)
    server = await scripted_server(send_all(body))
    client = Client(server.address, high_water_bytes=MIB)
    with client.exchange("POST", "/", single_use=True) as exchange:
        await exchange.open()
        await wait_until(lambda: exchange.bytes_received > MIB)
        await wait_until_nothing_moves(exchange)
        assert exchange.bytes_received <= MIB + ONE_READ
        # The server feels it: what it wants to write next has no room.
        assert server.peers[0].writer.transport.get_write_buffer_size() > 0
        assert await exchange.read_all(len(body)) == body


async def test_a_server_is_not_stalled_below_the_high_water_mark(
    scripted_server: ServerFactory,
) -> None:
    body = body_of(8 * MIB)
    server = await scripted_server(send_all(body))
    client = Client(server.address, high_water_bytes=8 * MIB)
    with client.exchange("POST", "/", single_use=True) as exchange:
        await exchange.open()
        await wait_until(lambda: exchange.is_complete)
        assert await exchange.read_all(len(body)) == body


async def test_reading_goes_on_each_time_the_reader_catches_up(
    scripted_server: ServerFactory,
) -> None:
    body = body_of(4 * MIB)
    server = await scripted_server(send_all(body))
    client = Client(server.address, high_water_bytes=64 * 1024)
    came = []
    with client.exchange("POST", "/", single_use=True) as exchange:
        await exchange.open()
        while True:
            await wait_until_nothing_moves(exchange)
            if not (data := await exchange.read()):
                break
            came.append(data)
    assert b"".join(came) == body
    assert max(map(len, came)) <= 64 * 1024 + ONE_READ


async def test_a_connection_that_was_held_up_is_still_good_for_the_pool(
    scripted_server: ServerFactory,
) -> None:
    body = body_of(MIB)

    async def play(peer: Peer) -> None:
        for _ in range(3):
            await peer.read_request()
            await peer.send(plain(body))
        peer.close()

    server = await scripted_server(play)
    client = Client(server.address, high_water_bytes=1000)
    for _ in range(3):
        exchange = client.exchange("POST", "/")
        await exchange.open()
        await wait_until_nothing_moves(exchange)
        assert await exchange.read_all(MIB) == body
    assert len(server.peers) == 1
    # Its reading goes on, so the server's close is seen at once.
    await wait_until(lambda: client.idle_connections == 0)


# Uploads.


@pytest.mark.parametrize("size", [64 * 1024, 64 * 1024 + 1, 20 * MIB])
async def test_a_body_of_any_size_arrives_whole(scripted_server: ServerFactory, size: int) -> None:
    body = body_of(size)

    async def play(peer: Peer) -> None:
        while True:
            request = await peer.read_request()
            digest = hashlib.sha256(request.partition(b"\r\n\r\n")[2]).hexdigest()
            await peer.send(plain(digest.encode()))

    server = await scripted_server(play)
    client = server.client()
    for _ in range(2):
        exchange = client.exchange("POST", "/", body=body)
        await exchange.open()
        assert await exchange.read_all(100) == hashlib.sha256(body).hexdigest().encode()
    assert len(server.peers) == 1
    client.close()


async def test_a_small_request_leaves_in_one_packet(scripted_server: ServerFactory) -> None:
    async def play(peer: Peer) -> None:
        first = await peer.reader.read(MIB)
        await peer.send(plain(b"whole" if first.endswith(b"x" * 30_000) else b"torn"))

    server = await scripted_server(play)
    exchange = server.client().exchange("POST", "/", body=b"x" * 30_000, single_use=True)
    await exchange.open()
    assert await exchange.read_all(100) == b"whole"


async def test_an_upload_waits_for_a_server_that_does_not_read(
    scripted_server: ServerFactory,
) -> None:
    read_on = asyncio.Event()

    async def play(peer: Peer) -> None:
        await read_on.wait()
        request = await peer.read_request()
        await peer.send(plain(b"%d" % len(request.partition(b"\r\n\r\n")[2])))

    server = await scripted_server(play)
    exchange = server.client().exchange("POST", "/", body=body_of(50 * MIB), single_use=True)
    opening = asyncio.ensure_future(exchange.open())
    await wait_until(lambda: exchange.sent)
    for _ in range(200):
        await asyncio.sleep(0)
    read_on.set()
    await opening
    assert await exchange.read_all(100) == b"%d" % (50 * MIB)


REFUSAL = plain(b'{"error":"Invalid API Key"}', status=b"401 Unauthorized")


def refuse_unread(*, after_bytes: int, reset: bool) -> Script:
    """Answer before the body has been read, as llama-server does for a bad key, and close."""

    async def play(peer: Peer) -> None:
        await peer.read_head()
        left = after_bytes
        while left > 0 and (data := await peer.reader.read(65536)):
            left -= len(data)
        peer.writer.write(REFUSAL)
        if reset:
            peer.reset()
        else:
            peer.close()

    return play


@pytest.mark.parametrize("after_bytes", [0, 3 * MIB])
async def test_an_early_refusal_of_a_large_body_is_read(
    scripted_server: ServerFactory, after_bytes: int
) -> None:
    server = await scripted_server(refuse_unread(after_bytes=after_bytes, reset=False))
    client = server.client()
    body = body_of(50 * MIB)
    for _ in range(20):
        exchange = client.exchange("POST", "/completion", body=body)
        await exchange.open()
        assert exchange.status == 401
        assert await exchange.read_all(1000) == b'{"error":"Invalid API Key"}'
    assert client.idle_connections == 0


async def test_an_early_answer_of_several_reads_is_read_whole(
    scripted_server: ServerFactory,
) -> None:
    answer_body = body_of(48 * 1024)

    async def play(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(plain(answer_body, status=b"413 Payload Too Large"))
        peer.close()

    server = await scripted_server(play)
    for _ in range(5):
        exchange = server.client().exchange("POST", "/", body=body_of(20 * MIB), single_use=True)
        await exchange.open()
        assert exchange.status == 413
        assert await exchange.read_all(MIB) == answer_body


async def test_after_an_early_refusal_no_more_of_the_body_is_sent(
    scripted_server: ServerFactory,
) -> None:
    came = 0

    async def play(peer: Peer) -> None:
        nonlocal came
        await peer.read_head()
        await peer.send(REFUSAL[:-1])
        await wait_until(lambda: exchange.status == 401)
        while data := await peer.reader.read(65536):
            came += len(data)

    server = await scripted_server(play)
    client = Client(server.address, timeouts=Timeouts(idle=0.2))
    exchange = client.exchange("POST", "/", body=body_of(50 * MIB))
    await exchange.open()
    with pytest.raises(BackendTimeoutError):
        # The server waits for more of the body, in vain, and so does this for more of the answer.
        await exchange.read_all(1000)
    await wait_until(lambda: not server.running)
    assert came < 20 * MIB


async def test_a_request_cut_short_by_its_answer_leaves_no_connection_to_use_again(
    scripted_server: ServerFactory,
) -> None:
    """Even when nothing of it is left in a buffer: its length still promises more."""

    async def play(peer: Peer) -> None:
        await peer.read_head()
        redirect = plain(b"x", status=b"302 Elsewhere")
        await peer.send(redirect[:-1])
        came = -1
        while came != (came := came + len(await read_nowait(peer))) or exchange.status != 302:
            pass
        await peer.send(redirect[-1:])
        await peer.wait_closed_by_client()

    async def read_nowait(peer: Peer) -> bytes:
        reading = asyncio.ensure_future(peer.reader.read(MIB))
        for _ in range(20):
            await asyncio.sleep(0)
        reading.cancel()
        await asyncio.wait([reading])
        return b"" if reading.cancelled() else reading.result()

    server = await scripted_server(play)
    client = server.client()
    exchange = client.exchange("POST", "/", body=body_of(50 * MIB))
    await exchange.open()
    assert await exchange.read_all(10) == b"x"
    assert client.idle_connections == 0
    await wait_until(lambda: not server.running)


async def test_a_server_that_dies_under_an_upload_is_unreachable(
    scripted_server: ServerFactory,
) -> None:
    async def play(peer: Peer) -> None:
        await peer.read_head()
        peer.reset()

    server = await scripted_server(play)
    exchange = server.client().exchange("POST", "/", body=body_of(20 * MIB), single_use=True)
    with pytest.raises(UnreachableError, match="before an answer"):
        await exchange.open()


async def test_an_answer_to_half_a_body_leaves_no_connection_to_use_again(
    scripted_server: ServerFactory,
) -> None:
    async def play(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(plain(b"fine"))
        await peer.wait_closed_by_client()

    server = await scripted_server(play)
    client = server.client()
    exchange = client.exchange("POST", "/", body=body_of(50 * MIB))
    await exchange.open()
    assert exchange.status == 200
    assert await exchange.read_all(100) == b"fine"
    assert client.idle_connections == 0
    await wait_until(lambda: not server.running)


def test_an_answer_that_lies_in_a_socket_when_writing_fails_is_read(anyio_backend: Any) -> None:
    """The server speaks and resets while this loop is busy, so the next thing is a failing write.

    Played by a thread, because only then is nothing read in between.
    """
    busy, spoken = threading.Event(), threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(plain(b"first"))
            busy.wait(10)
            connection.sendall(REFUSAL)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        spoken.set()

    async def work() -> None:
        client = Client(Address.parse(f"http://127.0.0.1:{listener.getsockname()[1]}"))
        first = client.exchange("POST", "/")
        await first.open()
        assert client.idle_connections == 1
        busy.set()
        spoken.wait(10)
        exchange = client.exchange("POST", "/", body=body_of(10 * MIB))
        await exchange.open()
        assert exchange.status == 401
        assert await exchange.read_all(1000) == b'{"error":"Invalid API Key"}'
        assert client.idle_connections == 0

    thread = threading.Thread(target=serve)
    thread.start()
    with listener:
        anyio.run(work, backend_options=anyio_backend[1])
    thread.join()
