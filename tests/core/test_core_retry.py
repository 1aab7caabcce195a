"""Every rule for when to come back: one contract; and what is particular to each."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotgate.core.calendar import (
    AdaptiveRetry,
    ConstantRetry,
    RetryPolicy,
    ReturnCalendar,
    TenantCalendars,
)
from slotgate.core.decision import Refused
from slotgate.core.limits import Limits, TenantCaps
from slotgate.core.policies import RETRY_AFTER, Policies
from slotgate.testing import FakeDice, Script, ready

NAMES = sorted(RETRY_AFTER)

refusals = st.tuples(
    st.floats(0, 200),  # seconds since the one before
    st.sampled_from(["a", "b", "c"]),
    st.floats(0.01, 1000),  # weight
    st.floats(0.001, 10_000),  # base
    st.floats(0.01, 1000),  # rate
)


def book(
    policy: RetryPolicy,
    tenant: str = "a",
    *,
    now: float = 0.0,
    weight: float = 1.0,
    base: float = 1.0,
    rate: float = 1.0,
) -> float:
    return policy.book(now, tenant=tenant, weight=weight, base=base, rate=rate)


# The contract.


@settings(max_examples=60, deadline=None)
@given(
    script=st.lists(refusals, min_size=1, max_size=30),
    cap=st.floats(0.01, 1000),
    chance=st.sampled_from([0.0, 0.5, 1 - 2**-53]),
)
@pytest.mark.parametrize("name", NAMES)
def test_a_delay_is_above_nothing_and_at_most_the_cap(
    name: str, script: list[tuple[float, str, float, float, float]], cap: float, chance: float
) -> None:
    policy = RETRY_AFTER[name](dice=FakeDice(chance), cap_seconds=cap)
    now = -50.0
    for gap, tenant, weight, base, rate in script:
        now += gap
        delay = book(policy, tenant, now=now, weight=weight, base=base, rate=rate)
        assert 0 < delay <= cap


@pytest.mark.parametrize("cap", [50.0, 0.5])
@pytest.mark.parametrize("name", NAMES)
def test_no_two_of_a_crowd_come_back_together(name: str, cap: float) -> None:
    policy = RETRY_AFTER[name](dice=Random(1), cap_seconds=cap)
    delays = [book(policy, f"t{n % 3}", rate=2.0) for n in range(200)]
    assert len(set(delays)) == len(delays)


@pytest.mark.parametrize("name", NAMES)
def test_a_refusal_long_after_all_others_has_a_short_delay(name: str) -> None:
    policy = RETRY_AFTER[name](dice=Random(1), cap_seconds=50)
    for n in range(3000):
        book(policy, now=n / 30, rate=0.1)
    assert book(policy, now=5000.0) < 6


# A calendar for each tenant.


def test_a_tenant_that_asks_for_too_much_sends_only_itself_into_the_future() -> None:
    calendars = TenantCalendars(dice=FakeDice(0), cap_seconds=50)
    for _ in range(60):
        hog = book(calendars, "hog", rate=2.0)
    assert hog > 30
    assert book(calendars, "light", rate=2.0) == 1
    # At half the pace, as there are two now.
    assert book(calendars, "light", rate=2.0) == pytest.approx(1 + 1 / 0.7)


def test_dates_are_given_at_the_pace_of_a_tenants_weight() -> None:
    calendars = TenantCalendars(dice=FakeDice(0), cap_seconds=50)
    delays: dict[str, list[float]] = {"one": [], "three": []}
    for _ in range(10):
        for tenant, weight in (("one", 1.0), ("three", 3.0)):
            delays[tenant].append(book(calendars, tenant, weight=weight, rate=4.0))
    # Seven dates in ten seconds of those that the weight is worth.
    assert delays["one"][-1] == pytest.approx(1 + 9 / 0.7)
    assert delays["three"][-1] == pytest.approx(1 + 9 / 2.1)


def test_a_tenant_alone_has_the_whole_pace() -> None:
    alone = TenantCalendars(dice=FakeDice(0), cap_seconds=50)
    plain = ReturnCalendar(dice=FakeDice(0), cap_seconds=50)
    for n in range(20):
        now = n / 7
        delay = book(alone, now=now, weight=0.3, base=2.0, rate=3.0)
        assert delay == pytest.approx(plain.book(now, base=2.0, rate=3.0))


def test_who_has_not_been_refused_for_so_long_has_no_share_any_more() -> None:
    calendars = TenantCalendars(dice=FakeDice(0), cap_seconds=50)
    book(calendars, "gone", weight=9.0)
    book(calendars, "here", now=1.0)
    assert book(calendars, "here", now=1.0) == pytest.approx(1 + 10 / 0.7)
    book(calendars, "here", now=50.5)
    assert book(calendars, "here", now=50.5) == pytest.approx(1 + 1 / 0.7)


def test_a_thousand_tenants_are_forgotten_as_they_came() -> None:
    calendars = TenantCalendars(dice=FakeDice(0), cap_seconds=50)
    for n in range(1000):
        book(calendars, f"t{n}", now=float(n), weight=0.1)
        assert len(calendars._books) <= 51
    # Sums of tenths leave no dust, either.
    assert book(calendars, "last", now=5000.0, weight=0.1) == 1
    assert calendars._weights == 0.1
    assert len(calendars._books) == 1


@settings(max_examples=40, deadline=None)
@given(
    script=st.lists(
        st.tuples(st.floats(0, 40), st.sampled_from("abcdef"), st.floats(0.01, 1000)), max_size=40
    )
)
def test_the_weights_are_those_of_the_tenants_that_were_refused_of_late(
    script: list[tuple[float, str, float]],
) -> None:
    calendars = TenantCalendars(dice=FakeDice(0), cap_seconds=50)
    now, last = 0.0, dict[str, tuple[float, float]]()
    for gap, tenant, weight in script:
        now += gap
        book(calendars, tenant, now=now, weight=weight)
        last[tenant] = now, weight
        weights = [weight for at, weight in last.values() if now - at <= 50]
        assert calendars._weights == pytest.approx(sum(weights))


# The others.


def test_the_adaptive_delay_doubles_while_more_than_three_a_second_are_refused() -> None:
    policy = AdaptiveRetry(dice=FakeDice(0), cap_seconds=50)
    delays = [book(policy, now=n / 10) for n in range(2000)]
    assert delays[0] == 1
    assert {1.0, 2.0, 4.0, 8.0, 16.0, 32.0} < set(delays)
    assert delays == sorted(delays)
    assert delays[-1] == pytest.approx(50 / 1.1)


def test_the_adaptive_delay_stays_at_one_to_three_a_second() -> None:
    policy = AdaptiveRetry(dice=FakeDice(0), cap_seconds=50)
    for n in range(100):
        book(policy, now=n / 10)
    delays = [book(policy, now=10.0 + n / 2) for n in range(400)]
    assert min(delays) > 1
    assert len(set(delays[100:])) == 1


def test_the_adaptive_delay_falls_by_a_second_in_each_of_its_delays() -> None:
    policy = AdaptiveRetry(dice=FakeDice(0), cap_seconds=50)
    for n in range(300):
        book(policy, now=n / 10)
    assert book(policy, now=60.0) == 32
    assert book(policy, now=60.0 + 32) == 31
    assert book(policy, now=60.0 + 32 + 2 * 31) == 29
    assert book(policy, now=5000.0) == 1


def test_the_constant_delay_is_the_same_but_for_the_jitter() -> None:
    assert book(ConstantRetry(dice=FakeDice(0), cap_seconds=50), base=40.0, rate=0.1) == 5
    assert book(ConstantRetry(dice=FakeDice(0.5), cap_seconds=50)) == pytest.approx(5.25)
    assert book(ConstantRetry(dice=FakeDice(0), cap_seconds=2.2)) == pytest.approx(2)


# As the scheduler uses them.


def last_delay(script: Script) -> float:
    refusal = script.decisions[-1]
    assert isinstance(refusal, Refused)
    assert refusal.retry_after is not None
    return refusal.retry_after


def practised(limits: Limits) -> Script:
    """One slot, and ten answers of 100 tokens that took a second each."""
    script = Script(ready("left"), limits=limits, dice=FakeDice(0))
    for n in range(10):
        script.run(f"""
            {n}      submit a{n} tenant=past   -> granted a{n} on left
            {n}      charge a{n} input=10 output=1
            {n}.9    charge a{n} output=99
            {n}.95   timed a{n} prompt=10 prompt_seconds=0.05 output=100 output_seconds=0.9
            {n}.99   leave a{n}
        """)
    return script


def test_who_would_wait_in_vain_comes_back_when_its_own_wait_is_within_half_its_budget() -> None:
    script = practised(Limits(retry_cap_seconds=1000))
    script.run("10 submit first tenant=hog within=300 -> granted first on left")
    for n in range(40):
        script.run(f"10 submit h{n} tenant=hog within=300")
    script.run("10 submit late tenant=hog -> refused late wait_too_long")
    refusal = script.decisions[-1]
    assert isinstance(refusal, Refused)
    assert refusal.predicted_wait is not None
    assert refusal.predicted_wait > 30
    assert last_delay(script) == pytest.approx(refusal.predicted_wait - 30 / 2)


def test_a_light_tenant_is_not_sent_away_for_the_hogs_queue() -> None:
    script = practised(Limits())
    script.run("10 submit first tenant=hog within=300 -> granted first on left")
    for n in range(60):
        script.run(f"10 submit h{n} tenant=hog within=300")
    script.run("10 submit x tenant=light within=0.5 -> refused x wait_too_long")
    assert last_delay(script) == 1


def test_each_tenant_has_its_dates_whatever_another_asks_for() -> None:
    limits = Limits(
        max_waiting=0, tenants={"heavy": TenantCaps(weight=2)}, slowest_service_seconds=1.0
    )
    script = Script(ready("left"), limits=limits, dice=FakeDice(0))
    script.run("0 submit a -> granted a on left")
    for n in range(100):
        script.run(f"1 submit h{n} tenant=hog -> refused h{n} queue_full")
    assert last_delay(script) > 30
    script.run("1 submit x tenant=light -> refused x queue_full")
    assert last_delay(script) == 1


@pytest.mark.parametrize("name", NAMES)
def test_the_scheduler_tells_what_the_policy_says_up_to_the_operators_cap(name: str) -> None:
    script = Script(
        ready("left"),
        limits=Limits(max_waiting=0, retry_cap_seconds=4.0),
        dice=Random(2),
        policies=Policies.named(retry_after=name),
    )
    script.run("0 submit a -> granted a on left")
    for n in range(60):
        script.run(f"{1 + n / 50} submit b{n} -> refused b{n} queue_full")
        assert 0 < last_delay(script) <= 4
