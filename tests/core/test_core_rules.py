"""Orders within a tenant, who is let in, and rules by their names: each by its contract."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotgate.core import policies
from slotgate.core.admission import DeadlineAdmission
from slotgate.core.decision import Reason, Refused
from slotgate.core.limits import Limits, TenantCaps
from slotgate.core.order import ShortestFirst
from slotgate.core.policies import ADMISSION, ORDER, Policies
from slotgate.core.ticket import Ticket
from slotgate.core.waiter import Shape, Waiter
from slotgate.testing import Script, ready

numbers = itertools.count(1)


def waiter(
    *,
    since: float = 0.0,
    within: float = 30.0,
    service: float = 0.0,
    chance: float | None = None,
    ahead: float = 1.0,
) -> Waiter:
    number = next(numbers)
    return Waiter(
        ticket=Ticket(id=f"t{number}", arrival=since, deadline=since + within),
        number=number,
        since=since,
        shape=Shape(1, 1000),
        start_by=since + within - 1,
        service=service,
        ahead=ahead,
        chance=chance,
    )


# Orders.

arrivals = st.lists(
    st.tuples(st.floats(0, 50), st.floats(0.1, 300), st.floats(0, 500)), min_size=1, max_size=20
)


@settings(max_examples=40, deadline=None)
@given(script=arrivals)
@pytest.mark.parametrize("name", sorted(ORDER))
def test_a_rank_is_a_number_and_nobody_waits_behind_all_that_will_ever_come(
    name: str, script: list[tuple[float, float, float]]
) -> None:
    order = ORDER[name]()
    now = 0.0
    ranks = []
    for gap, within, service in script:
        now += gap
        ranks.append(order.rank(waiter(since=now, within=within, service=service)))
    assert all(math.isfinite(rank) for rank in ranks)
    # One that comes after all their deadlines, with the same budget or more, is behind.
    late = order.rank(waiter(since=now + 400, within=300, service=0.0))
    assert late > max(ranks)


@settings(max_examples=40, deadline=None)
@given(script=arrivals)
@pytest.mark.parametrize("name", sorted(ORDER))
def test_requests_that_are_alike_go_in_order_of_arrival(
    name: str, script: list[tuple[float, float, float]]
) -> None:
    order = ORDER[name]()
    now = 0.0
    ranks = []
    for gap, _, _ in script:
        now += gap
        ranks.append(order.rank(waiter(since=now, within=30, service=7.0)))
    assert ranks == sorted(ranks)


@pytest.mark.parametrize("name", sorted(ORDER))
def test_one_that_comes_back_has_the_place_that_it_had(name: str) -> None:
    Script(ready("left"), policies=Policies.named(order=name)).run("""
        0  submit a within=20      -> granted a on left
        1  submit b within=50
        2  submit c within=60
        3  requeue a free          -> granted a on left
        4  leave a                 -> granted b on left
    """)


def test_the_earliest_deadline_goes_first() -> None:
    Script(ready("left"), policies=Policies.named(order="edf")).run("""
        0  submit a             -> granted a on left
        0  submit b within=60
        0  submit c within=40
        0  submit d within=50
        1  leave a              -> granted c on left
        1  leave c              -> granted d on left
        1  leave d              -> granted b on left
    """)


def test_a_short_request_stands_ten_seconds_before_the_longest() -> None:
    order = ShortestFirst()
    assert order.rank(waiter(since=0.0)) == 0.0, "nothing is known: as it came"
    assert order.rank(waiter(since=100.0, service=40.0)) == 100.0
    assert order.rank(waiter(since=100.0, service=0.0)) == 90.0
    assert order.rank(waiter(since=100.0, service=20.0)) == pytest.approx(95.0, abs=0.02)


def test_what_was_longest_once_is_forgotten() -> None:
    order = ShortestFirst()
    order.rank(waiter(service=1000.0))
    for _ in range(8000):
        order.rank(waiter(service=1.0))
    assert order.rank(waiter(since=50.0, service=1.0)) == 50.0


# Who is let in.


@settings(max_examples=40, deadline=None)
@given(now=st.floats(-100, 100), one=st.floats(0, 1), other=st.floats(0, 1))
@pytest.mark.parametrize("name", sorted(ADMISSION))
def test_who_is_let_in_with_a_smaller_chance_is_with_a_greater_one(
    name: str, now: float, one: float, other: float
) -> None:
    admission = ADMISSION[name]()
    greater = waiter(since=now, chance=max(one, other))
    smaller = waiter(since=now, chance=min(one, other))
    assert admission.is_in_vain(greater, now) <= admission.is_in_vain(smaller, now)


@pytest.mark.parametrize("name", sorted(ADMISSION))
def test_nobody_is_refused_whose_chance_is_unknown_or_sure(name: str) -> None:
    admission = ADMISSION[name]()
    assert not admission.is_in_vain(waiter(chance=None), 5.0)
    assert not admission.is_in_vain(waiter(chance=1.0), 5.0)


def test_a_chance_of_two_in_three_is_enough() -> None:
    admission = DeadlineAdmission()
    assert not admission.is_in_vain(waiter(chance=0.67), 5.0)
    assert admission.is_in_vain(waiter(chance=0.66), 5.0)


def test_who_is_next_needs_less_of_a_chance() -> None:
    admission = DeadlineAdmission()
    assert not admission.is_in_vain(waiter(chance=0.21, ahead=0.5), 5.0)
    assert admission.is_in_vain(waiter(chance=0.19, ahead=0.5), 5.0)


def practised(admission: str, limits: Limits | None = None) -> Script:
    """One slot, and ten answers of 100 tokens that took a second each."""
    policies = Policies.named(admission=admission)
    script = Script(ready("left"), policies=policies, limits=limits)
    for n in range(10):
        script.run(f"""
            {n}      submit a{n}   -> granted a{n} on left
            {n}      charge a{n} input=10 output=1
            {n}.9    charge a{n} output=99
            {n}.95   timed a{n} prompt=10 prompt_seconds=0.05 output=100 output_seconds=0.9
            {n}.99   leave a{n}
        """)
    return script.run("10 submit b -> granted b on left")


def test_who_would_wait_in_vain_is_told_at_once() -> None:
    script = practised("deadline").run("""
        10  submit c within=0.1   -> refused c wait_too_long by x-slotgate-deadline-ms
        10  submit d
    """)
    refusal = script.decisions[-1]
    assert isinstance(refusal, Refused)
    assert refusal.reason is Reason.WAIT_TOO_LONG
    assert refusal.waited == 0
    assert refusal.limit is not None
    assert 0 < refusal.limit <= 0.1
    assert refusal.value == refusal.predicted_wait
    assert refusal.predicted_wait is not None
    assert refusal.predicted_wait > refusal.limit
    assert refusal.retry_after is not None
    assert script.scheduler.snapshot().waiting[0].ticket.id == "d"
    # The slot goes to whom it fits, however short its budget.
    script.run("11 leave b -> granted d on left")
    script.run("12 leave d")
    script.run("12 submit e within=0.001 -> granted e on left")


def test_or_at_the_deadline_where_that_is_chosen() -> None:
    practised("expiry").run("""
        10    submit c within=0.1
        10.1  tick                 -> refused c queue_timeout by x-slotgate-deadline-ms
    """)


def test_nothing_is_foretold_while_nothing_serves() -> None:
    script = practised("deadline").run("""
        11  leave b
        11  pause left
        12  submit c within=0.1
        12  deployment left outside=1
        12  enable left
        12  submit d
    """)
    assert [view.predicted_wait for view in script.scheduler.waiting_of("default")] == [None, None]


def test_nothing_is_foretold_for_a_tenant_that_may_run_nothing() -> None:
    limits = Limits(tenants={"none": TenantCaps(max_in_flight=0)})
    practised("deadline", limits).run("""
        11  submit c tenant=none within=5
        16  tick                 -> refused c queue_timeout by tenants.none.max_in_flight
    """)


# Names.

TABLES = {
    "fairness": policies.FAIRNESS,
    "order": policies.ORDER,
    "admission": policies.ADMISSION,
    "retry_after": policies.RETRY_AFTER,
    "kv": policies.KV,
    "concurrency": policies.CONCURRENCY,
}
CASES = [(kind, name) for kind, table in TABLES.items() for name in table]


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_each_name_makes_a_scheduler_that_serves_in_turn(kind: str, name: str) -> None:
    options: dict[str, Any] = {kind: name}
    left = ready("left", slots=2, kv_pool_tokens=100_000)
    Script(left, policies=Policies.named(**options)).run("""
        0  submit a tokens=9 output=50  -> granted a on left
        0  submit b tokens=9 output=50  -> granted b on left
        0  submit c tokens=9 output=50
        1  charge a input=9 output=1
        2  timed a prompt=9 prompt_seconds=0.1 output=9 output_seconds=1
        2  leave a                      -> granted c on left
        3  leave b
        3  leave c
    """)


@pytest.mark.parametrize("kind", sorted(TABLES))
def test_an_unknown_name_is_answered_with_those_that_are_known(kind: str) -> None:
    known = ", ".join(TABLES[kind])
    options: dict[str, Any] = {kind: "best"}
    with pytest.raises(ValueError, match=re.escape(f"{kind} 'best' is none of {known}")):
        Policies.named(**options)


def test_the_defaults_by_name_are_the_defaults() -> None:
    named, plain = Policies.named(), Policies()
    assert (named.fairness, named.order, named.admission, named.retry_after, named.placement) == (
        plain.fairness,
        plain.order,
        plain.admission,
        plain.retry_after,
        plain.placement,
    )
    assert type(named.kv_budget()) is type(plain.kv_budget())
    assert type(named.concurrency()) is type(plain.concurrency())


def test_shortest_first_over_all_tenants_is_not_to_be_had() -> None:
    with pytest.raises(ValueError, match="'sjf' needs fairness"):
        Policies.named(order="sjf", fairness="none")
    for fairness in set(policies.FAIRNESS) - {"none"}:
        Policies.named(order="sjf", fairness=fairness)
