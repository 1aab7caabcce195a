"""Which build of llama.cpp has what."""

from __future__ import annotations

from itertools import pairwise

import pytest

from slotgate.capacity.builds import (
    CHANGES,
    COMPARED_BUILDS,
    Change,
    change_of,
    features_in_doubt,
    features_missing,
    is_newer,
)


def _missing(build: int) -> set[str]:
    return {change.feature for change in features_missing(build)}


def _in_doubt(build: int) -> set[str]:
    return {change.feature for change in features_in_doubt(build)}


def test_the_rows_stand_in_the_order_of_their_dates_and_builds() -> None:
    assert all(one.date <= other.date for one, other in pairwise(CHANGES))
    builds = [change.build for change in CHANGES if change.build is not None]
    assert builds == sorted(builds)
    assert len({change.feature for change in CHANGES}) == len(CHANGES)


def test_the_builds_that_were_compared_have_everything() -> None:
    for build in COMPARED_BUILDS:
        assert not _missing(build) | _in_doubt(build)


@pytest.mark.parametrize("change", [one for one in CHANGES if one.build], ids=lambda c: c.feature)
def test_a_feature_is_missing_up_to_its_build_and_never_in_doubt(change: Change) -> None:
    assert change.build is not None
    assert change.feature in _missing(change.build - 1)
    assert change.feature not in _missing(change.build) | _in_doubt(change.build - 1)


def test_a_feature_of_an_unknown_build_is_in_doubt_between_builds_that_are_known() -> None:
    assert "prompt-cache" in _missing(6502)
    assert "prompt-cache" in _in_doubt(6503)
    assert "prompt-cache" in _in_doubt(7473)
    assert "prompt-cache" not in _in_doubt(7474) | _missing(7474)
    assert "fit" in _missing(7347)
    assert "fit-print" in _in_doubt(9179)
    assert "fit-print" not in _in_doubt(9180)


def test_the_oldest_builds_lack_everything() -> None:
    assert _missing(3972) == {change.feature for change in CHANGES}
    assert not _in_doubt(3972)
    assert _in_doubt(3973) == {"window-caches"}


def test_a_change_says_when_it_came_as_exactly_as_is_known() -> None:
    assert change_of("slot-limit").since == "in build 10662"
    assert change_of("prompt-cache").since == "about 2025-10"


def test_a_build_that_nobody_compared_is_newer() -> None:
    assert [is_newer(build) for build in (11434, 11549, 11550)] == [False, False, True]
