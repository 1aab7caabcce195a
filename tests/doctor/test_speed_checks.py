"""What the doctor's own requests met."""

from __future__ import annotations

import pytest

from slotgate.doctor.evidence import Counted, Evidence, Measured
from slotgate.doctor.finding import Severity
from tests.doctor.seen import (
    ERROR,
    NOTE,
    OK,
    WARNING,
    found,
    looks,
    only,
    seen,
    severity,
    slot,
    stated,
)


def measured(worst: float | None, usual: float | None = 0.02, **more: object) -> Measured:
    given: dict[str, object] = {"prompt_tokens": 2048, "prefill_rate": 1000.0}
    return Measured(usual_gap=usual, worst_gap=worst, **(given | more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("worst", "how"),
    [(0.099, OK), (0.1, NOTE), (0.99, NOTE), (1.0, WARNING), (10.0, WARNING), (None, None)],
)
def test_a_pause_that_is_noticed_is_a_warning(worst: float | None, how: Severity | None) -> None:
    assert severity("stream-stall", seen(measured=measured(worst))) is how


def test_a_slow_server_is_not_stalled_by_being_slow() -> None:
    assert severity("stream-stall", seen(measured=measured(2.0, usual=0.5))) is OK


def test_nothing_is_said_of_what_was_not_measured() -> None:
    assert found("stream-stall", seen()) == found("speed", seen()) == []
    assert severity("stream-stall", seen(measured=measured(3.0, usual=None))) is None


def test_a_stall_is_told_in_figures() -> None:
    finding = only("stream-stall", seen(measured=measured(2.1)))
    assert "2.1 s without a token, 105 times the usual" in finding.found
    assert finding.known_by == (
        "a stream of ours: 20 ms between two tokens, and 2.1 s while a prompt of 2,048 tokens was "
        "read in another slot"
    )
    pieces = measured(2.1, piece_tokens=2046)
    assert only("stream-stall", seen(measured=pieces)).known_by.endswith(", 2,046 at a time")


@pytest.mark.parametrize(
    ("rate", "batch"),
    [(40.0, 32), (300.0, 64), (1000.0, 128), (1100.0, 256), (50_000.0, 2048), (1e9, 2048)],
)
def test_the_advised_batch_is_read_in_a_quarter_of_a_second(rate: float, batch: int) -> None:
    finding = only("stream-stall", seen(measured=measured(2.0, prefill_rate=rate)))
    assert finding.mend[0].startswith(f"-b {batch}: ")


def test_no_batch_is_advised_that_has_not_a_token_for_each_slot() -> None:
    many = looks(tuple(slot(number) for number in range(40)))
    finding = only("stream-stall", seen(measured=measured(2.0, prefill_rate=40.0), looks=many))
    assert finding.mend[0].startswith("-b 64: ")


def test_without_a_speed_the_advice_is_a_common_size() -> None:
    finding = only("stream-stall", seen(measured=measured(2.0, prefill_rate=None)))
    assert finding.mend == ("-b 512, or less",)


def test_speeds_are_told_as_far_as_they_are_known() -> None:
    assert only("speed", seen(measured=measured(None))).found == (
        "It writes 50 tokens/s in one slot, and reads 1000 tokens/s of a prompt."
    )
    slower = measured(None, prefill_rate=None)
    assert only("speed", seen(measured=slower)).found == "It writes 50 tokens/s in one slot."


def test_a_request_that_failed_is_an_error_where_a_slot_was_free() -> None:
    failed = Measured(failure="POST /completion: 500")
    assert only("request-failed", seen(measured=failed)).known_by == "POST /completion: 500"
    assert severity("request-failed", seen(measured=failed)) is ERROR
    busy = looks((slot(0, task=1),))
    assert severity("request-failed", seen(measured=failed, looks=busy)) is NOTE
    assert severity("request-failed", seen(measured=failed, looks=())) is NOTE
    assert severity("request-failed", seen(measured=Measured())) is None
    assert severity("request-failed", seen()) is None


@pytest.mark.parametrize(
    ("tokens", "gap", "how"),
    [(8.0, 0.3, WARNING), (7.9, 0.3, None), (8.0, 0.29, None), (1.0, 2.0, None)],
)
def test_lumps_are_a_buffers_if_they_are_large_and_rare(
    tokens: float, gap: float, how: Severity | None
) -> None:
    lumpy = measured(3.0, lump_tokens=tokens, lump_gap=gap)
    assert severity("stream-buffered", seen(measured=lumpy)) is how
    # The gaps are then those of the buffer.
    assert severity("stream-stall", seen(measured=lumpy)) is (None if how else WARNING)
    assert severity("speed", seen(measured=lumpy)) is (None if how else OK)
    assert severity("stream-buffered", seen()) is None


def test_gaps_of_nothing_are_no_stall() -> None:
    assert severity("stream-stall", seen(measured=measured(0.0))) is None
    assert severity("stream-stall", seen(measured=measured(3.0, usual=0.0))) is None


def test_why_not_all_was_measured_is_told() -> None:
    (finding,) = found("speed", seen(measured=Measured(refusal="all slots are busy")))
    assert (finding.severity, finding.known_by) == (NOTE, "all slots are busy")
    assert len(found("speed", seen(measured=measured(None, refusal="x")))) == 2


# Not measured.


def counted(tokens: float, seconds: float, **more: object) -> Evidence:
    work = Counted(prompt_tokens=tokens, prompt_seconds=seconds)
    return seen(counted=work, **more)


@pytest.mark.parametrize(
    ("tokens", "seconds", "flags", "how"),
    [
        (4096, 40.96, "-np 2", NOTE),
        (4096, 40.96, "-np 2 -b 64", OK),
        (4096, 40.96, None, NOTE),
        (4096, 1.0, None, OK),
        (2047, 40.0, None, None),
        (4096, 0.0, None, None),
    ],
)
def test_a_stall_is_expected_by_what_the_server_counted(
    tokens: float, seconds: float, flags: str | None, how: Severity | None
) -> None:
    assert severity("stall-expected", counted(tokens, seconds, stated=stated(flags))) is how


def test_an_expected_stall_is_told_in_figures() -> None:
    finding = only("stall-expected", counted(4096, 40.96, stated=stated("-np 2 -b 512")))
    assert finding.found == "A long prompt may hold up every stream for up to 5.1 s."
    assert finding.known_by == (
        "GET /metrics: prompts were read at 100 tokens/s; -b 512, of the flags you gave"
    )
    assert finding.mend[0].startswith("-b 32: ")
    default = only("stall-expected", counted(4096, 40.96))
    assert default.known_by.endswith("-b 2048, of llama-server's default")


def test_no_prompt_is_longer_than_its_slot() -> None:
    small = looks((slot(0, n_ctx=512), slot(1, n_ctx=512)))
    assert "up to 5.1 s" in only("stall-expected", counted(4096, 40.96, looks=small)).found


def test_nothing_is_expected_where_it_was_measured_or_one_slot_works_alone() -> None:
    assert severity("stall-expected", counted(4096, 40.96, measured=measured(2.0))) is None
    refused = Measured(refusal="nothing was asked")
    assert severity("stall-expected", counted(4096, 40.96, measured=refused)) is NOTE
    assert severity("stall-expected", counted(4096, 40.96, looks=looks((slot(),)))) is None
    assert severity("stall-expected", seen()) is None
