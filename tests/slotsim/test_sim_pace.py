"""How long a pass takes."""

from __future__ import annotations

from math import inf

import pytest

from slotgate.slotsim import Pace


def test_a_constant_pace_does_not_depend_on_others() -> None:
    pace = Pace.constant(50, slots=3, prefill=1000)
    assert pace.steps == (0.0, 0.02, 0.02, 0.02)
    assert pace.seconds(2, 500) == pytest.approx(0.52)


def test_a_linear_pace_grows_with_each_slot() -> None:
    pace = Pace.linear(0.01, 0.002, slots=3)
    assert pace.steps == pytest.approx((0.01, 0.012, 0.014, 0.016))
    assert pace.prefill == inf


def test_a_curve_is_linear_between_its_points_and_flat_outside() -> None:
    pace = Pace.curve({2: 40, 4: 20}, slots=6)
    rates = [1 / step for step in pace.steps[1:]]
    assert rates == pytest.approx([40, 40, 30, 20, 20, 20])
    assert pace.steps[0] == 0.0


def test_at_once_is_no_time_at_all() -> None:
    assert Pace.instant(2).seconds(2, 10_000) == 0.0
