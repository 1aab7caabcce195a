"""A backend that fails at once is never busy, and must not attract the traffic for that."""

from __future__ import annotations

import asyncio

import pytest

from slotgate.stub import StubOptions
from tests.http.rig import CHAT, chat, fleet

pytestmark = pytest.mark.anyio

REQUESTS = 600
CLIENTS = 12
# Small answers on the two that serve, so that they are busy while the third one never is.
STUB = StubOptions(decode=2000, prefill=0, slots=4, ctx=1 << 16)


@pytest.mark.parametrize("fault", ["fast500", "fast503"])
async def test_it_gets_at_most_two_of_a_hundred_requests_and_no_client_sees_it(fault: str) -> None:
    async with fleet({"hole": STUB, "left": STUB, "right": STUB}) as rig:
        rig.stubs["hole"].set_fault(fault)
        numbers = iter(range(REQUESTS))
        statuses: list[int] = []

        async def client() -> None:
            for number in numbers:
                answer = await rig.post(CHAT, chat(5, stream=number % 2 == 0))
                statuses.append(answer.status)

        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(client())
        assert statuses == [200] * REQUESTS
        assert 1 <= rig.stubs["hole"].observed.requests <= REQUESTS * 2 // 100
