"""Waiting, with a bound, for what nothing announces: the state of another process, say.

The one place in which tests look again after a while.  What can be seen as it happens, like a line
that is printed, an answer or a decision of the scheduler, is waited for as that instead.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def wait_for(condition: Callable[[], bool], *, every: float = 0.02, within: float = 20.0) -> float:
    """Look every so many seconds until the condition holds; return after how many it did."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > within:
            raise TimeoutError("the awaited state did not come")
        time.sleep(every)
    return time.monotonic() - began


async def wait_until(
    condition: Callable[[], bool | Awaitable[bool]], *, every: float = 0.002, within: float = 10.0
) -> None:
    """The same in an event loop, which goes on meanwhile; the condition may be awaited for."""
    async with asyncio.timeout(within):
        while not await _holds(condition):
            await asyncio.sleep(every)


async def _holds(condition: Callable[[], bool | Awaitable[bool]]) -> bool:
    held = condition()
    return held if isinstance(held, bool) else await held
