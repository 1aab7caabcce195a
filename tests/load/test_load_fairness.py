"""Max-min fair shares and Jain's index."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotgate.load.fairness import Ledger, fair_shares, jain
from slotgate.load.run import Costs, Run
from tests.load.records import record

demands = st.dictionaries(st.sampled_from("abcdef"), st.floats(0.1, 1000), min_size=1)


def test_what_one_leaves_is_shared_by_the_others() -> None:
    shares = fair_shares({"a": 1.0, "b": 10.0, "c": 10.0}, 9.0, {})
    assert shares == pytest.approx({"a": 1.0, "b": 4.0, "c": 4.0})


def test_a_weight_of_two_is_two_parts() -> None:
    shares = fair_shares({"a": 100.0, "b": 100.0}, 9.0, {"a": 2.0})
    assert shares == pytest.approx({"a": 6.0, "b": 3.0})


@given(demands, st.floats(0.1, 5000))
def test_nobody_gets_more_than_he_asks_and_nothing_is_left_that_is_asked(
    asked: dict[str, float], capacity: float
) -> None:
    shares = fair_shares(asked, capacity, {})
    assert all(shares[name] <= asked[name] * (1 + 1e-9) for name in asked)
    assert sum(shares.values()) == pytest.approx(min(capacity, sum(asked.values())))


@given(demands, st.floats(0.1, 5000))
def test_who_gets_less_than_he_asks_has_no_less_than_anybody(
    asked: dict[str, float], capacity: float
) -> None:
    shares = fair_shares(asked, capacity, {})
    for name, share in shares.items():
        if share < asked[name] * (1 - 1e-9):
            assert share >= max(shares.values()) * (1 - 1e-9)


def test_jain_is_one_for_all_alike_and_a_part_for_one_alone() -> None:
    assert jain([3.0, 3.0, 3.0]) == pytest.approx(1.0)
    assert jain([1.0, 0.0, 0.0, 0.0]) == 0.25
    assert jain([0.0]) is None


def test_holding_back_a_hog_is_fair_and_serving_it_alone_is_not() -> None:
    """Plain shares of what each asks for would say the opposite."""
    light = [record(tenant="light") for _ in range(2)]
    hog = [record(tenant="hog") for _ in range(2)]
    more = [record(tenant="hog", input_done=0, output_done=0) for _ in range(16)]
    fair = Ledger(Run(records=(*light, *hog, *more), seconds=1.0), Costs()).jain()
    assert fair == pytest.approx(1.0)
    starved = [record(tenant="light", input_done=0, output_done=0) for _ in range(2)]
    unfair = Ledger(Run(records=(*starved, *hog, *hog, *more), seconds=1.0), Costs()).jain()
    assert unfair is not None
    assert unfair < 0.6
