"""Charging while an answer comes: the first token at once, then in parts, the rest at the end."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotgate.core import Ending, Ticket
from slotgate.core.deployment import DeploymentReport, State
from slotgate.runtime.driver import Driver
from slotgate.runtime.lease import Lease
from slotgate.runtime.meter import Meter
from slotgate.testing import FakeClock, FakeDice
from slotgate.wire.usage import Usage
from tests.runtime.recording import RecordingScheduler

if TYPE_CHECKING:
    from collections.abc import Iterator


class Metered:
    """A lease that runs, and its meter."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.clock = FakeClock()
        self.scheduler = RecordingScheduler(clock=self.clock, dice=FakeDice())
        self.scheduler.told = []
        self.driver = Driver(self.scheduler, loop)
        self.driver.report(DeploymentReport(id="d", model="", slots=1, state=State.READY))
        self.lease: Lease = self.driver.lease(Ticket(id="t", arrival=0.0, deadline=9.0))
        self.driver.submit(self.lease)
        self.meter = Meter(self.lease, self.clock.now)

    @property
    def outputs(self) -> list[Any]:
        return [charge[2] for charge in self.scheduler.charged]


@contextlib.contextmanager
def metered() -> Iterator[Metered]:
    loop = asyncio.new_event_loop()
    try:
        it = Metered(loop)
        yield it
        it.driver.close()
    finally:
        loop.close()


def test_the_first_token_is_charged_at_once_and_then_every_sixteen() -> None:
    with metered() as it:
        for tokens in range(40):
            it.meter.saw(tokens)
        assert it.outputs == [1, 16, 16]


def test_a_slow_answer_is_charged_after_a_quarter_of_a_second() -> None:
    with metered() as it:
        for tokens in range(1, 5):
            it.meter.saw(tokens)
            it.clock.advance(0.125)
        assert it.outputs == [1, 2]


def test_pieces_without_a_token_charge_nothing_however_late_they_come() -> None:
    with metered() as it:
        for tokens in (0, 0, 1, 1, 1):
            it.meter.saw(tokens)
            it.clock.advance(10.0)
        assert it.outputs == [1]


def test_the_end_charges_what_the_backend_counted_and_tells_its_times() -> None:
    with metered() as it:
        it.meter.saw(3)
        usage = Usage(
            input_tokens=9, cached_tokens=4, output_tokens=5, prompt_ms=20.0, predicted_ms=80.0
        )
        it.meter.settle(3, usage)
        assert it.scheduler.told == [("charge", 0, 0, 3), ("charge", 9, 4, 2), ("timed", 5, 5)]
        assert it.driver.snapshot().deployment("d").running[0].output_tokens == 5


def test_the_end_is_settled_once() -> None:
    with metered() as it:
        it.meter.settle(3, None)
        it.meter.settle(3, Usage(output_tokens=3))
        assert it.scheduler.charged == [(0, 0, 3)]


def test_nothing_is_charged_to_a_lease_that_has_been_given_back() -> None:
    with metered() as it:
        it.lease.finish(Ending.SERVED, slot_free=True)
        it.meter.settle(3, None)
        assert it.scheduler.charged == []


def test_times_that_the_backend_did_not_tell_are_not_told() -> None:
    with metered() as it:
        it.meter.settle(1, Usage(input_tokens=2, output_tokens=1))
        assert it.scheduler.told == [("charge", 2, 0, 1)]


@given(pieces=st.lists(st.integers(0, 40)), more=st.one_of(st.none(), st.integers(0, 400)))
def test_all_charges_together_are_what_came_or_what_the_backend_counted_if_more(
    pieces: list[int], more: int | None
) -> None:
    with metered() as it:
        seen = 0
        for piece in pieces:
            seen += piece
            it.meter.saw(seen)
            it.clock.advance(0.1)
        usage = None if more is None else Usage(output_tokens=seen + more)
        it.meter.settle(seen, usage)
        assert sum(it.outputs) == seen + (more or 0)


@pytest.mark.parametrize("tokens", [1, 16, 17, 33, 200])
def test_an_answer_costs_few_calls_into_the_scheduler(tokens: int) -> None:
    with metered() as it:
        for seen in range(1, tokens + 1):
            it.meter.saw(seen)
        it.meter.settle(tokens, None)
        assert len(it.outputs) <= 2 + tokens // 16
