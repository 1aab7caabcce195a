"""The load is sent when it is due, and every client does as its arrival says."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from slotgate.load.arrival import Arrival
from slotgate.load.asking import Asking
from slotgate.load.backoff import ClientKind
from slotgate.load.capacity import Rate
from slotgate.load.generate import Bounds, Gathered, Generator
from slotgate.load.lengths import SMALL
from slotgate.load.measure import look_at, measure_capacity
from slotgate.load.record import Outcome, Record
from slotgate.load.visit import Visiting
from slotgate.load.workloads import Plan, make_workload
from slotgate.net.address import Address
from slotgate.net.client import Client
from tests.net.scripted import Peer, ScriptedServer
from tests.polling import wait_until
from tests.stub.client import stub

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = [pytest.mark.anyio, pytest.mark.process]

ASKED = Arrival(at=0.0, input_tokens=20, output_tokens=8)
BUSY = (
    b"HTTP/1.1 429 Too Many Requests\r\nretry-after-ms: 50\r\nx-slotgate-reason: queue_full\r\n"
    b"content-length: 0\r\n\r\n"
)
SERVED = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n"
    b'x-slotgate-queue-ms: 250\r\n\r\ndata: {"choices":[{"delta":{"content":"a"}}]}\n\n'
    b"data: [DONE]\n\n"
)


def visiting(url: str, kind: ClientKind = ClientKind.NONE, **fields: Any) -> Visiting:
    values: dict[str, Any] = {
        "client": Client(Address.parse(url)),
        "target": "/v1/chat/completions",
        "headers": lambda tenant: [(b"x-who", tenant.encode())],
        "body": Asking().body,
        "kind": kind,
        "dice": Random(1),
    }
    return Visiting(**(values | fields))


async def send(
    url: str, arrivals: Sequence[Arrival], *, seconds: float = 0.0, **fields: Any
) -> Gathered:
    bounds = fields.pop("bounds", Bounds(drain_seconds=10.0))
    generator = Generator(visiting(url, **fields), bounds)
    return await generator.run(arrivals, seconds)


async def one(url: str, arrival: Arrival, **fields: Any) -> Record:
    (record,) = (await send(url, [arrival], **fields)).records
    return record


async def scripted(*scripts: Any) -> ScriptedServer:
    server = ScriptedServer(scripts)
    await server.start()
    return server


def says(answer: bytes) -> Any:
    async def play(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(answer)

    return play


async def test_a_served_request_is_recorded_with_what_it_took() -> None:
    async with stub(decode=100.0) as server:
        record = await one(server.url, replace(ASKED, tenant="me"))
        assert record.outcome is Outcome.SERVED
        assert record.output_done == 8
        assert record.input_done > 0
        assert record.ttft is not None
        assert record.tpot == pytest.approx(0.01, rel=0.5)
        assert server.observed.records[0].headers["x-who"] == "me"


async def test_a_slow_server_delays_no_arrival_and_is_charged_for_the_wait() -> None:
    """A closed loop would send the second request when the first is answered, and see no wait."""
    async with stub(slots=1, decode=40.0) as server:
        arrivals = [replace(ASKED, at=i * 0.01) for i in range(6)]
        gathered = await send(server.url, arrivals)
        assert server.observed.max_in_flight == 6
        waits = sorted(record.ttft or 0.0 for record in gathered.records)
        # Five before it; the first token of each comes with its prompt.
        assert waits[-1] > 5 * 7 / 40 * 0.9
        assert not gathered.notes


async def test_a_client_without_a_token_leaves_when_its_patience_ends() -> None:
    async with stub(slots=1, decode=20.0) as server:
        arrivals = [
            replace(ASKED, output_tokens=400),
            replace(ASKED, at=0.05, patience=0.2),
        ]
        sending = asyncio.ensure_future(
            send(server.url, arrivals, bounds=Bounds(drain_seconds=0.6))
        )
        await wait_until(lambda: server.observed.abandoned == 1)
        gathered = await sending
        impatient = next(r for r in gathered.records if r.arrival.patience < 1)
        assert impatient.outcome is Outcome.ABANDONED
        assert impatient.ttft is None
        assert impatient.ended_at == pytest.approx(0.25, abs=0.1)
        assert "1 requests were not sent, or still open" in gathered.notes[0]


async def test_patience_does_not_end_an_answer_that_has_begun() -> None:
    async with stub(decode=40.0) as server:
        record = await one(server.url, replace(ASKED, output_tokens=30, patience=0.3))
        assert record.outcome is Outcome.SERVED
        assert record.output_done == 30


async def test_a_client_that_leaves_in_a_storm_leaves_in_the_middle_of_its_answer() -> None:
    async with stub(decode=40.0) as server:
        record = await one(server.url, replace(ASKED, output_tokens=400, leaves_after=0.3))
        assert record.outcome is Outcome.ABANDONED
        assert record.ttft is not None
        assert 0 < record.output_done < 400
        await wait_until(lambda: server.observed.abandoned == 1)


async def test_a_slow_reader_takes_its_time() -> None:
    async with stub(decode=0.0) as server:
        record = await one(server.url, replace(ASKED, reading_rate=20.0))
        assert record.outcome is Outcome.SERVED
        assert record.ended_at >= 0.3


async def test_a_refused_client_comes_back_when_it_was_told_to() -> None:
    server = await scripted(says(BUSY), says(SERVED))
    record = await one(server.url, ASKED, kind=ClientKind.OPENAI)
    await server.stop()
    assert record.outcome is Outcome.SERVED
    assert record.attempts == 2
    assert (record.reason, record.retry_after) == ("queue_full", 0.05)
    assert record.refused_after is not None
    assert record.ttft is not None
    assert record.last_ttft is not None
    # From the first attempt on, the delay included.
    assert record.ttft > record.last_ttft + 0.045
    assert record.waited == 0.25


async def test_a_client_that_is_refused_each_time_counts_as_refused() -> None:
    server = await scripted(says(BUSY))
    record = await one(server.url, ASKED, kind=ClientKind.ANTHROPIC)
    await server.stop()
    assert (record.outcome, record.attempts) == (Outcome.REFUSED, 3)


async def test_who_leaves_before_the_delay_is_over_does_not_come_back() -> None:
    busy = BUSY.replace(b"-ms: 50", b": 30")
    server = await scripted(says(busy))
    record = await one(server.url, replace(ASKED, leaves_after=0.1), kind=ClientKind.OPENAI)
    await server.stop()
    assert (record.outcome, record.attempts) == (Outcome.ABANDONED, 1)


@pytest.mark.parametrize(
    ("answer", "outcome", "reason"),
    [
        (BUSY.replace(b"queue_full", b"queue_timeout"), Outcome.EXPIRED, "queue_timeout"),
        (b"HTTP/1.1 503 No\r\ncontent-length: 2\r\n\r\n{}", Outcome.REFUSED, "503"),
        (b"HTTP/1.1 500 No\r\ncontent-length: 2\r\n\r\nno", Outcome.FAILED, "500"),
        (
            b'HTTP/1.1 400 No\r\ncontent-length: 28\r\n\r\n{"error":{"code":"too_big"}}',
            Outcome.FAILED,
            "too_big",
        ),
        (SERVED.replace(b"data: [DONE]\n\n", b""), Outcome.FAILED, "no_end"),
        (
            SERVED.replace(b"data: [DONE]", b'data: {"error":{"code":"kv"}}'),
            Outcome.FAILED,
            "kv",
        ),
        (b"nonsense\r\n\r\n", Outcome.FAILED, "BrokenAnswerError"),
    ],
)
async def test_each_bad_end_has_its_outcome_and_reason(
    answer: bytes, outcome: Outcome, reason: str
) -> None:
    server = await scripted(says(answer))
    record = await one(server.url, ASKED)
    await server.stop()
    assert (record.outcome, record.reason) == (outcome, reason)


async def test_nobody_there_is_a_failure_of_each_request() -> None:
    record = await one("http://127.0.0.1:1", ASKED, kind=ClientKind.NONE)
    assert (record.outcome, record.reason) == (Outcome.FAILED, "UnreachableError")


async def test_beyond_the_bound_requests_are_not_sent_and_said_to_be_left() -> None:
    async with stub(slots=1, decode=40.0) as server:
        arrivals = [replace(ASKED, at=0.0)] * 5
        gathered = await send(server.url, arrivals, bounds=Bounds(open=2, drain_seconds=10.0))
        outcomes = [record.outcome for record in gathered.records]
        assert outcomes.count(Outcome.ABANDONED) == 3
        assert server.observed.requests == 2
        assert gathered.notes == [
            "3 requests were not sent, or still open at the end; they count as abandoned"
        ]


async def test_whoever_stops_it_gets_what_there_is_so_far() -> None:
    async with stub(decode=20.0) as server:
        arrivals = [replace(ASKED, at=at, output_tokens=400) for at in (0.0, 0.0, 300.0)]
        generator = Generator(visiting(server.url), Bounds())
        running = asyncio.ensure_future(generator.run(arrivals, 600.0))
        await wait_until(lambda: server.observed.in_flight == 2)
        generator.stop()
        gathered = await asyncio.wait_for(running, 5)
        assert gathered.was_stopped
        assert len(gathered.records) == 2
        assert gathered.seconds < 5
        assert "stopped after" in gathered.notes[0]


async def test_every_arrival_has_one_record() -> None:
    async with stub(slots=4, decode=0.0) as server:
        plan = Plan(
            capacity=Rate(100.0), dice=Random(2), seconds=1.0, kinds={"A": SMALL, "B": SMALL}
        )
        made = make_workload("overload", plan)
        gathered = await send(server.url, made.arrivals, seconds=made.seconds)
        assert len(gathered.records) == len(made.arrivals)
        assert {r.outcome for r in gathered.records} == {Outcome.SERVED}


async def test_a_servers_capacity_is_measured_in_requests_of_the_mean_length() -> None:
    async with stub(slots=2, decode=100.0) as server:
        shared = visiting(server.url)
        found = await measure_capacity(shared, {"A": SMALL}, at_once=2, seconds=2.0)
        assert found == pytest.approx(200.0 / SMALL.output.mean, rel=0.25)
        assert (await look_at(shared.client, ())).slots == 2


async def test_what_cannot_be_asked_says_nothing_of_itself() -> None:
    served = await look_at(Client(Address.parse("http://127.0.0.1:1")), ())
    assert (served.model, served.slots) == (None, None)


async def test_measuring_can_be_stopped() -> None:
    async with stub(slots=2, decode=100.0) as server:
        stopped = asyncio.Event()
        measuring = asyncio.ensure_future(
            measure_capacity(
                visiting(server.url), {"A": SMALL}, at_once=2, seconds=600.0, stopped=stopped
            )
        )
        await wait_until(lambda: server.observed.in_flight == 2)
        stopped.set()
        await asyncio.wait({measuring}, timeout=5)
        assert measuring.done()
        measuring.exception()  # it may have counted no token yet
        await wait_until(lambda: server.observed.in_flight == 0)


async def test_a_conversation_goes_on_after_its_answer_and_stays_one_session() -> None:
    async with stub(decode=0.0) as server:
        last = replace(ASKED, at=0.05, input_tokens=60, session="s")
        first = replace(ASKED, session="s", then=replace(last, input_tokens=40, then=last))
        gathered = await send(server.url, [first], seconds=10.0)
        ends = [record.ended_at for record in gathered.records]
        starts = [record.arrival.at for record in gathered.records]
        assert [record.arrival.input_tokens for record in gathered.records] == [20, 40, 60]
        assert starts[1] >= ends[0] + 0.05
        assert starts[2] >= ends[1] + 0.05


async def test_a_conversation_ends_with_the_load_or_when_it_is_not_answered() -> None:
    async with stub(decode=0.0) as server:
        late = replace(ASKED, then=replace(ASKED, at=0.5))
        assert len((await send(server.url, [late], seconds=0.2)).records) == 1
    nobody = await send("http://127.0.0.1:1", [late], seconds=10.0)
    assert [record.outcome for record in nobody.records] == [Outcome.FAILED]


async def test_a_conversation_can_be_stopped_while_its_client_thinks() -> None:
    async with stub(decode=0.0) as server:
        generator = Generator(visiting(server.url), Bounds())
        thinking = replace(ASKED, then=replace(ASKED, at=300.0))
        running = asyncio.ensure_future(generator.run([thinking], 600.0))
        await wait_until(lambda: server.observed.requests == 1 and not server.observed.in_flight)
        generator.stop()
        assert len((await asyncio.wait_for(running, 5)).records) == 1
