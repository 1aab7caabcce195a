"""Leaving: at any moment, from anywhere, twice, and with nothing left behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import socket
from collections.abc import Iterator

import pytest

from slotgate.errors import BackendError, ExchangeClosedError, UnreachableError
from slotgate.net.address import Address
from slotgate.net.client import Client, Exchange
from tests.net.conftest import ServerFactory
from tests.net.scripted import (
    Peer,
    ScriptedServer,
    answer,
    answer_and_close,
    chunked,
    open_sockets,
    plain,
    wait_until,
)

pytestmark = pytest.mark.anyio

STREAM = chunked(*([b"data: x\n\n"] * 50))


async def hold_answer(peer: Peer) -> None:
    await peer.read_request()
    await peer.wait_closed_by_client()


async def hold_body(peer: Peer) -> None:
    await peer.read_request()
    await peer.send(STREAM[:-5])
    await peer.wait_closed_by_client()


async def hold_upload(peer: Peer) -> None:
    await peer.read_head()
    await asyncio.get_running_loop().create_future()


@pytest.fixture
def deaf_address() -> Iterator[Address]:
    """A port where a connection attempt neither succeeds nor fails: its backlog is full."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        knocking = []
        for _ in range(4):
            knocker = socket.socket()
            knocker.setblocking(False)
            knocker.connect_ex(listener.getsockname())
            knocking.append(knocker)
        yield Address.parse(f"http://127.0.0.1:{listener.getsockname()[1]}")
        for knocker in knocking:
            knocker.close()


async def all_gone(server: ScriptedServer) -> None:
    """Until the server has seen the end of every connection."""
    for peer in server.peers:
        # A server that does not read sees nothing; its own end is what it has.
        peer.close()
    await wait_until(lambda: all(peer.writer.is_closing() for peer in server.peers))


async def expect_closed(exchange: Exchange, task: asyncio.Task[None] | asyncio.Task[bytes]) -> None:
    exchange.close()
    exchange.close()
    with pytest.raises(ExchangeClosedError):
        await task
    with pytest.raises(ExchangeClosedError):
        await exchange.read()


async def test_closed_before_it_is_opened_it_never_connects(
    scripted_server: ServerFactory,
) -> None:
    server = await scripted_server(hold_answer)
    exchange = server.client().exchange("POST", "/")
    exchange.close()
    with pytest.raises(ExchangeClosedError):
        await exchange.open()
    assert not server.peers


async def test_closed_while_it_connects_the_attempt_ends(deaf_address: Address) -> None:
    baseline = open_sockets()
    exchange = Client(deaf_address).exchange("POST", "/", single_use=True)
    opening = asyncio.ensure_future(exchange.open())
    await wait_until(lambda: open_sockets() == baseline + 1)
    await expect_closed(exchange, opening)
    assert not exchange.sent
    await wait_until(lambda: open_sockets() == baseline)


async def test_closed_in_each_of_the_first_turns_of_the_loop_nothing_is_left(
    scripted_server: ServerFactory,
) -> None:
    """Whatever the connecting is doing at that moment, plain or TLS."""
    server = await scripted_server(hold_answer)
    baseline = open_sockets()
    for url in (server.url, server.url.replace("http:", "https:")):
        for turns in range(12):
            exchange = Client(Address.parse(url)).exchange("POST", "/", single_use=True)
            opening = asyncio.ensure_future(exchange.open())
            for _ in range(turns):
                await asyncio.sleep(0)
            await expect_closed(exchange, opening)
    await wait_until(lambda: not server.running)
    await wait_until(lambda: open_sockets() == baseline)


async def test_cancelled_in_each_of_the_first_turns_of_the_loop_nothing_is_left(
    scripted_server: ServerFactory,
) -> None:
    server = await scripted_server(hold_answer)
    baseline = open_sockets()
    for url in (server.url, server.url.replace("http:", "https:")):
        for turns in range(12):
            exchange = Client(Address.parse(url)).exchange("POST", "/")
            opening = asyncio.ensure_future(exchange.open())
            for _ in range(turns):
                await asyncio.sleep(0)
            opening.cancel()
            await asyncio.wait([opening])
            assert opening.cancelled()
    await wait_until(lambda: not server.running)
    await wait_until(lambda: open_sockets() == baseline)


async def test_closed_while_it_waits_for_the_answer(scripted_server: ServerFactory) -> None:
    server = await scripted_server(hold_answer)
    baseline = open_sockets()
    exchange = server.client().exchange("POST", "/", single_use=True)
    opening = asyncio.ensure_future(exchange.open())
    await wait_until(lambda: bool(server.requests))
    await expect_closed(exchange, opening)
    await wait_until(lambda: not server.running)
    await wait_until(lambda: open_sockets() == baseline)


async def test_closed_while_it_uploads(scripted_server: ServerFactory) -> None:
    server = await scripted_server(hold_upload)
    baseline = open_sockets()
    exchange = server.client().exchange("POST", "/", body=b"x" * (50 << 20), single_use=True)
    opening = asyncio.ensure_future(exchange.open())
    await wait_until(lambda: bool(server.requests))
    await expect_closed(exchange, opening)
    await all_gone(server)
    await wait_until(lambda: open_sockets() == baseline)


async def test_closed_while_somebody_reads(scripted_server: ServerFactory) -> None:
    server = await scripted_server(hold_body)
    baseline = open_sockets()
    exchange = server.client().exchange("POST", "/", single_use=True)
    await exchange.open()
    reading = asyncio.ensure_future(exchange.read_all(1 << 20))
    await asyncio.sleep(0)
    await expect_closed(exchange, reading)
    assert not exchange.is_complete
    await wait_until(lambda: not server.running)
    await wait_until(lambda: open_sockets() == baseline)


async def test_closed_while_held_up_by_its_own_reader(scripted_server: ServerFactory) -> None:
    async def flood(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(plain(b"x" * (32 << 20)))

    server = await scripted_server(flood)
    baseline = open_sockets()
    exchange = server.client().exchange("POST", "/", single_use=True)
    await exchange.open()
    await wait_until(lambda: exchange.bytes_received > 1 << 20)
    exchange.close()
    with pytest.raises(ExchangeClosedError):
        await exchange.read()
    await wait_until(lambda: not server.running)
    await wait_until(lambda: open_sockets() == baseline)


async def test_closed_after_the_end_it_is_still_complete(scripted_server: ServerFactory) -> None:
    server = await scripted_server(answer_and_close(STREAM))
    exchange = server.client().exchange("POST", "/", single_use=True)
    await exchange.open()
    await wait_until(lambda: exchange.is_complete)
    exchange.close()
    assert exchange.is_complete
    with pytest.raises(ExchangeClosedError):
        await exchange.read()


async def test_closed_from_within_the_news_of_its_end(scripted_server: ServerFactory) -> None:
    server = await scripted_server(answer(plain(b"hello")))
    client = server.client()
    exchanges: list[Exchange] = []
    exchange = client.exchange("POST", "/", on_complete=lambda: exchanges.pop().close())
    exchanges.append(exchange)
    with pytest.raises(ExchangeClosedError):
        await exchange.open()
    assert client.idle_connections == 1
    client.close()


async def test_a_cancelled_read_loses_nothing(scripted_server: ServerFactory) -> None:
    go_on = asyncio.Event()

    async def play(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(STREAM[:-30])
        await go_on.wait()
        await peer.send(STREAM[-30:])
        peer.close()

    server = await scripted_server(play)
    exchange = server.client().exchange("POST", "/", single_use=True)
    await exchange.open()
    came = b""
    while True:
        reading = asyncio.ensure_future(exchange.read())
        await asyncio.wait([reading], timeout=0.02)
        if not reading.done():
            break
        came += reading.result()
    for _ in range(3):
        reading.cancel()
        await asyncio.wait([reading])
        assert reading.cancelled()
        reading = asyncio.ensure_future(exchange.read())
        await asyncio.sleep(0)
    go_on.set()
    came += await reading
    came += await exchange.read_all(1 << 20)
    assert came == b"data: x\n\n" * 50


async def test_cancelling_and_closing_in_one_turn_is_a_cancellation(
    deaf_address: Address,
) -> None:
    baseline = open_sockets()
    for cancel_first in (True, False):
        exchange = Client(deaf_address).exchange("POST", "/")
        opening = asyncio.ensure_future(exchange.open())
        await wait_until(lambda: open_sockets() == baseline + 1)
        if cancel_first:
            opening.cancel()
            exchange.close()
        else:
            exchange.close()
            opening.cancel()
        await asyncio.wait([opening])
        assert opening.cancelled()
        await wait_until(lambda: open_sockets() == baseline)


async def test_a_task_whose_exchange_was_closed_is_not_itself_cancelled(
    deaf_address: Address,
) -> None:
    exchange = Client(deaf_address).exchange("POST", "/")

    async def work() -> int:
        with pytest.raises(ExchangeClosedError):
            await exchange.open()
        task = asyncio.current_task()
        assert task is not None
        await asyncio.sleep(0)
        return task.cancelling()

    working = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    exchange.close()
    assert await working == 0


async def test_a_task_that_survived_a_cancellation_can_still_be_closed(
    deaf_address: Address,
) -> None:
    exchange = Client(deaf_address).exchange("POST", "/")
    forever = asyncio.get_running_loop().create_future()

    async def work() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await forever
        with pytest.raises(ExchangeClosedError):
            await exchange.open()

    working = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    working.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    exchange.close()
    await working


async def test_a_thousand_failures_leave_no_descriptor(scripted_server: ServerFactory) -> None:
    async def fail(peer: Peer) -> None:
        await peer.read_request()
        match server.peers.index(peer) % 5:
            case 0:
                peer.reset()
            case 1:
                await peer.send(b"garbage")
            case 2:
                await peer.send(STREAM[:77])
            case 3:
                await peer.send(plain(b"no", status=b"500 No"))
            case _:
                peer.close()

    server = await scripted_server(fail)
    client = server.client()
    baseline = open_sockets()
    outcomes: list[str] = []

    async def one(number: int) -> None:
        exchange = client.exchange("POST", "/", body=b"{}", single_use=bool(number % 2))
        try:
            await exchange.open()
            await exchange.read_all(1 << 20)
            outcomes.append("ok")
        except BackendError as error:
            outcomes.append(type(error).__name__)

    for batch in range(20):
        await asyncio.gather(*(one(batch * 50 + number) for number in range(50)))
    assert sorted(set(outcomes)) == ["BrokenAnswerError", "UnreachableError", "ok"]
    assert len(outcomes) == 1000
    await wait_until(lambda: not server.running)
    await wait_until(lambda: open_sockets() == baseline)


async def test_a_thousand_refused_connections_leave_no_descriptor() -> None:
    client = Client(Address.parse("http://127.0.0.1:1"))
    baseline = open_sockets()
    for _ in range(1000):
        with pytest.raises(UnreachableError):
            await client.exchange("GET", "/").open()
    await wait_until(lambda: open_sockets() == baseline)


@pytest.mark.parametrize("seed", range(8))
async def test_cancellations_and_closes_at_random_moments_leave_nothing(
    scripted_server: ServerFactory, seed: int
) -> None:
    """Clients that are cancelled once or twice, or closed, at random turns of the loop."""
    dice = random.Random(seed)

    async def play(peer: Peer) -> None:
        while True:
            await peer.read_request()
            for start in range(0, len(STREAM), 120):
                await peer.send(STREAM[start : start + 120])
                await asyncio.sleep(0)
            if dice.random() < 0.3:
                peer.close()

    server = await scripted_server(play)
    client = server.client()
    baseline = open_sockets()
    endings: set[str] = set()

    async def one(exchange: Exchange) -> None:
        with exchange:
            await exchange.open()
            assert await exchange.read_all(1 << 20) == b"data: x\n\n" * 50

    async def disturb(number: int) -> None:
        exchange = client.exchange("POST", "/", body=b"x" * 10, single_use=dice.random() < 0.5)
        task = asyncio.ensure_future(one(exchange))
        for _ in range(dice.randrange(80)):
            await asyncio.sleep(0)
        match number % 4:
            case 0:
                task.cancel()
            case 1:
                task.cancel()
                for _ in range(dice.randrange(3)):
                    await asyncio.sleep(0)
                task.cancel()
            case 2:
                exchange.close()
            case _:
                pass
        await asyncio.wait([task])
        if task.cancelled():
            endings.add("cancelled")
        else:
            endings.add(type(task.exception()).__name__)

    await asyncio.gather(*(disturb(number) for number in range(120)))
    assert endings == {"cancelled", "ExchangeClosedError", "NoneType"}
    client.close()
    await wait_until(lambda: not server.running)
    await wait_until(lambda: open_sockets() == baseline)
    gc.collect()  # an unclosed socket or transport would warn here, and warnings are errors
