"""Runs a simulated server by the event loop's clock."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from slotgate.slotsim import Finished, Progressed, SimulatedServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from slotgate.slotsim import Event, ServerSpec
    from slotgate.slotsim.counters import Counters


class Clockwork:
    """A simulated server, and the timer that says when to look at it.

    `carry_out` is called with each event, in order, never from within itself: what it does to the
    simulation shows in later events.  `turned` is called after each look.  Durations in events and
    counters are of the event loop's time: whoever measures the stub must find what it says.
    """

    def __init__(
        self,
        spec: ServerSpec,
        *,
        speed: float,
        carry_out: Callable[[Event], None],
        turned: Callable[[], None],
    ) -> None:
        self.simulation = SimulatedServer(spec)
        self._speed = speed
        self._carry_out = carry_out
        self._turned = turned
        self._loop = asyncio.get_running_loop()
        self.started_at = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._due = inf
        self._is_turning = False

    def now(self) -> float:
        """Seconds of the simulation since its start."""
        return (self._loop.time() - self.started_at) * self._speed

    def counters(self) -> Counters:
        found = self.simulation.metrics(self.now())
        return replace(
            found,
            prompt_seconds=found.prompt_seconds / self._speed,
            output_seconds=found.output_seconds / self._speed,
        )

    def turn(self) -> None:
        """Carry out what is due, and come back when more is.  Call it after every change."""
        if self._is_turning:
            return
        self._is_turning = True
        try:
            while events := self.simulation.advance(self.now()):
                for event in events:
                    self._carry_out(_as_lived(event, self._speed))
        finally:
            self._is_turning = False
        self._turned()
        self._set_timer(self.simulation.next_event_time())

    def stop(self) -> None:
        self._set_timer(inf)

    def _set_timer(self, due: float) -> None:
        if due == self._due:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._due = due
        if due < inf:
            self._timer = self._loop.call_at(self.started_at + due / self._speed, self._ring)

    def _ring(self) -> None:
        self._timer, self._due = None, inf
        self.turn()


def _as_lived(event: Event, speed: float) -> Event:
    """The event with its durations as they were outside of the simulation."""
    if isinstance(event, Finished):
        result = event.result
        lived = replace(
            result,
            began_at=result.began_at / speed,
            first_token_at=result.first_token_at / speed,
            ended_at=result.ended_at / speed,
        )
        return replace(event, result=lived)
    if isinstance(event, Progressed):
        return replace(event, elapsed=event.elapsed / speed)
    return event
