"""How what is told follows what came true."""

from __future__ import annotations

import random
from statistics import fmean

import pytest

from slotgate.core.calibration import WaitCalibration


def test_until_enough_waits_were_seen_a_prediction_is_told_as_it_is() -> None:
    calibration = WaitCalibration()
    for _ in range(19):
        calibration.observe(1.0, 3.0, 0.0)
    assert calibration.factor(0.75) == 1
    assert calibration.told(5.0, 2.0) == 5
    calibration.observe(1.0, 3.0, 0.0)
    assert calibration.factor(0.75) == 3
    assert calibration.told(5.0, 1.0) == (5 + 1) * 3 - 1


def test_three_of_four_waits_are_within_what_is_told() -> None:
    calibration = WaitCalibration()
    dice = random.Random(1)
    within = []
    for _ in range(3000):
        predicted = dice.uniform(1, 20)
        actual = predicted * dice.lognormvariate(0.3, 0.5)
        within.append(actual <= calibration.told(predicted, 0.2))
        calibration.observe(predicted, actual, 0.2)
    assert fmean(within[200:]) == pytest.approx(0.75, abs=0.03)
    # Negative control: as predicted, it would be fewer.
    assert fmean(within[:20]) < 0.6


def test_only_the_last_two_hundred_waits_count() -> None:
    calibration = WaitCalibration()
    for actual in (3.0, 2.0):
        for _ in range(200):
            calibration.observe(1.0, actual, 0.0)
    assert calibration.factor(0.75) == 2


@pytest.mark.parametrize(("actual", "factor"), [(0.0, 0.25), (100.0, 4.0)])
def test_a_factor_has_bounds(actual: float, factor: float) -> None:
    calibration = WaitCalibration()
    for _ in range(50):
        calibration.observe(1.0, actual, 0.0)
    assert calibration.factor(0.75) == factor
    assert calibration.told(0.0, 5.0) == max(0.0, 5 * factor - 5)
