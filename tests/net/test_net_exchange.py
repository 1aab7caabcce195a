"""Exchanges over real sockets: every framing, every cut, every way an answer can break."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slotgate.errors import BrokenAnswerError, ExchangeClosedError, UnreachableError
from slotgate.net.address import Address
from slotgate.net.client import Client, Exchange
from tests.net.conftest import ServerFactory
from tests.net.scripted import Peer, Script, answer, answer_and_close, chunked, plain, wait_until

pytestmark = pytest.mark.anyio

STREAM = chunked(*(b'data: {"content":"%d"}\n\n' % number for number in range(20)))
STREAM_BODY = b"".join(b'data: {"content":"%d"}\n\n' % number for number in range(20))
UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\n\r\nhello"


async def fetch(client: Client, *, method: str = "POST", single_use: bool = True) -> bytes:
    with client.exchange(method, "/completion", body=b"{}", single_use=single_use) as exchange:
        await exchange.open()
        return await exchange.read_all(1 << 20)


@pytest.mark.parametrize("single_use", [True, False])
@pytest.mark.parametrize(
    ("wire", "body"),
    [
        (plain(b"hello"), b"hello"),
        (plain(b""), b""),
        (STREAM, STREAM_BODY),
        (chunked(b"hello", trailers=b"x-sum: 1\r\n"), b"hello"),
        (UNTIL_CLOSE, b"hello"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + plain(b"hello"), b"hello"),
    ],
    ids=["length", "empty", "stream", "trailers", "until-close", "204", "after-100"],
)
async def test_every_framing_is_read_to_its_proper_end(
    scripted_server: ServerFactory, wire: bytes, body: bytes, single_use: bool
) -> None:
    server = await scripted_server(answer_and_close(wire))
    client = server.client()
    for _ in range(3):
        assert await fetch(client, single_use=single_use) == body
    client.close()


async def test_the_request_on_the_wire_is_one_head_and_its_body(
    scripted_server: ServerFactory,
) -> None:
    server = await scripted_server(answer(plain(b"")))
    client = Client(Address.parse(server.url + "/llm"))
    exchange = client.exchange(
        "POST", "/completion?x=1", [(b"accept", b"*/*")], b'{"a":1}', single_use=True
    )
    assert not exchange.sent
    await exchange.open()
    assert exchange.sent
    assert server.requests == [
        b"POST /llm/completion?x=1 HTTP/1.1\r\nhost: %b\r\naccept: */*\r\ncontent-length: 7\r\n"
        b'connection: close\r\n\r\n{"a":1}' % server.address.authority.encode()
    ]


async def test_the_answers_head_is_there_after_open(scripted_server: ServerFactory) -> None:
    wire = plain(b"no", b"Retry-After: 3", status=b"503 Not now")
    server = await scripted_server(answer_and_close(wire))
    exchange = server.client().exchange("GET", "/", single_use=True)
    assert exchange.status == 0
    await exchange.open()
    assert (exchange.status, exchange.reason) == (503, b"Not now")
    assert exchange.headers == [(b"retry-after", b"3"), (b"content-length", b"2")]
    assert exchange.bytes_received == len(wire)
    assert exchange.is_complete
    assert await exchange.read() == b"no"
    assert await exchange.read() == b""
    assert await exchange.read() == b""


@pytest.mark.parametrize("wire", [plain(b"hello"), STREAM, UNTIL_CLOSE])
async def test_an_answer_that_comes_byte_by_byte_is_the_same(
    scripted_server: ServerFactory, wire: bytes
) -> None:
    async def play(peer: Peer) -> None:
        await peer.read_request()
        await peer.send_in_pieces(wire, list(range(len(wire))))
        peer.close()

    server = await scripted_server(play)
    expected = STREAM_BODY if wire is STREAM else b"hello"
    assert await fetch(server.client()) == expected


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(cuts=st.lists(st.integers(1, len(STREAM) - 1), max_size=10))
async def test_a_stream_is_the_same_wherever_it_is_cut(
    scripted_server: ServerFactory, cuts: list[int]
) -> None:
    async def play(peer: Peer) -> None:
        await peer.read_request()
        await peer.send_in_pieces(STREAM, cuts)
        peer.close()

    server = await scripted_server(play)
    assert await fetch(server.client()) == STREAM_BODY


async def test_a_stream_is_read_as_it_comes(scripted_server: ServerFactory) -> None:
    go_on = asyncio.Event()

    async def play(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(STREAM[:100])
        await go_on.wait()
        await peer.send(STREAM[100:])
        peer.close()

    server = await scripted_server(play)
    with server.client().exchange("POST", "/", single_use=True) as exchange:
        await exchange.open()
        first = await exchange.read()
        assert first
        assert STREAM_BODY.startswith(first)
        assert not exchange.is_complete
        go_on.set()
        assert first + await exchange.read_all(1 << 20) == STREAM_BODY


async def test_the_answer_to_a_head_has_no_body(scripted_server: ServerFactory) -> None:
    server = await scripted_server(answer(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"))
    client = server.client()
    for _ in range(2):
        assert await fetch(client, method="HEAD", single_use=False) == b""
    assert client.idle_connections == 0


# The end, told as it arrives.


async def open_with_log(client: Client, log: list[str], *, single_use: bool = True) -> Exchange:
    exchange = client.exchange(
        "POST", "/", single_use=single_use, on_complete=lambda: log.append("complete")
    )
    await exchange.open()
    return exchange


@pytest.mark.parametrize("wire", [plain(b"hello"), STREAM, b"HTTP/1.1 204 No\r\n\r\n"])
async def test_the_end_is_told_once_and_before_anybody_has_read(
    scripted_server: ServerFactory, wire: bytes
) -> None:
    server = await scripted_server(answer_and_close(wire))
    log: list[str] = []
    exchange = await open_with_log(server.client(), log)
    await wait_until(lambda: exchange.is_complete)
    assert log == ["complete"]
    await exchange.read_all(1 << 20)
    exchange.close()
    assert log == ["complete"]


async def test_the_end_of_a_body_without_length_is_told_when_the_server_closes(
    scripted_server: ServerFactory,
) -> None:
    close = asyncio.Event()

    async def play(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(UNTIL_CLOSE)
        await close.wait()
        peer.close()

    server = await scripted_server(play)
    log: list[str] = []
    exchange = await open_with_log(server.client(), log)
    assert await exchange.read() == b"hello"
    assert log == []
    close.set()
    assert await exchange.read() == b""
    assert log == ["complete"]


async def test_the_end_is_told_while_the_server_keeps_its_connection_open(
    scripted_server: ServerFactory,
) -> None:
    async def play(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(STREAM)
        await peer.wait_closed_by_client()

    server = await scripted_server(play)
    log: list[str] = []
    exchange = await open_with_log(server.client(), log)
    assert await exchange.read_all(1 << 20) == STREAM_BODY
    assert log == ["complete"]
    # And the single-use connection is closed from here, with nothing asked of the caller.
    await wait_until(lambda: not server.running)


async def test_who_is_told_may_start_the_next_exchange_at_once(
    scripted_server: ServerFactory,
) -> None:
    server = await scripted_server(answer(plain(b"hello")))
    client = server.client()
    chained: list[Exchange] = []
    first = client.exchange(
        "GET", "/", on_complete=lambda: chained.append(client.exchange("GET", "/next"))
    )
    await first.open()
    first.close()
    await chained[0].open()
    assert await chained[0].read_all(10) == b"hello"
    assert len(server.peers) == 1
    client.close()


@pytest.mark.parametrize("wire", [STREAM[:100], b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"])
async def test_the_end_is_not_told_of_an_answer_cut_short(
    scripted_server: ServerFactory, wire: bytes
) -> None:
    server = await scripted_server(answer_and_close(wire))
    log: list[str] = []
    exchange = await open_with_log(server.client(), log)
    with pytest.raises(BrokenAnswerError, match="closed in the middle of the body"):
        await exchange.read_all(1 << 20)
    assert log == []
    assert not exchange.is_complete


# How it breaks.


async def test_nobody_listening_is_unreachable_and_says_so() -> None:
    client = Client(Address.parse("http://127.0.0.1:1"))
    exchange = client.exchange("GET", "/")
    with pytest.raises(UnreachableError) as caught:
        await exchange.open()
    assert str(caught.value) == (
        "http://127.0.0.1:1: no connection: connection refused; is the server running?"
    )
    assert isinstance(caught.value.__cause__, ConnectionRefusedError)
    assert not exchange.sent


async def close_at_once(peer: Peer) -> None:
    peer.close()


async def close_after_request(peer: Peer) -> None:
    await peer.read_request()
    peer.close()


async def reset_after_request(peer: Peer) -> None:
    await peer.read_request()
    peer.reset()


@pytest.mark.parametrize("script", [close_at_once, close_after_request, reset_after_request])
async def test_a_connection_lost_before_any_answer_is_unreachable(
    scripted_server: ServerFactory, script: Script
) -> None:
    server = await scripted_server(script)
    with pytest.raises(
        UnreachableError, match=r"connection lost before an answer: .*(close|reset)"
    ):
        await fetch(server.client())


async def test_an_answer_that_is_no_http_is_broken(scripted_server: ServerFactory) -> None:
    server = await scripted_server(answer_and_close(b"SSH-2.0-OpenSSH\r\n"))
    with pytest.raises(BrokenAnswerError, match="broken answer: it is malformed"):
        await fetch(server.client())


async def test_a_head_cut_short_is_broken(scripted_server: ServerFactory) -> None:
    server = await scripted_server(answer_and_close(b"HTTP/1.1 200 OK\r\nContent-"))
    with pytest.raises(BrokenAnswerError, match="closed in the middle of the head"):
        await fetch(server.client())


async def test_a_head_too_large_is_broken(scripted_server: ServerFactory) -> None:
    server = await scripted_server(answer_and_close(plain(b"", *([b"x: " + b"v" * 1000] * 70))))
    with pytest.raises(BrokenAnswerError, match="head or trailers are larger"):
        await fetch(server.client())


async def test_what_came_before_the_break_is_read_before_it_is_raised(
    scripted_server: ServerFactory,
) -> None:
    wire = chunked(b"hello")[:-5] + b"proxy error: Failed to read connection"
    server = await scripted_server(answer_and_close(wire))
    exchange = server.client().exchange("GET", "/", single_use=True)
    await exchange.open()
    assert await exchange.read() == b"hello"
    for _ in range(2):
        with pytest.raises(BrokenAnswerError, match="malformed"):
            await exchange.read()


@pytest.mark.parametrize("wire", [UNTIL_CLOSE, STREAM[:100]])
async def test_a_reset_in_the_body_is_broken_and_no_proper_end(
    scripted_server: ServerFactory, wire: bytes
) -> None:
    read = asyncio.Event()

    async def play(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(wire)
        await read.wait()
        peer.reset()

    server = await scripted_server(play)
    exchange = server.client().exchange("GET", "/", single_use=True)
    await exchange.open()
    assert await exchange.read()
    read.set()
    with pytest.raises(BrokenAnswerError, match="connection reset by the server"):
        await exchange.read()


async def test_an_answer_larger_than_asked_for_is_broken_and_closed(
    scripted_server: ServerFactory,
) -> None:
    server = await scripted_server(answer(plain(b"x" * 100)))
    client = server.client()
    exchange = client.exchange("GET", "/")
    await exchange.open()
    with pytest.raises(BrokenAnswerError, match="larger than 99 bytes"):
        await exchange.read_all(99)
    client.close()


async def test_an_exchange_is_opened_once(scripted_server: ServerFactory) -> None:
    server = await scripted_server(answer(plain(b"")))
    exchange = server.client().exchange("GET", "/", single_use=True)
    with pytest.raises(RuntimeError, match="not open"):
        await exchange.read()
    await exchange.open()
    with pytest.raises(RuntimeError, match="opened once"):
        await exchange.open()


async def test_two_readers_at_once_are_an_error(scripted_server: ServerFactory) -> None:
    async def play(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(STREAM[:-5])
        await peer.wait_closed_by_client()

    server = await scripted_server(play)
    exchange = server.client().exchange("GET", "/", single_use=True)
    await exchange.open()
    while len(await exchange.read()) < 1:
        pass
    first = asyncio.ensure_future(exchange.read_all(1 << 20))
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="another coroutine"):
        await exchange.read_all(1 << 20)
    exchange.close()
    with pytest.raises(ExchangeClosedError):
        await first
