"""What the scheduler says of a grant on the wire: a bound on the answer, and the word to stop."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from typing_extensions import override

from slotgate.core import Abort, Granted, Scheduler, Ticket
from slotgate.stub import StubOptions
from tests.http.rig import CHAT, chat, gateway

if TYPE_CHECKING:
    from slotgate.core.decision import Decision

pytestmark = pytest.mark.anyio

MESSAGES = "/v1/messages"


class Clamping(Scheduler):
    """Grants at most five tokens of output."""

    @override
    def submit(self, ticket: Ticket) -> list[Decision]:
        return [
            replace(decision, output_clamp=5) if isinstance(decision, Granted) else decision
            for decision in super().submit(ticket)
        ]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("asked", "written", "said"), [(50, 5, "5"), (4, 4, None), (5, 5, None)])
async def test_a_clamp_reaches_the_backend_and_is_said_where_it_lowers(
    asked: int, written: int, said: str | None, stream: bool
) -> None:
    async with gateway(StubOptions(decode=0), scheduler_class=Clamping) as rig:
        answer = await rig.post(CHAT, chat(asked, stream=stream))
        [record] = rig.stub.observed.records
        assert json.loads(record.body)["max_tokens"] == written
        assert record.output_tokens == written
        assert answer.headers.get("x-slotgate-output-clamp") == said


async def test_a_clamped_request_keeps_everything_else() -> None:
    async with gateway(StubOptions(decode=0), scheduler_class=Clamping) as rig:
        await rig.post(CHAT, chat(50, seed=7, temperature=0.5, id_slot=3))
        body = json.loads(rig.stub.observed.records[0].body)
        assert (body["seed"], body["temperature"], "id_slot" in body) == (7, 0.5, False)


class Stopping(Scheduler):
    """Stops a request when its answer has so many tokens, so many times."""

    at_tokens = 1
    times = 1
    charged = 0

    @override
    def charge(
        self, ticket_id: str, *, input_tokens: int, cached_tokens: int, output_tokens: int
    ) -> list[Decision]:
        decisions = super().charge(
            ticket_id,
            input_tokens=input_tokens,
            cached_tokens=cached_tokens,
            output_tokens=output_tokens,
        )
        self.charged += output_tokens
        if self.charged >= self.at_tokens and self.times:
            self.times -= 1
            self.charged = 0
            decisions.append(Abort(ticket_id=ticket_id, reason="kv_pressure"))
        return decisions


class StoppingTwice(Stopping):
    times = 2


class StoppingLate(Stopping):
    at_tokens = 17


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("scheduler_class", [Stopping, StoppingLate])
async def test_a_request_that_is_stopped_before_its_first_byte_runs_again(
    stream: bool, scheduler_class: type[Scheduler]
) -> None:
    if stream and scheduler_class is StoppingLate:
        return
    stub = StubOptions(decode=200, slots=1)
    async with gateway(stub, scheduler_class=scheduler_class) as rig:
        answer = await rig.post(CHAT, chat(40, stream=stream))
        assert answer.status == 200
        assert len(rig.stub.observed.records) == 2
        assert rig.stub.observed.records[-1].output_tokens == 40
        page = (await rig.get("/metrics")).body.decode()
        assert 'slotgate_stopped_total{backend="stub"} 1.0' in page


@pytest.mark.parametrize(("path", "status"), [(CHAT, 429), (MESSAGES, 529)])
@pytest.mark.parametrize("stream", [True, False])
async def test_one_that_is_stopped_twice_is_told_to_come_back(
    path: str, status: int, stream: bool
) -> None:
    stub = StubOptions(decode=200, slots=1)
    async with gateway(stub, scheduler_class=StoppingTwice) as rig:
        answer = await rig.post(path, chat(40, stream=stream))
        assert answer.status == status
        assert answer.code == "kv_pressure"
        assert answer.headers["retry-after"]


ENDS = {
    CHAT: b'"finish_reason":"length"',
    MESSAGES: b'"stop_reason":"max_tokens"',
    "/v1/completions": b'"finish_reason":"length"',
    "/completion": b'"stop_type":"limit"',
    "/v1/responses": b"event: error",
}


@pytest.mark.parametrize("path", ENDS)
async def test_a_stream_that_is_stopped_after_its_first_byte_ends_as_at_a_limit(path: str) -> None:
    stub = StubOptions(decode=200, slots=1)
    async with gateway(stub, scheduler_class=StoppingLate) as rig:
        body = chat(400, stream=True) | {"prompt": "hello", "input": "hello"}
        answer = await rig.post(path, body)
        assert answer.status == 200
        assert answer.body.count(ENDS[path]) == 1
        assert answer.body.endswith(b"\n\n")
        await rig.wait_until(lambda counts: counts.processing == 0)
        page = (await rig.get("/metrics")).body.decode()
        assert f'slotgate_requests_total{{outcome="killed",route="{path}"}} 1.0' in page


async def test_several_choices_that_are_stopped_end_with_an_error() -> None:
    stub = StubOptions(decode=200, slots=2)
    async with gateway(stub, scheduler_class=StoppingLate) as rig:
        answer = await rig.post(CHAT, chat(400, stream=True, n=2))
        last = answer.body.rstrip().rpartition(b"\n\n")[2]
        assert json.loads(last.partition(b"data: ")[2])["error"]["code"] == "kv_pressure"
