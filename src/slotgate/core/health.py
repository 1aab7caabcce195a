"""How a backend is: a table of states and signals, with patience for what may be chance.

Rule 1: what is beyond doubt is believed at once: that nobody listens, that it loads its model.
Rule 2: what may be chance counts only in a row.  A failed request is a *strike*, a served one
        wipes them all; with so many strikes a backend is *ejected*: down, for a pause that doubles
        each time.
Rule 3: whoever comes back with its strikes is on trial (degraded): it gets one request of the real
        ones, and another strike sends it out again.
Rule 4: a request speaks for the time since it was granted.  What was granted before a backend went
        down says nothing of the one that came back.

Whether an ejected backend is used all the same, because nothing else serves its model, is not
known here: see `Model.keep_the_best`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import TYPE_CHECKING, Self

from slotgate.core.deployment import State

if TYPE_CHECKING:
    from collections.abc import Callable

# Looks in a row that may find it silent before it counts as down.
MISSES = 2
# Answers that break within so many seconds of each other died of one cause: a process that ended,
# a shared context that was full.
TOGETHER_SECONDS = 1.0
# Pauses double no further; a power of two beyond this is longer than any longest pause.
_MOST_DOUBLINGS = 30


class Signal(StrEnum):
    """What is noticed of a backend: by looking at it, or by the requests that it was given."""

    meaning: str

    def __new__(cls, name: str, meaning: str) -> Self:
        """Make a signal; the documentation shows what it means."""
        signal = str.__new__(cls, name)
        signal._value_ = name
        signal.meaning = meaning
        return signal

    @property
    def is_untried(self) -> bool:
        """Whether a request that noticed it has not reached the backend."""
        return self in {Signal.LOADING, Signal.UNREACHABLE}

    @property
    def causes_retries(self) -> bool:
        """Whether a request may be sent again because of it."""
        return self not in {
            Signal.ANSWERED,
            Signal.RESTARTING,
            Signal.UNWELL,
            Signal.BEGAN,
            Signal.SERVED,
        }

    # Looking at it.
    ANSWERED = "answered", "all that it was asked was answered, `/slots` included"
    LOADING = "loading", "it says that it loads its model, to a look or to a request"
    RESTARTING = "restarting", "its process has ended, and we start it again"
    UNREACHABLE = "unreachable", "nobody listens there, for a look or for a request"
    UNWELL = "unwell", "it answers a look with an error"
    SILENT = "silent", "a look found no answer in time, and no request heard of it meanwhile"
    # Requests.
    BEGAN = "began", "the first token of an answer came"
    SERVED = "served", "an answer came to its proper end"
    RESET = "reset", "the connection was lost before a byte, or the answer broke before a token"
    ERROR = "error", "it answered with an error that is its own fault"
    BUSY = "busy", "it answered 429 or 409: it has no room for us"
    TIMEOUT = "timeout", "it took too long to connect, or to begin its answer"
    BROKEN = "broken", "an answer broke after its first token"
    OVERFLOWED = "overflowed", "the context that its slots share was full, and ended all there"


class Step(StrEnum):
    """What a signal does to a state."""

    meaning: str

    def __new__(cls, name: str, meaning: str) -> Self:
        """Make a step; the documentation shows what it means."""
        step = str.__new__(cls, name)
        step._value_ = name
        step.meaning = meaning
        return step

    STAY = "-", "nothing changes"
    COME_BACK = (
        "come back",
        "ready, or degraded if it still has its strikes; not before its pause is over",
    )
    PARDON = "pardon", "ready, if it has waited for its trial for the longest pause"
    MISS = "miss", "the second in a row is down"
    STRIKE = "strike", "one more failure in a row; with too many of them it is ejected: down"
    LOAD = "load", "loading"
    START = "start", "starting"
    FALL = "fall", "down, and back as soon as it answers"
    RISE = "rise", "ready, and its strikes stay"
    CLEAR = "clear", "ready, and its strikes are wiped"


STATES = (State.STARTING, State.LOADING, State.READY, State.DEGRADED, State.DOWN)
_S = Step
# For each signal, what it does in each of the states.
_ROWS: dict[Signal, tuple[Step, Step, Step, Step, Step]] = {
    Signal.ANSWERED: (_S.COME_BACK, _S.COME_BACK, _S.STAY, _S.PARDON, _S.COME_BACK),
    Signal.LOADING: (_S.LOAD, _S.STAY, _S.LOAD, _S.LOAD, _S.LOAD),
    Signal.RESTARTING: (_S.STAY, _S.START, _S.START, _S.START, _S.START),
    Signal.UNREACHABLE: (_S.FALL, _S.FALL, _S.FALL, _S.FALL, _S.FALL),
    Signal.UNWELL: (_S.FALL, _S.FALL, _S.FALL, _S.FALL, _S.FALL),
    Signal.SILENT: (_S.MISS, _S.MISS, _S.MISS, _S.MISS, _S.MISS),
    Signal.BEGAN: (_S.STAY, _S.STAY, _S.STAY, _S.RISE, _S.RISE),
    Signal.SERVED: (_S.STAY, _S.STAY, _S.CLEAR, _S.CLEAR, _S.CLEAR),
    Signal.RESET: (_S.STAY, _S.STAY, _S.STRIKE, _S.STRIKE, _S.STAY),
    Signal.ERROR: (_S.STAY, _S.STAY, _S.STRIKE, _S.STRIKE, _S.STAY),
    Signal.BUSY: (_S.STAY, _S.STAY, _S.STRIKE, _S.STRIKE, _S.STAY),
    Signal.TIMEOUT: (_S.STAY, _S.STAY, _S.STRIKE, _S.STRIKE, _S.STAY),
    Signal.BROKEN: (_S.STAY, _S.STAY, _S.STRIKE, _S.STRIKE, _S.STAY),
    Signal.OVERFLOWED: (_S.STAY, _S.STAY, _S.STRIKE, _S.STRIKE, _S.STAY),
}
TABLE: dict[tuple[State, Signal], Step] = {
    (state, signal): step
    for signal, row in _ROWS.items()
    for state, step in zip(STATES, row, strict=True)
}
_TOGETHER = frozenset({Signal.BROKEN, Signal.OVERFLOWED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How many failures in a row eject a backend, and for how long, in seconds."""

    failures: int = 3
    first_pause: float = 5.0
    longest_pause: float = 120.0


class Health:
    """The state of one backend.

    `why` says in words what brought it there.  `is_ejected`: it is down for failing requests, but
    answers when it is looked at.
    """

    def __init__(self, patience: Patience = Patience()) -> None:
        self.state = State.STARTING
        self.why = "not heard of yet"
        self.is_ejected = False
        self._patience = patience
        self._strikes = self._misses = 0
        # How often it was ejected, each time soon after it had come back.
        self._ejections = 0
        self._out_until = self._back_at = self._fell_at = self._broken_at = -inf
        self._steps: dict[Step, Callable[[str, float], None]] = {
            Step.COME_BACK: self._come_back,
            Step.PARDON: self._pardon,
            Step.MISS: self._miss,
            Step.STRIKE: self._strike,
            Step.LOAD: self._load,
            Step.START: self._start,
            Step.FALL: self._fall,
            Step.RISE: self._rise,
            Step.CLEAR: self._clear,
        }

    def note(self, signal: Signal, why: str, now: float, *, since: float = inf) -> None:
        """Take in a signal.  Of a request, `since` is when it was granted."""
        if since < self._fell_at or self._is_same_death(signal, now):
            return
        if signal is Signal.ANSWERED:
            self._misses = 0
        step = self._steps.get(TABLE[self.state, signal])
        if step is not None:
            step(why, now)

    def put(self, state: State, why: str, now: float) -> None:
        """Take somebody's word for it, who knows more than signals can tell."""
        self._go(state, why, now)

    @property
    def is_gone(self) -> bool:
        """Whether nothing of what was known of it can still be so: it may be another process."""
        is_up = self.state in {State.READY, State.DEGRADED}
        return not (is_up or self.is_ejected)

    # The steps.

    def _come_back(self, why: str, now: float) -> None:
        if now < self._out_until:
            return
        if self._strikes < self._patience.failures:
            self._become(State.READY, why)
        else:
            self._back_at = now
            self._become(State.DEGRADED, "on trial: its last requests have failed")

    def _pardon(self, why: str, now: float) -> None:
        if now - self._back_at >= self._patience.longest_pause:
            self._rise(why, now)

    def _miss(self, why: str, now: float) -> None:
        self._misses += 1
        if self._misses >= MISSES:
            self._fall(why, now)

    def _strike(self, why: str, now: float) -> None:
        self._strikes += 1
        if self._strikes >= self._patience.failures:
            self._eject(why, now)

    def _eject(self, why: str, now: float) -> None:
        patience = self._patience
        is_again = now - self._back_at < patience.longest_pause
        self._ejections = min(self._ejections + 1, _MOST_DOUBLINGS) if is_again else 0
        pause = min(patience.first_pause * 2**self._ejections, patience.longest_pause)
        self._out_until = now + pause
        words = f"out for {pause:g} s after {self._strikes} failures in a row, at last: {why}"
        self._leave(State.DOWN, words, now)
        self.is_ejected = True

    def _load(self, why: str, now: float) -> None:
        self._go(State.LOADING, why, now)

    def _start(self, why: str, now: float) -> None:
        self._go(State.STARTING, why, now)

    def _fall(self, why: str, now: float) -> None:
        self._go(State.DOWN, why, now)

    def _rise(self, why: str, now: float) -> None:
        self._back_at = now
        self._become(State.READY, why)

    def _clear(self, why: str, now: float) -> None:
        self._strikes = 0
        if self.state is not State.READY:
            self._rise(why, now)

    # What they are made of.

    def _go(self, state: State, why: str, now: float) -> None:
        """Leave for a reason that has nothing to do with strikes: no pause is left to wait for."""
        self._out_until = -inf
        self._leave(state, why, now)

    def _leave(self, state: State, why: str, now: float) -> None:
        self._fell_at = now
        self._become(state, why)

    def _become(self, state: State, why: str) -> None:
        self.state, self.why = state, why
        self.is_ejected = False

    def _is_same_death(self, signal: Signal, now: float) -> bool:
        if signal not in _TOGETHER:
            return False
        if now - self._broken_at < TOGETHER_SECONDS:
            return True
        self._broken_at = now
        return False
