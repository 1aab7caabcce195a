"""Who waits can see where it stands, its own requests only, and the operator all of them."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from typing_extensions import override

from slotgate.core import Reason, Refused, Scheduler, Ticket
from slotgate.stub import StubOptions
from tests.http.rig import CHAT, Rig, chat, gateway, gateway_at
from tests.http.test_odd_backends import backend, plain
from tests.http.test_waiting import BUSY, all_busy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from slotgate.core.decision import Decision

pytestmark = pytest.mark.anyio

LEFT = [(b"authorization", b"Bearer left-key-0123456789")]
RIGHT = [(b"authorization", b"Bearer right-key-0123456789")]
OPERATOR = [(b"authorization", b"Bearer admin-key-0123456789")]
KEYS = {
    "LEFT_KEY": "left-key-0123456789",
    "RIGHT_KEY": "right-key-0123456789",
    "ADMIN_KEY": "admin-key-0123456789",
}
TENANTS: list[dict[str, Any]] = [
    {"name": "left", "key_env": "LEFT_KEY", "class": "batch"},
    {"name": "right", "key_env": "RIGHT_KEY"},
]
TOTALS = {"waiting", "waiting_bytes", "slots", "slots_idle", "slots_processing"}


@contextlib.asynccontextmanager
async def waiting(rig: Rig, *headers: Sequence[tuple[bytes, bytes]]) -> AsyncIterator[None]:
    """Let one request wait for each of the headers."""
    before = rig.counts.waiting
    async with contextlib.AsyncExitStack() as stack:
        group = await stack.enter_async_context(asyncio.TaskGroup())
        tasks = []
        for number, header in enumerate(headers, start=before + 1):
            exchange = await stack.enter_async_context(
                rig.open("POST", CHAT, chat(user="secret"), header)
            )
            tasks.append(group.create_task(exchange.open()))
            await rig.wait_until(lambda counts, n=number: counts.waiting == n)  # type: ignore[misc]
        yield
        for task in tasks:
            task.cancel()


async def test_without_tenants_everybody_sees_what_waits() -> None:
    async with gateway(BUSY) as rig, all_busy(rig), waiting(rig, [], []):
        seen = (await rig.get("/queue")).json()
        assert set(seen) == {*TOTALS, "tickets"}
        assert seen["waiting"] == 2
        assert [ticket["position"] for ticket in seen["tickets"]] == [1, 2]
        [first, _] = seen["tickets"]
        assert set(first) == {
            "id",
            "model",
            "class",
            "position",
            "waited_seconds",
            "predicted_wait_seconds",
            "deadline_seconds",
        }
        assert first["class"] == "standard"
        [told] = (await rig.get("/v1/models")).json()["data"]
        assert first["model"] == told["id"] != ""
        assert 0 <= first["waited_seconds"] < 10
        assert 20 < first["deadline_seconds"] <= 30


async def test_a_tenant_sees_its_own_and_the_operator_all() -> None:
    stub = StubOptions(decode=5, slots=1, ctx=1 << 20)
    settings: dict[str, Any] = {"env": KEYS, "tenants": TENANTS, "admin_key_env": "ADMIN_KEY"}
    async with gateway(stub, **settings) as rig:
        async with rig.open("POST", CHAT, chat(100_000, stream=True), RIGHT) as held:
            await held.open()
            async with waiting(rig, LEFT, RIGHT, RIGHT):
                left = (await rig.get("/queue", LEFT)).json()
                assert left["waiting"] == 3
                assert [ticket["class"] for ticket in left["tickets"]] == ["batch"]
                assert "tenants" not in left
                right = (await rig.get("/queue", RIGHT)).json()
                assert len(right["tickets"]) == 2
                everything = await rig.get("/queue", OPERATOR)
                assert everything.json()["tenants"] == {"left": 1, "right": 2}
                names = [ticket["tenant"] for ticket in everything.json()["tickets"]]
                assert sorted(names) == ["left", "right", "right"]
                assert b"hello" not in everything.body
                assert b"secret" not in everything.body
                assert (await rig.get("/queue")).status == 401


@pytest.mark.parametrize(
    ("told", "name"), [("tiny", "tiny"), ("/m/tiny-q4.gguf", "tiny-q4"), ("org/tiny", "org/tiny")]
)
async def test_a_model_without_an_alias_has_the_name_that_its_backend_tells(
    told: str, name: str
) -> None:
    async with gateway(StubOptions(decode=0, model=told)) as rig:
        assert rig.app.fleet.name_of("") == name
        assert rig.app.fleet.name_of("given") == "given"


async def test_a_model_of_which_nobody_tells_has_no_name() -> None:
    async with backend(b"", plain(b'{"total_slots":1}')) as url, gateway_at(url) as rig:
        assert rig.app.fleet.name_of("") == ""


# What a request is told of its own wait.


class Foreseeing(Scheduler):
    """Refuses each newcomer while somebody runs, for its wait would be 12.5 s."""

    reason = Reason.WAIT_TOO_LONG

    @override
    def submit(self, ticket: Ticket) -> list[Decision]:
        if self.counts().idle:
            return super().submit(ticket)
        refused = Refused(
            ticket=ticket,
            reason=self.reason,
            retry_after=7.0,
            predicted_wait=12.5,
            limit=9.0,
            value=12.5,
            setting="classes.standard.budget",
        )
        return [refused]


class ForeseeingFull(Foreseeing):
    reason = Reason.QUEUE_FULL


async def test_a_wait_that_would_be_too_long_is_refused_with_deadline_wait_and_setting() -> None:
    async with gateway(BUSY, scheduler_class=Foreseeing) as rig, all_busy(rig):
        answer = await rig.post(CHAT, chat(), [(b"x-slotgate-deadline-ms", b"9500")])
        assert answer.status == 429
        assert answer.code == "wait_too_long"
        assert answer.headers["x-slotgate-predicted-wait-ms"] == "12500"
        assert answer.headers["retry-after"] == "7"
        message = answer.json()["error"]["message"]
        assert "about 12.5 s" in message
        assert "x-slotgate-deadline-ms is 9.5 s" in message
        assert "come back in 7 s" in message


async def test_every_refusal_says_what_was_foreseen() -> None:
    async with gateway(BUSY, scheduler_class=ForeseeingFull) as rig, all_busy(rig):
        answer = await rig.post(CHAT, chat())
        assert answer.code == "queue_full"
        assert answer.headers["x-slotgate-predicted-wait-ms"] == "12500"
        assert "the wait was expected to be 12.5 s" in answer.json()["error"]["message"]


async def test_an_answer_that_had_to_wait_says_what_was_foreseen() -> None:
    async with gateway(StubOptions(decode=200, slots=1)) as rig:
        # Some that end, so that the scheduler knows how long they are.
        for _ in range(6):
            await rig.post(CHAT, chat(20))
        async with asyncio.TaskGroup() as group:
            first = group.create_task(rig.post(CHAT, chat(40)))
            await rig.wait_until(lambda counts: counts.idle == 0)
            second = group.create_task(rig.post(CHAT, chat(4)))
        assert "x-slotgate-predicted-wait-ms" not in first.result().headers
        assert int(second.result().headers["x-slotgate-predicted-wait-ms"]) > 0
        assert int(second.result().headers["x-slotgate-queue-ms"]) > 0
        assert first.result().headers["x-slotgate-queue-position"] == "0"
        assert second.result().headers["x-slotgate-queue-position"] == "1"
        page = (await rig.get("/metrics")).body.decode()
        assert "slotgate_wait_ratio_count 1.0" in page
