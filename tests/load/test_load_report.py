"""The numbers of a report are what they are called."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotgate.load.numbers import estimate, quantile
from slotgate.load.record import Outcome, Record
from slotgate.load.report import Report, make_report
from slotgate.load.run import Costs, Run, Service, Targets
from slotgate.load.timeline import KINDS
from tests.load.records import record

PARTITION = ("served", "refused", "expired", "abandoned", "failed")


def report(*records: Record, targets: Targets | None = None, **run: Any) -> Report:
    made = Run(records=records, seconds=run.pop("seconds", 10.0), **run)
    return make_report([made], title="a test", targets=targets or Targets(ttft=1.0))


def mean(found: Report, key: str) -> float:
    value = found.whole.mean(key)
    assert value is not None, key
    return value


@given(st.lists(st.sampled_from(Outcome), min_size=1, max_size=40))
def test_the_shares_of_all_outcomes_sum_to_one(outcomes: list[Outcome]) -> None:
    found = report(*(record(i % 10, outcome=outcome) for i, outcome in enumerate(outcomes)))
    assert sum(mean(found, key) for key in PARTITION) == pytest.approx(1.0)


@given(st.lists(st.tuples(st.sampled_from(Outcome), st.floats(0, 9.99)), min_size=1, max_size=40))
def test_the_timeline_has_every_request_once(drawn: list[tuple[Outcome, float]]) -> None:
    found = report(*(record(at, outcome=outcome) for outcome, at in drawn)).timeline
    assert set(found.rates) == set(KINDS)
    counted = sum(sum(rates) for rates in found.rates.values()) * found.bin_seconds
    assert counted == pytest.approx(len(drawn))


def test_goodput_counts_who_met_both_targets() -> None:
    found = report(
        record(ttft=1.0, tpot=0.05),
        record(ttft=1.01, tpot=0.05),
        record(ttft=0.5, tpot=0.051),
        record(outcome=Outcome.ABANDONED, ttft=0.5),
        targets=Targets(ttft=1.0, tpot=0.05),
    )
    assert mean(found, "attainment") == 0.25
    assert mean(found, "goodput_requests") == pytest.approx(0.1)
    assert mean(found, "goodput_tokens") == pytest.approx(1.0)


def test_tokens_of_a_late_or_left_request_are_wasted_and_those_done_twice() -> None:
    late = record(ttft=2.0)
    left = record(outcome=Outcome.ABANDONED, input_done=100, output_done=5)
    assert mean(report(record(), late, left), "wasted") == pytest.approx(215 / 325)
    twice = record(attempts=2, input_done=200, output_done=10)
    assert mean(report(twice), "wasted") == pytest.approx(100 / 210)
    assert mean(report(record()), "wasted") == 0.0


def test_the_time_to_first_token_counts_from_the_first_attempt() -> None:
    found = report(record(attempts=2, ttft=20.0, last_ttft=0.5))
    assert mean(found, "attainment") == 0.0
    assert mean(found, "eventual") == 1.0


def test_waits_are_calibrated_by_the_share_at_or_under_the_prediction() -> None:
    found = report(
        record(waited=1.0, predicted_wait=1.0),
        record(waited=2.0, predicted_wait=1.0),
        record(waited=2.0, predicted_wait=None),
    )
    assert mean(found, "wait_calibration") == 0.5


def test_a_retry_after_is_honest_if_who_comes_back_then_is_let_in() -> None:
    let_in = record(attempts=2, retry_after=3.0, reason="queue_full")
    told_no = record(outcome=Outcome.REFUSED, attempts=3, retry_after=3.0, reason="queue_full")
    unnamed = record(outcome=Outcome.REFUSED, reason="queue_full")
    found = report(let_in, told_no, unnamed)
    assert mean(found, "retry_after_honesty") == pytest.approx(1 / 3)
    assert mean(found, "retry_after") == pytest.approx(2 / 3)
    assert mean(found, "retry_amplification") == 2.0


def test_slots_are_used_for_their_part_of_the_time() -> None:
    assert mean(report(record(), slots=4, busy_slot_seconds=30.0), "slot_utilisation") == 0.75
    assert report(record()).whole.mean("slot_utilisation") is None


def test_light_tenants_are_looked_at_apart() -> None:
    light = [record(tenant="light"), record(tenant="light", ttft=3.0)]
    hog = [record(tenant="hog", ttft=9.0) for _ in range(8)]
    found = report(*light, *hog, heavy=frozenset({"hog"}), ttft_alone={"light": 0.1})
    assert mean(found, "light_attainment") == 0.5
    assert mean(found, "light_inflation") == pytest.approx(28.55)


def test_without_being_told_who_asks_for_more_than_his_share_is_heavy() -> None:
    light = [record(tenant="light")]
    hog = [record(tenant="hog", ttft=0.5), *(record(tenant="hog", outcome=Outcome.REFUSED),) * 8]
    assert mean(report(*light, *hog), "light_attainment") == 1.0


def test_a_burst_is_over_when_nobody_has_waited_a_second_for_ten_seconds() -> None:
    calm = [record(at, waited=0.2) for at in range(30, 60)]
    slow = [record(at, waited=5.0) for at in (20, 24, 27)]
    refused = [record(29.0, outcome=Outcome.REFUSED)]
    later = [record(55.5, waited=9.0)]
    found = report(*calm, *slow, *refused, *later, seconds=60.0, burst_ended_at=20.0)
    assert mean(found, "recovery") == 9.0
    assert mean(report(*calm, seconds=60.0, burst_ended_at=20.0), "recovery") == 0.0


def test_the_widest_lead_is_looked_for_while_both_have_somebody_waiting() -> None:
    both_wait = [record(0.0, tenant=tenant, waited=10.0) for tenant in ("a", "b")]
    services = (
        Service(1.0, "a", 5.0),
        Service(2.0, "b", 3.0),
        Service(3.0, "b", 6.0),
        Service(4.0, "a", 2.0),
        Service(11.0, "a", 100.0),  # b has nobody waiting any more
    )
    found = report(*both_wait, services=services)
    assert mean(found, "service_difference") == 9.0
    alone = report(record(tenant="a", waited=5.0), record(tenant="b"), services=services)
    assert alone.whole.mean("service_difference") is None


def test_weights_divide_the_service_that_is_compared() -> None:
    both_wait = [record(0.0, tenant=tenant, waited=10.0) for tenant in ("a", "b")]
    services = (Service(1.0, "a", 8.0), Service(2.0, "b", 4.0))
    found = report(*both_wait, services=services, weights={"a": 2.0})
    assert mean(found, "service_difference") == 4.0


def test_tenants_and_classes_have_numbers_of_their_own() -> None:
    found = report(record(tenant="a"), record(tenant="b", outcome=Outcome.FAILED))
    assert [(group.name, group.mean("served")) for group in found.tenants] == [
        ("a", 1.0),
        ("b", 0.0),
    ]
    assert [group.name for group in found.classes] == ["standard"]


def test_several_runs_give_a_mean_with_its_confidence() -> None:
    runs = [
        Run(records=tuple(record(ttft=ttft) for ttft in ttfts), seconds=10.0, seed=seed)
        for seed, ttfts in enumerate([(0.1, 0.1), (0.1, 9.0), (9.0, 9.0)])
    ]
    found = make_report(runs, title="three", targets=Targets(ttft=1.0)).whole.values["attainment"]
    assert found.mean == 0.5
    # Student's t of two degrees of freedom, times the deviation over the root of three.
    assert found.margin == pytest.approx(4.303 * 0.5 / 3**0.5)
    assert found.runs == 3


def test_one_run_has_no_margin_and_nothing_has_no_estimate() -> None:
    one = estimate([2.0, None])
    assert one is not None
    assert (one.mean, one.margin) == (2.0, None)
    assert estimate([None]) is None
    with pytest.raises(ValueError, match="needs a run"):
        make_report([], title="none")


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 1))
def test_a_quantile_lies_among_its_values(values: list[float], share: float) -> None:
    found = quantile(sorted(values), share)
    assert found is not None
    assert min(values) <= found <= max(values) * (1 + 1e-12)


def test_costs_weigh_what_is_written_more_than_what_is_read() -> None:
    assert Costs(input=1.0, output=25.0).of(100, 10) == 350.0
