"""What is over is freed at once, without the help of the cycle collector."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest

from slotgate.errors import BackendError
from slotgate.net.address import Address
from slotgate.net.answer import Answer
from slotgate.net.client import Client, Exchange
from slotgate.net.connection import Connection
from tests.net.conftest import ServerFactory
from tests.net.scripted import Peer, Script, answer, answer_and_close, chunked, plain, wait_until

pytestmark = pytest.mark.anyio


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def alive() -> int:
    """Exchanges, connections and answers that are still in memory."""
    return sum(isinstance(each, Exchange | Connection | Answer) for each in gc.get_objects())


async def fetch(client: Client, *, single_use: bool) -> None:
    seen: list[int] = []
    exchange = client.exchange(
        "POST",
        "/",
        body=b"{}",
        single_use=single_use,
        on_complete=lambda: seen.append(exchange.status),
    )
    try:
        await exchange.open()
        await exchange.read_all(1 << 20)
    except BackendError:
        pass
    finally:
        exchange.close()


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize("single_use", [True, False])
@pytest.mark.parametrize(
    "script",
    [
        answer_and_close(plain(b"hello")),
        answer(chunked(b"hello", b"there")),
        answer_and_close(plain(b"no", status=b"500 No")),
        answer_and_close(chunked(b"hello")[:-5]),
        answer_and_close(b"garbage"),
        answer_and_close(b""),
    ],
    ids=["length", "chunks", "error", "cut", "garbage", "nothing"],
)
async def test_a_finished_exchange_is_freed_at_once(
    scripted_server: ServerFactory, script: Script, single_use: bool
) -> None:
    server = await scripted_server(script)
    client = server.client()
    before = alive()
    for _ in range(3):
        await fetch(client, single_use=single_use)
    client.close()
    await wait_until(lambda: not server.running)
    await wait_until(lambda: alive() == before)


@pytest.mark.usefixtures("without_collector")
async def test_a_refused_exchange_is_freed_at_once() -> None:
    client = Client(Address.parse("http://127.0.0.1:1"))
    before = alive()
    await fetch(client, single_use=True)
    await wait_until(lambda: alive() == before)


@pytest.mark.usefixtures("without_collector")
async def test_a_closed_exchange_is_freed_at_once(scripted_server: ServerFactory) -> None:
    async def hold(peer: Peer) -> None:
        await peer.read_request()
        await peer.wait_closed_by_client()

    server = await scripted_server(hold)
    before = alive()
    exchange = server.client().exchange("POST", "/")
    opening = asyncio.ensure_future(exchange.open())
    await wait_until(lambda: bool(server.requests))
    exchange.close()
    await asyncio.wait([opening])
    assert opening.exception() is not None
    del opening, exchange
    await wait_until(lambda: not server.running)
    await wait_until(lambda: alive() == before)
