"""The timer that looks back instead of being moved."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import cast

from slotgate.net.silence import Silence


class Handle:
    def __init__(self, due: float, call: Callable[[], None]) -> None:
        self.due = due
        self.call = call
        self.is_cancelled = False

    def __lt__(self, other: Handle) -> bool:
        return self.due < other.due

    def when(self) -> float:
        return self.due

    def cancel(self) -> None:
        self.is_cancelled = True


class FakeLoop:
    """The two things that a silence asks of its loop, in a time of its own."""

    def __init__(self) -> None:
        self.now = 100.0
        self.handles: list[Handle] = []
        self.timers_made = 0

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, call: Callable[[], None]) -> Handle:
        self.timers_made += 1
        handle = Handle(when, call)
        heapq.heappush(self.handles, handle)
        return handle

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while self.handles and self.handles[0].due <= end:
            handle = heapq.heappop(self.handles)
            self.now = max(self.now, handle.due)
            if not handle.is_cancelled:
                handle.call()
        self.now = end


class Watched:
    """A silence in a fake loop, and when it called back."""

    def __init__(self, limit: float) -> None:
        self.loop = FakeLoop()
        self.calls: list[float] = []
        self.silence = Silence()
        self.watch(limit)

    def watch(self, limit: float) -> None:
        loop = cast("asyncio.AbstractEventLoop", self.loop)
        self.silence.watch(loop, limit, lambda: self.calls.append(self.loop.now))

    def touch(self) -> None:
        self.silence.last_seconds = self.loop.now


def test_it_calls_once_when_the_limit_has_passed() -> None:
    watched = Watched(10)
    watched.loop.advance(9.9)
    assert watched.calls == []
    watched.loop.advance(100)
    assert watched.calls == [110.0]


def test_what_happens_moves_the_call_and_makes_no_timer() -> None:
    watched = Watched(10)
    for _ in range(9):
        watched.loop.advance(1)
        watched.touch()
    assert watched.loop.timers_made == 1
    watched.loop.advance(100)
    assert watched.calls == [119.0]
    assert watched.loop.timers_made == 2


def test_a_shorter_limit_is_kept_to_at_once_and_a_longer_one_needs_no_new_timer() -> None:
    watched = Watched(10)
    watched.watch(20)
    assert watched.loop.timers_made == 1
    watched.watch(5)
    assert watched.loop.timers_made == 2
    watched.loop.advance(100)
    assert watched.calls == [105.0]


def test_while_held_time_does_not_count_and_afterwards_it_counts_from_the_release() -> None:
    watched = Watched(10)
    watched.loop.advance(1)
    watched.silence.hold()
    watched.loop.advance(27)
    watched.silence.release()
    watched.loop.advance(9)
    assert watched.calls == []
    watched.loop.advance(100)
    assert watched.calls == [138.0]


def test_once_stopped_it_never_calls() -> None:
    watched = Watched(10)
    watched.silence.stop()
    watched.loop.advance(100)
    assert watched.calls == []
