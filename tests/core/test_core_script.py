"""The script that scheduler tests are written in must itself tell the truth."""

from __future__ import annotations

import pytest

from slotgate.core.decision import Abort, Decision
from slotgate.core.limits import Limits
from slotgate.testing import FakeClock, FakeDice, Script, ready
from slotgate.testing.script import _texts


def test_a_script_that_is_right_passes_and_can_go_on() -> None:
    script = Script(ready("left"), limits=Limits(max_waiting=0))
    script.run("""
        # A remark.
        0    submit a      -> granted a on left
        0    submit b      -> refused b queue_full
        0    submit c      -> refused c queue_full by queue.max_waiting

    """).run("1.5 leave a")
    assert script.clock.now() == 1.5
    assert len(script.decisions) == 3


@pytest.mark.parametrize(
    ("script", "wanted", "decided"),
    [
        ("0 submit a", "- 0.0 submit a", "+ 0.0 submit a -> granted a on left"),
        (
            "0 submit a -> granted a on right",
            "- 0.0 submit a -> granted a on right",
            "+ 0.0 submit a -> granted a on left",
        ),
        (
            "0 submit a model=n -> refused a queue_full by nothing",
            "- 0.0 submit a model=n -> refused a queue_full by nothing",
            "+ 0.0 submit a model=n -> refused a model_not_found",
        ),
        (
            "0 submit a within=0 -> refused a queue_timeout by luck",
            "- 0.0 submit a within=0 -> refused a queue_timeout by luck",
            "+ 0.0 submit a within=0 -> refused a queue_timeout by x-slotgate-deadline-ms",
        ),
        ("0 tick -> granted a on left", "- 0.0 tick -> granted a on left", "+ 0.0 tick"),
    ],
)
def test_a_script_that_is_wrong_fails_with_a_diff(script: str, wanted: str, decided: str) -> None:
    with pytest.raises(AssertionError) as failure:
        Script(ready("left")).run(script)
    lines = [" ".join(line.split()) for line in str(failure.value).splitlines()]
    assert wanted in lines
    assert decided in lines


def test_an_unknown_event_is_an_error() -> None:
    with pytest.raises(AttributeError):
        Script(ready("left")).run("0 dance a")


def test_time_in_a_script_does_not_go_backwards() -> None:
    with pytest.raises(ValueError, match="is before"):
        Script(ready("left")).run("""
            1  tick
            0  tick
        """)


def test_an_abort_is_written_with_or_without_its_reason() -> None:
    decision: Decision = Abort(ticket_id="a", reason="kv")
    assert _texts(decision) == ("abort a", "abort a kv")


def test_fake_time_and_chance_do_as_they_are_told() -> None:
    clock, dice = FakeClock(5), FakeDice(0.1, 0.2)
    clock.advance(2)
    assert clock.now() == 7
    assert [dice.random() for _ in range(3)] == [0.1, 0.2, 0.1]
