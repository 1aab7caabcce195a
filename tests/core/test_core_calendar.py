"""When refused clients are told to come back."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from slotgate.core.calendar import DrainRate, ReturnCalendar, soon
from slotgate.core.decision import Refused
from slotgate.core.limits import Limits
from slotgate.testing import FakeDice, Script, ready


def test_each_refused_client_gets_a_date_of_its_own() -> None:
    calendar = ReturnCalendar(dice=FakeDice(0), cap_seconds=50)
    delays = [calendar.book(100, base=2, rate=2) for _ in range(20)]
    assert delays[0] == 2
    # 70 % of two completions a second are given to those who return.
    assert [after - before for before, after in pairwise(delays)] == pytest.approx([1 / 1.4] * 19)


def test_dates_pass_with_time() -> None:
    calendar = ReturnCalendar(dice=FakeDice(0), cap_seconds=50)
    for _ in range(15):
        calendar.book(0, base=1, rate=1)
    assert calendar.book(10, base=1, rate=1) == pytest.approx(1 + 15 / 0.7 - 10)
    assert calendar.book(1000, base=3, rate=1) == 3


def test_a_clock_may_start_below_zero() -> None:
    assert ReturnCalendar(dice=FakeDice(0), cap_seconds=50).book(-1000, base=2, rate=1) == 2


def test_delays_are_jittered_upwards_by_a_tenth() -> None:
    delays = [
        ReturnCalendar(dice=FakeDice(number), cap_seconds=50).book(0, base=10, rate=1)
        for number in (0, 0.5, 1)
    ]
    assert delays == pytest.approx([10, 10.5, 11])


def test_no_delay_is_above_the_cap_and_those_beyond_are_spread() -> None:
    dice = random.Random(3)
    calendar = ReturnCalendar(dice=dice, cap_seconds=50)
    delays = [calendar.book(0, base=1, rate=0.5) for _ in range(500)]
    assert all(0 < delay <= 50 for delay in delays)
    late = delays[30:]
    assert min(late) < 37
    assert max(late) > 48
    assert len(set(late)) == len(late)


def test_the_calendar_does_not_run_away() -> None:
    calendar = ReturnCalendar(dice=FakeDice(0), cap_seconds=50)
    for _ in range(10_000):
        calendar.book(0, base=1, rate=0.1)
    # Two caps later everything booked is over, but for one completion's worth.
    assert calendar.book(100, base=1, rate=0.1) == pytest.approx(1 / 0.07)


def test_reasons_that_may_pass_any_moment_take_1_to_3_seconds() -> None:
    assert [soon(FakeDice(number)) for number in (0, 0.5, 1)] == [1, 2, 3]


def test_dates_given_at_a_guessed_rate_come_nearer_when_the_rate_is_known() -> None:
    calendar = ReturnCalendar(dice=FakeDice(0), cap_seconds=50)
    for _ in range(15):
        calendar.book(0, base=1, rate=0.5)
    assert calendar.book(1, base=1, rate=0.5) > 40
    assert calendar.book(1, base=1, rate=50) < 2


# The drain rate.


def rate_after(*completions: float, now: float | None = None) -> float:
    rate = DrainRate(slowest_service_seconds=60)
    rate.observe(0, is_backlogged=True)
    for time in completions:
        rate.completed(time, held_seconds=1)
        rate.observe(time, is_backlogged=True)
    return rate.per_second(completions[-1] if now is None else now, slots=1)


def test_the_drain_rate_is_completions_by_time() -> None:
    assert rate_after(2, 4, 6, 8) == pytest.approx(0.5)
    assert rate_after(1, 1, 1, 4) == pytest.approx(1, rel=0.1)


def test_the_drain_rate_follows_changes() -> None:
    slow = [2.0 * n for n in range(1, 101)]
    fast = [200 + 0.1 * n for n in range(1, 201)]
    assert rate_after(*slow, *fast) == pytest.approx(10, rel=0.1)


def test_a_pool_that_got_stuck_is_seen_to_be_slow() -> None:
    assert rate_after(1, 2, 3, now=3) == pytest.approx(1)
    assert rate_after(1, 2, 3, now=27) == pytest.approx(1 / 9, rel=0.1)


def test_before_anything_has_ended_a_request_is_believed_to_take_ten_seconds() -> None:
    rate = DrainRate(slowest_service_seconds=60)
    assert rate.per_second(0, slots=6) == pytest.approx(0.6)
    assert rate.per_second(0, slots=0) == pytest.approx(0.1)


def test_before_a_backlog_has_shrunk_what_requests_took_so_far_must_do() -> None:
    rate = DrainRate(slowest_service_seconds=60)
    rate.completed(5, held_seconds=2)
    assert rate.per_second(5, slots=4) == pytest.approx(2)
    rate.completed(6, held_seconds=34)
    assert rate.per_second(6, slots=1) == pytest.approx(1 / 3)


def test_before_a_backlog_has_shrunk_its_standing_still_counts_too() -> None:
    rate = DrainRate(slowest_service_seconds=60)
    rate.observe(0, is_backlogged=True)
    assert rate.per_second(1, slots=2) == pytest.approx(0.2)
    assert rate.per_second(20, slots=2) == pytest.approx(0.05)
    assert rate.per_second(900, slots=2) == pytest.approx(1 / 30)


def test_stuck_slots_have_a_floor() -> None:
    rate = DrainRate(slowest_service_seconds=60)
    rate.observe(0, is_backlogged=True)
    rate.completed(1, held_seconds=1)
    assert rate.per_second(1, slots=120) == pytest.approx(2)
    assert rate.per_second(10_000, slots=6) == pytest.approx(0.1)


def test_completions_at_once_do_not_make_an_infinite_rate() -> None:
    assert rate_after(0, 0, 0) == pytest.approx(1000)


def test_time_without_a_backlog_does_not_count() -> None:
    rate = DrainRate(slowest_service_seconds=60)
    rate.completed(1, held_seconds=1)
    rate.observe(10, is_backlogged=True)
    rate.completed(11, held_seconds=1)
    rate.observe(11, is_backlogged=False)
    rate.completed(500, held_seconds=1)
    rate.observe(1000, is_backlogged=True)
    rate.completed(1001, held_seconds=1)
    assert rate.per_second(1001, slots=1) == pytest.approx(1)


# As the scheduler uses them.


def retry_after(script: Script) -> float:
    refusal = script.decisions[-1]
    assert isinstance(refusal, Refused)
    assert refusal.retry_after is not None
    return refusal.retry_after


def backlogged(limits: Limits, *, waiting: int) -> Script:
    """One slot that took one second for each of ten requests, and so many who wait."""
    script = Script(ready("left"), limits=limits, dice=FakeDice(0))
    script.run("0 submit a0 -> granted a0 on left")
    for n in range(1, 11):
        script.run(f"{n - 1} submit a{n}")
        script.run(f"{n} leave a{n - 1} -> granted a{n} on left")
    for n in range(waiting):
        script.run(f"10 submit b{n}")
    return script


def test_a_short_queue_sends_a_newcomer_away_for_a_second() -> None:
    script = backlogged(Limits(max_waiting=3), waiting=3)
    script.run("10 submit c -> refused c queue_full")
    assert retry_after(script) == pytest.approx(1)
    script.run("10 submit d -> refused d queue_full")
    assert retry_after(script) == pytest.approx(1 + 1 / 0.7)


def test_a_long_queue_sends_a_newcomer_away_until_it_is_within_half_its_budget() -> None:
    script = backlogged(Limits(max_waiting=40), waiting=40)
    script.run("10 submit c class=interactive -> refused c queue_full")
    assert retry_after(script) == pytest.approx(41 - 10 / 2)


def test_a_large_budget_is_worth_an_early_return() -> None:
    script = backlogged(Limits(max_waiting=40), waiting=40)
    script.run("10 submit c class=standard -> refused c queue_full")
    assert retry_after(script) == pytest.approx(41 - 30 / 2)


def test_who_waited_in_vain_gets_a_date_too() -> None:
    script = backlogged(Limits(), waiting=1)
    script.run("40 tick -> refused b0 queue_timeout")
    assert 1 <= retry_after(script) <= 50


def test_all_delays_of_a_burst_are_positive_capped_and_different() -> None:
    script = Script(ready("left"), limits=Limits(max_waiting=10), dice=random.Random(1))
    for n in range(11):
        script.run(f"0 submit a{n}" + (" -> granted a0 on left" if n == 0 else ""))
    delays = []
    for n in range(300):
        script.run(f"1 submit b{n} -> refused b{n} queue_full")
        delays.append(retry_after(script))
    assert all(1 <= delay <= 50 for delay in delays)
    assert len(set(delays)) == 300
    assert len({int(delay) for delay in delays}) >= 12
