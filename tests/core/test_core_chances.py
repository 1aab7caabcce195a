"""How likely a newcomer is to start in time."""

from __future__ import annotations

import copy
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotgate.core.chances import Chances, chance_of_next


def taught(
    *,
    granted: float | None = None,
    given_up: float | None = None,
    tenant: str = "a",
    times: int = 200,
    at: float = 0.0,
) -> Chances:
    chances = Chances()
    for ratio, is_granted in ((granted, True), (given_up, False)):
        for _ in range(times if ratio is not None else 0):
            chances.observe(tenant, ratio or 0.0, at, is_granted=is_granted)
    return chances


def test_until_it_is_known_two_of_three_are_no_longer_than_foretold() -> None:
    chances = Chances()
    assert chances.of("a", 1.0, 0.0) == pytest.approx(2 / 3, abs=0.02)
    assert chances.of("a", 2.0, 0.0) == pytest.approx(8 / 9, abs=0.02)
    assert chances.of("a", 0.25, 0.0) < 0.3


def test_there_are_the_chances_that_there_were() -> None:
    chances, dice = Chances(), random.Random(1)
    ratios = [dice.lognormvariate(0.0, 0.5) for _ in range(2000)]
    for ratio in ratios:
        chances.observe("a", ratio, 0.0, is_granted=True)
    for limit in (0.5, 1.0, 1.5, 2.0):
        seen = sum(ratio <= limit for ratio in ratios) / len(ratios)
        assert chances.of("a", limit, 0.0) == pytest.approx(seen, abs=0.06)


def test_they_are_found_though_whoever_waits_too_long_is_never_granted() -> None:
    chances, dice = Chances(), random.Random(1)
    for _ in range(4000):
        wait, left = dice.lognormvariate(0.0, 0.5), dice.uniform(0.4, 2.0)
        chances.observe("a", min(wait, left), 0.0, is_granted=wait <= left)
    assert chances.of("a", 1.0, 0.0) == pytest.approx(0.5, abs=0.05)
    assert chances.of("a", 1.65, 0.0) == pytest.approx(0.84, abs=0.05)


def test_who_was_given_up_at_a_time_says_nothing_of_what_comes_later() -> None:
    chances = taught(given_up=1.0)
    assert chances.of("a", 1.0, 0.0) < 0.1
    assert chances.of("a", 4.0, 0.0) > 0.8


def test_each_tenant_s_waits_speak_for_it() -> None:
    chances = taught(granted=1.0, tenant="light")
    for _ in range(200):
        chances.observe("hog", 2.0, 0.0, is_granted=True)
    assert chances.of("light", 1.2, 0.0) > 0.9
    assert chances.of("hog", 1.2, 0.0) < 0.1
    assert 0.4 < chances.of("nobody", 1.2, 0.0) < 0.6


def test_few_waits_do_not_outweigh_those_of_all() -> None:
    chances = taught(granted=1.0, tenant="others")
    chances.observe("a", 3.0, 0.0, is_granted=True)
    assert chances.of("a", 1.2, 0.0) > 0.8


def test_what_happened_fades() -> None:
    chances = taught(given_up=1.0)
    hour, day = 3600.0, 86_400.0
    assert chances.of("a", 1.0, day) == pytest.approx(Chances().of("a", 1.0, 0.0), abs=0.01)
    for _ in range(20):
        chances.observe("a", 0.5, hour, is_granted=True)
    assert chances.of("a", 1.0, hour) > 0.8
    for _ in range(20):
        chances.observe("a", 2.0, 100 * day, is_granted=True)
    assert chances.of("a", 1.0, 100 * day) < 0.4


def test_tenants_that_have_not_waited_for_long_are_forgotten() -> None:
    chances = taught(granted=2.0, tenant="first", times=20)
    for n in range(1000):
        for _ in range(3):
            chances.observe(f"t{n}", 0.5, 0.0, is_granted=True)
    assert chances.of("first", 1.0, 0.0) == chances.of("nobody", 1.0, 0.0)


def test_for_the_first_slot_two_of_three_wait_no_longer_than_foretold() -> None:
    assert chance_of_next(5.0, 5.0) == pytest.approx(2 / 3)
    assert chance_of_next(5.0, 1.0) == pytest.approx(1 - 3**-0.2)
    assert chance_of_next(0.0, 0.0) == chance_of_next(5.0, float("inf")) == 1
    assert chance_of_next(5.0, 0.0) == chance_of_next(5.0, -1.0) == 0


def test_what_is_kept_of_all_is_off_by_little() -> None:
    """Through thousands of waits, at whatever times; `fresh` has nothing made of what it saw."""
    dice, chances, fresh, now = random.Random(1), Chances(), Chances(), 0.0
    for number in range(3000):
        now += dice.choice((0.0, 0.01, 2.0))
        wait = dice.lognormvariate(0.3 if number % 600 < 300 else -0.3, 0.5)
        tenant, is_granted = f"tenant{dice.randrange(50)}", dice.random() < 0.9
        for each in (chances, fresh):
            each.observe(tenant, wait, now, is_granted=is_granted)
        for whose in (tenant, "nobody"):
            found = chances.of(whose, 1.0, now)
            if not number % 50:
                exact = copy.deepcopy(fresh).of(whose, 1.0, now)
                assert found == pytest.approx(exact, abs=0.02)


ratios = st.floats(0.0, 1e9) | st.just(float("inf"))
waits = st.lists(st.tuples(ratios, st.booleans(), st.floats(0, 1e6)), max_size=30)


@settings(max_examples=100, deadline=None)
@given(seen=waits, one=ratios, other=ratios)
def test_it_is_a_chance_and_more_time_is_never_worse(
    seen: list[tuple[float, bool, float]], one: float, other: float
) -> None:
    chances, now = Chances(), 0.0
    for ratio, is_granted, later in seen:
        now += later
        chances.observe("a", ratio, now, is_granted=is_granted)
    less, more = (chances.of("a", ratio, now) for ratio in sorted((one, other)))
    assert -1e-9 <= less <= more + 1e-9 <= 1 + 1e-6
