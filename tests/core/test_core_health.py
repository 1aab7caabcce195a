"""What makes a backend ready, on trial, or down: the table of states, and patience."""

from __future__ import annotations

import pytest

from slotgate.core.deployment import State
from slotgate.core.health import MISSES, STATES, TABLE, Health, Patience, Signal, Step
from slotgate.core.health_docs import health_reference

# Failures that a request alone can tell of.
STRIKES = [
    Signal.RESET,
    Signal.ERROR,
    Signal.BUSY,
    Signal.TIMEOUT,
    Signal.BROKEN,
    Signal.OVERFLOWED,
]
PATIENCE = Patience(failures=3, first_pause=5.0, longest_pause=60.0)


class Life:
    """A backend's health, and its clock."""

    def __init__(self) -> None:
        self.health = Health(PATIENCE)
        self.now = 100.0

    def note(self, *signals: Signal, times: int = 1, since: float | None = None) -> State:
        for signal in signals * times:
            granted = self.now if since is None else since
            self.health.note(signal, str(signal), self.now, since=granted)
        return self.health.state

    def wait(self, seconds: float) -> Life:
        self.now += seconds
        return self

    def eject(self) -> float:
        """Let it fail until it is out, and return for how long it is."""
        assert self.health.state in {State.READY, State.DEGRADED}
        while not self.health.is_ejected:
            self.note(Signal.ERROR)
        began = self.now
        while self.note(Signal.ANSWERED) is State.DOWN:
            self.wait(0.5)
        return self.now - began


def at(state: State) -> Life:
    """A life that has come to this state."""
    life = Life()
    if state is State.LOADING:
        life.note(Signal.LOADING)
    elif state in {State.READY, State.DEGRADED}:
        life.note(Signal.ANSWERED)
    elif state is State.DOWN:
        life.note(Signal.UNREACHABLE)
    if state is State.DEGRADED:
        life.eject()
    assert life.health.state is state
    return life


# What each step leads to, by one signal, from a backend that has no failures but those that
# brought it to its state.
def after(step: Step, state: State) -> State:
    is_over = step is Step.STRIKE and state is State.DEGRADED
    return {
        Step.COME_BACK: State.READY,
        Step.LOAD: State.LOADING,
        Step.START: State.STARTING,
        Step.FALL: State.DOWN,
        Step.RISE: State.READY,
        Step.CLEAR: State.READY,
        Step.STRIKE: State.DOWN if is_over else state,
    }.get(step, state)


@pytest.mark.parametrize("signal", Signal)
@pytest.mark.parametrize("state", STATES)
def test_each_signal_does_in_each_state_what_the_table_says(state: State, signal: Signal) -> None:
    life = at(state).wait(2)
    assert life.note(signal) is after(TABLE[state, signal], state)


def test_the_table_has_a_step_for_each_state_and_signal_and_uses_each_step() -> None:
    assert set(TABLE) == {(state, signal) for state in STATES for signal in Signal}
    assert set(TABLE.values()) == set(Step)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(
    ("signal", "result"),
    [
        (Signal.UNREACHABLE, State.DOWN),
        (Signal.LOADING, State.LOADING),
        (Signal.RESTARTING, State.STARTING),
    ],
)
def test_what_is_beyond_doubt_is_believed_at_once(
    state: State, signal: Signal, result: State
) -> None:
    assert at(state).note(signal) is result


@pytest.mark.parametrize("signal", STRIKES)
def test_failures_in_a_row_eject(signal: Signal) -> None:
    life = at(State.READY)
    for _ in range(PATIENCE.failures - 1):
        assert life.wait(2).note(signal) is State.READY
    assert life.wait(2).note(signal) is State.DOWN
    assert life.health.is_ejected
    assert life.health.why == f"out for 5 s after 3 failures in a row, at last: {signal}"


def test_failures_with_a_served_request_between_them_do_not() -> None:
    life = at(State.READY)
    for _ in range(20):
        assert life.note(Signal.ERROR, Signal.ERROR, Signal.SERVED) is State.READY


def test_an_answer_that_only_began_wipes_no_failure() -> None:
    life = at(State.READY)
    for _ in range(2):
        assert life.wait(2).note(Signal.BEGAN, Signal.BROKEN) is State.READY
    assert life.wait(2).note(Signal.BEGAN, Signal.BROKEN) is State.DOWN


@pytest.mark.parametrize("signal", [Signal.BROKEN, Signal.OVERFLOWED])
def test_answers_that_died_together_count_once(signal: Signal) -> None:
    life = at(State.READY)
    assert life.note(signal, times=8) is State.READY
    life.wait(0.5).note(signal)
    assert life.wait(1).note(signal, times=8) is State.READY
    assert life.wait(1).note(signal) is State.DOWN


def test_answers_that_break_all_the_time_count_each_second() -> None:
    life = at(State.READY)
    seconds = 0.0
    while life.note(Signal.BROKEN) is State.READY:
        life.wait(0.25)
        seconds += 0.25
    assert seconds == 2.0


@pytest.mark.parametrize("signal", [Signal.RESET, Signal.ERROR, Signal.BUSY, Signal.TIMEOUT])
def test_failures_before_a_byte_count_each(signal: Signal) -> None:
    assert at(State.READY).note(signal, times=PATIENCE.failures) is State.DOWN


def test_a_look_may_miss_once() -> None:
    life = at(State.READY)
    for _ in range(20):
        assert life.note(Signal.SILENT, times=MISSES - 1) is State.READY
        life.note(Signal.ANSWERED)
    assert life.note(Signal.SILENT, times=MISSES) is State.DOWN
    assert not life.health.is_ejected, "nothing is to be had there, whoever else is down"
    assert life.note(Signal.ANSWERED) is State.READY


def test_who_was_ejected_stays_out_for_its_pause_and_comes_back_on_trial() -> None:
    life = at(State.READY)
    life.note(Signal.ERROR, times=3)
    assert life.wait(4.9).note(Signal.ANSWERED) is State.DOWN
    assert life.wait(0.1).note(Signal.ANSWERED) is State.DEGRADED
    assert not life.health.is_ejected


def test_each_failed_trial_doubles_the_pause_up_to_the_longest() -> None:
    life = at(State.READY)
    assert [life.eject() for _ in range(6)] == [5, 10, 20, 40, 60, 60]


def test_pauses_do_not_grow_beyond_numbers() -> None:
    health = Health(Patience(failures=1, first_pause=1e-9, longest_pause=1.0))
    now = 0.0
    for _ in range(2000):
        now += 1.0
        health.note(Signal.ANSWERED, "ok", now)
        health.note(Signal.ERROR, "error", now + 0.5)
    assert health.is_ejected
    assert health.why.startswith("out for 1 s")


def test_a_pause_is_the_first_again_after_a_long_time_without_failures() -> None:
    life = at(State.READY)
    life.eject()
    life.note(Signal.SERVED)
    assert life.wait(PATIENCE.longest_pause - 1).eject() == 10
    life.note(Signal.SERVED)
    assert life.wait(PATIENCE.longest_pause).eject() == 5


def test_one_request_that_begins_ends_the_trial_and_one_that_fails_too() -> None:
    life = at(State.DEGRADED)
    assert life.note(Signal.BEGAN) is State.READY
    assert life.note(Signal.ERROR) is State.DOWN, "it was not served yet"
    assert at(State.DEGRADED).note(Signal.ERROR) is State.DOWN


def test_one_request_that_is_served_wipes_the_failures() -> None:
    life = at(State.DEGRADED)
    assert life.note(Signal.SERVED) is State.READY
    assert life.note(Signal.ERROR, times=2) is State.READY


def test_a_trial_that_nobody_needs_ends_by_itself_but_forgives_nothing() -> None:
    life = at(State.DEGRADED)
    assert life.wait(59).note(Signal.ANSWERED) is State.DEGRADED
    assert life.wait(1).note(Signal.ANSWERED) is State.READY
    assert life.note(Signal.ERROR) is State.DOWN
    life.wait(5)
    assert life.note(Signal.ANSWERED) is State.DOWN, "the pause is the second one"


@pytest.mark.parametrize("signal", [*STRIKES, Signal.BEGAN, Signal.SERVED])
def test_a_request_from_before_the_fall_says_nothing(signal: Signal) -> None:
    life = at(State.READY)
    granted = life.now
    life.wait(1).note(Signal.ERROR, times=3)
    assert life.wait(1).note(signal, since=granted) is State.DOWN
    life.wait(5).note(Signal.ANSWERED)
    assert life.note(signal, since=granted) is State.DEGRADED


def test_one_that_is_used_though_it_was_ejected_shows_that_it_serves_again() -> None:
    life = at(State.READY)
    life.note(Signal.ERROR, times=3)
    assert life.wait(1).note(Signal.ERROR) is State.DOWN
    assert life.wait(1).note(Signal.BEGAN) is State.READY
    assert not life.health.is_ejected


def test_a_process_that_is_new_need_not_wait_but_is_on_trial() -> None:
    life = at(State.READY)
    life.note(Signal.ERROR, times=3)
    life.wait(1).note(Signal.UNREACHABLE)
    assert not life.health.is_ejected
    assert life.note(Signal.ANSWERED) is State.DEGRADED


@pytest.mark.parametrize(
    ("state", "is_gone"), [(s, s not in {State.READY, State.DEGRADED}) for s in STATES]
)
def test_what_is_known_of_a_process_holds_while_it_is_there(state: State, is_gone: bool) -> None:
    assert at(state).health.is_gone is is_gone


def test_who_was_ejected_is_the_same_process_still() -> None:
    life = at(State.READY)
    life.note(Signal.ERROR, times=3)
    assert not life.health.is_gone


def test_the_documentation_shows_every_signal_and_step() -> None:
    text = health_reference()
    assert all(f"| `{signal}` | {signal.meaning} |" in text for signal in Signal)
    assert all(f"| {step} | {step.meaning} |" in text for step in Step)
    assert "| `loading` | load | - | load | load | load |" in text


def test_what_was_not_tried_and_what_went_wrong_are_told_apart() -> None:
    assert {s for s in Signal if s.is_untried} == {Signal.LOADING, Signal.UNREACHABLE}
    told = {Signal.LOADING, Signal.UNREACHABLE, Signal.SILENT, *STRIKES}
    assert {s for s in Signal if s.causes_retries} == told
