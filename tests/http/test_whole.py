"""An answer in one write is what uvicorn would have sent in two."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import override
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from slotgate.http.server import Flag
from slotgate.http.whole import JOINED_BYTES, write_whole
from tests.http.rig import gateway, gateway_at
from tests.http.test_odd_backends import backend, plain

if TYPE_CHECKING:
    from uvicorn._types import ASGISendCallable

pytestmark = pytest.mark.anyio

Headers = list[tuple[bytes, bytes]]


class Sink(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.is_closed = False

    @override
    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))

    @override
    def close(self) -> None:
        self.is_closed = True

    @property
    def text(self) -> bytes:
        return b"".join(self.writes)


class Exchange:
    """One request in uvicorn's hands."""

    def __init__(self, method: str = "GET", *, keep_alive: bool = True) -> None:
        self.sink = Sink()
        self.flow = FlowControl(self.sink)
        self.ended = 0
        logger = logging.getLogger("unused")
        self.cycle = RequestResponseCycle(
            scope=cast("Any", {"method": method}),
            transport=self.sink,
            flow=self.flow,
            logger=logger,
            access_logger=logger,
            access_log=False,
            default_headers=[],
            message_event=cast("asyncio.Event", Flag()),
            expect_100_continue=True,
            keep_alive=keep_alive,
            on_response=self.note_end,
        )

    def note_end(self) -> None:
        self.ended += 1

    async def reply(self, status: int, headers: Headers, body: bytes) -> None:
        await write_whole(self.cycle.send, status, headers, body)

    async def reply_in_two(self, status: int, headers: Headers, body: bytes) -> None:
        headers = [*headers, (b"content-length", b"%d" % len(body))]
        send: ASGISendCallable = self.cycle.send
        await send(
            cast("Any", {"type": "http.response.start", "status": status, "headers": headers})
        )
        await send({"type": "http.response.body", "body": body, "more_body": False})

    @property
    def state(self) -> tuple[Any, ...]:
        cycle = self.cycle
        return (
            self.sink.text,
            self.sink.is_closed,
            self.ended,
            cycle.response_started,
            cycle.response_complete,
            cycle.waiting_for_100_continue,
        )


NAMES = st.sampled_from([b"x-request-id", b"content-type", b"retry-after"])
VALUES = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20)


@settings(deadline=None)
@given(
    st.sampled_from(["GET", "HEAD", "POST"]),
    st.booleans(),
    st.sampled_from([200, 404, 429, 500, 503, 529]),
    st.lists(st.tuples(NAMES, VALUES.map(str.encode)), max_size=5),
    st.sampled_from([b"", b"x", b"\r\n\r\n", bytes(JOINED_BYTES), bytes(JOINED_BYTES + 1)]),
)
def test_the_bytes_and_the_state_are_uvicorns(
    method: str, keep_alive: bool, status: int, headers: Headers, body: bytes
) -> None:
    one = Exchange(method, keep_alive=keep_alive)
    two = Exchange(method, keep_alive=keep_alive)
    asyncio.run(one.reply(status, headers, body))
    asyncio.run(two.reply_in_two(status, headers, body))
    assert one.state == two.state


async def test_a_small_answer_is_one_write_and_a_large_one_is_not_copied() -> None:
    small, large = Exchange(), Exchange()
    await small.reply(200, [], b"x" * JOINED_BYTES)
    await large.reply(200, [], b"x" * (JOINED_BYTES + 1))
    assert len(small.sink.writes) == 1
    assert len(large.sink.writes) == 2


@pytest.mark.parametrize("end", [b"\r\n", b"\n", b"\r"])
async def test_a_header_with_a_line_end_is_a_fault_and_nothing_is_sent(end: bytes) -> None:
    exchange = Exchange()
    with pytest.raises(RuntimeError, match="line end"):
        await exchange.reply(200, [(b"x-request-id", b"a" + end + b"set-cookie: b")], b"")
    assert exchange.state[0] == b""
    assert not exchange.cycle.response_started


async def test_a_request_is_answered_once() -> None:
    exchange = Exchange()
    await exchange.reply(200, [], b"x")
    with pytest.raises(RuntimeError, match="once"):
        await exchange.reply(200, [], b"x")


async def test_a_client_that_does_not_read_is_waited_for_and_one_that_left_gets_nothing() -> None:
    exchange = Exchange()
    exchange.flow.pause_writing()
    async with asyncio.TaskGroup() as group:
        replying = group.create_task(exchange.reply(200, [], b"x"))
        await asyncio.sleep(0)
        assert not replying.done()
        exchange.cycle.disconnected = True
        exchange.flow.resume_writing()
        await replying
    assert not exchange.sink.writes


async def test_what_was_asked_for_at_once_is_answered_in_order() -> None:
    async with gateway() as rig:
        reader, writer = await asyncio.open_connection("127.0.0.1", rig.port)
        writer.write(b"HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n")
        writer.write(b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n")
        writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        async with asyncio.timeout(10):
            answers = (await reader.read()).split(b"HTTP/1.1 ")[1:]
        writer.close()
        assert [answer[:3] for answer in answers] == [b"200", b"404", b"200"]
        head, body = answers[2].split(b"\r\n\r\n")
        assert b"connection: close" in head
        length = b"content-length: %d\r\n" % len(body)
        assert length in head
        assert length in answers[0], "HEAD has the length of what GET brings"
        assert answers[0].endswith(b"\r\n\r\n")


async def test_a_large_answer_comes_whole() -> None:
    body = b'{"data":"%s"}' % (b"x" * (4 << 20))
    async with backend(plain(body)) as url, gateway_at(url) as rig:
        answer = await rig.post("/v1/embeddings", {"input": "x"})
        assert answer.body == body
