"""Whether slots get on, and who waits for them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotgate.doctor.checks.work import STUCK_SECONDS, standing
from slotgate.doctor.evidence import Counted
from slotgate.doctor.finding import Severity
from slotgate.wire.llama_cpp import SlotView
from tests.doctor.seen import (
    ERROR,
    NOTE,
    OK,
    WARNING,
    found,
    looks,
    only,
    props,
    seen,
    severity,
    slot,
)

IDLE = slot(1)
LONG = int(STUCK_SECONDS / 1.2) + 2


def writing(number: int = 0, decoded: int = 5, *, task: int = 7) -> SlotView:
    return slot(number, task=task, decoded=decoded, tokens=10 + decoded, n_prompt_processed=10)


def reading(number: int = 0, *, processed: int | None = 0) -> SlotView:
    return slot(number, task=8, decoded=0, tokens=processed, n_prompt_processed=processed)


def still(*slots: SlotView, times: int = 2) -> tuple[tuple[SlotView, ...], ...]:
    return (slots,) * times


# Standing still.


def test_nothing_stands_where_nothing_was_seen() -> None:
    assert standing(()) == {}
    assert found("slot-stuck", seen(looks=())) == []


def test_idle_slots_are_fine() -> None:
    assert only("slot-stuck", seen(looks=looks(*still(slot(0), IDLE)))).severity is OK


@pytest.mark.parametrize(
    "later",
    [
        writing(decoded=6),
        writing(task=9),
        slot(0, task=7, decoded=5, tokens=16, n_prompt_processed=10),
        slot(0, task=7, decoded=5, tokens=15, n_prompt_processed=11),
    ],
)
def test_whatever_moves_is_no_standstill(later: SlotView) -> None:
    shown = looks((writing(), IDLE), (later, IDLE))
    finding = only("slot-stuck", seen(looks=shown))
    assert finding.severity is OK
    assert finding.found.startswith("1 of 2 slots work")


def test_one_look_tells_nothing_of_who_gets_on() -> None:
    assert severity("slot-stuck", seen(looks=looks((writing(), IDLE)))) is OK


def test_a_slot_that_wrote_nothing_for_a_moment_may_be_stuck() -> None:
    finding = only("slot-stuck", seen(looks=looks(*still(writing(), IDLE))))
    assert finding.severity is WARNING
    assert "Slot 0 has written nothing for 1.2 s" in finding.found
    assert "task 7, n_decoded 5, n_prompt_tokens_processed 10, unchanged" in finding.known_by


def test_a_slot_that_wrote_nothing_for_long_is_stuck() -> None:
    finding = only("slot-stuck", seen(looks=looks(*still(writing(), IDLE, times=LONG))))
    assert finding.severity is ERROR
    assert "Slot 0 is stuck" in finding.found


def test_a_prompt_that_is_read_excuses_who_writes() -> None:
    shown = looks(*still(writing(), reading(1, processed=64), times=LONG))
    writer, reader = found("slot-stuck", seen(looks=shown))
    assert (writer.severity, reader.severity) == (WARNING, WARNING)
    assert "Another slot reads a prompt" in writer.leads_to
    assert any("-b 512" in way for way in writer.mend)


@pytest.mark.parametrize(("times", "how"), [(2, NOTE), (LONG, WARNING)])
def test_a_slot_that_wrote_nothing_yet_may_be_reading(times: int, how: Severity) -> None:
    finding = only("slot-stuck", seen(looks=looks(*still(reading(), IDLE, times=times))))
    assert finding.severity is how
    assert "may be reading a long prompt." in finding.found


def test_a_build_that_does_not_tell_how_far_a_prompt_is_gets_the_doubt() -> None:
    shown = looks(*still(reading(processed=None), IDLE))
    finding = only("slot-stuck", seen(looks=shown))
    assert "does not tell how far it is" in finding.found
    assert "n_prompt_tokens_processed not told" in finding.known_by


def test_time_counts_from_the_last_move() -> None:
    shown = looks((writing(decoded=4), IDLE), *still(writing(), IDLE, times=3))
    assert standing(shown) == {0: pytest.approx(2.4)}


def test_only_who_works_can_stand() -> None:
    shown = looks(*still(writing(), IDLE))
    assert list(standing(shown)) == [0]
    assert standing(looks((writing(), IDLE), (slot(0), IDLE))) == {}


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 2)), min_size=1, max_size=8))
def test_a_standstill_is_as_long_as_the_same_state_was_seen_at_the_end(
    states: list[tuple[bool, int]],
) -> None:
    moments = [(slot(0, task=1, is_processing=busy, decoded=count),) for busy, count in states]
    alike = 0
    for state in reversed(states):
        if state != states[-1]:
            break
        alike += 1
    expected = {0: pytest.approx(1.2 * (alike - 1))} if states[-1][0] else {}
    assert standing(looks(*moments)) == expected


# Waiting.


def test_requests_that_wait_inside_are_told() -> None:
    finding = only("deferred", seen(counted=Counted(processing=2, deferred=3)))
    assert finding.severity is WARNING
    assert finding.found == "3 requests wait inside it."
    assert only("deferred", seen(counted=Counted(deferred=1))).found == "1 request waits inside it."


def test_one_slot_is_told_to_be_few_where_others_wait() -> None:
    shown = looks((slot(0),))
    one = seen(counted=Counted(deferred=2), looks=shown, props=props(slots=1))
    assert any(way.startswith("-np 4 -c 32768") for way in only("deferred", one).mend)
    two = seen(counted=Counted(deferred=2))
    assert not any("-np" in way for way in only("deferred", two).mend)
    unsized = seen(counted=Counted(deferred=2), looks=(), props=props(slots=1, ctx_per_slot=None))
    assert not any("-np" in way for way in only("deferred", unsized).mend)


def test_nobody_waits() -> None:
    assert severity("deferred", seen(counted=Counted(deferred=0))) is OK


def test_busy_slots_are_told_where_metrics_are_off() -> None:
    busy = looks((writing(0), writing(1)))
    assert severity("deferred", seen(looks=busy)) is NOTE
    assert severity("deferred", seen(looks=busy, counted=Counted())) is NOTE
    assert severity("deferred", seen(looks=looks((writing(0), IDLE)))) is None
    assert severity("deferred", seen(looks=())) is None
