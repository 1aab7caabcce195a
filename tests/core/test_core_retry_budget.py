"""How many failed requests may be sent again."""

from __future__ import annotations

from slotgate.core.retry_budget import PER_SECOND, RESERVE_SECONDS, SHARE, RetryBudget

RESERVE = int(PER_SECOND * RESERVE_SECONDS)


def taken(budget: RetryBudget, now: float, *, tries: int = 1000) -> int:
    return sum(budget.take(now) for _ in range(tries))


def test_a_server_with_many_slots_may_die_at_once() -> None:
    assert taken(RetryBudget(), 100.0) == RESERVE


def test_each_second_brings_some_and_no_more_than_it_holds_is_kept() -> None:
    budget = RetryBudget()
    taken(budget, 100.0)
    assert taken(budget, 101.0) == int(PER_SECOND)
    assert taken(budget, 105.0) == int(4 * PER_SECOND)
    assert taken(budget, 1000.0) == RESERVE


def test_each_request_brings_its_part() -> None:
    budget = RetryBudget()
    taken(budget, 100.0)
    for _ in range(101):
        budget.requested()
    assert taken(budget, 100.0) == int(101 * SHARE)


def test_requests_fill_it_no_further_than_it_holds() -> None:
    budget = RetryBudget()
    for _ in range(10_000):
        budget.requested()
    assert taken(budget, 100.0) == RESERVE


def test_however_much_fails_retries_stay_a_tenth_of_the_load() -> None:
    budget = RetryBudget()
    requests = retries = 0
    for second in range(100):
        for _ in range(200):
            requests += 1
            budget.requested()
            retries += budget.take(float(second))
    assert retries <= SHARE * requests + PER_SECOND * 100 + RESERVE
    assert retries >= SHARE * requests
