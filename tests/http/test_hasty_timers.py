"""An event loop whose timers ring early, as uvloop's do: it counts in milliseconds."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from slotgate.stub import StubOptions
from tests.http.rig import CHAT, chat, gateway

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context

INTERVAL = 1.2
HASTE = 0.005


class HastyLoop(asyncio.SelectorEventLoop):
    @override
    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return super().call_at(when - HASTE, callback, *args, context=context)


async def _seconds_to_settle() -> float:
    stub = StubOptions(decode=100, slots=1, ctx=1 << 16, output_tokens=None)
    async with gateway(stub) as rig:
        async with rig.open("POST", CHAT, chat(9999, stream=True)) as ours:
            await ours.open()
            await rig.app.fleet.probes["stub"].wait_fresh_slots(5)
        loop = asyncio.get_running_loop()
        left = loop.time()
        await rig.wait_until(lambda counts: counts.idle == 1)
        return loop.time() - left


def test_a_slot_that_was_left_is_looked_at_after_one_interval_not_two() -> None:
    with asyncio.Runner(loop_factory=HastyLoop) as runner:
        assert runner.run(_seconds_to_settle()) < 1.5 * INTERVAL
