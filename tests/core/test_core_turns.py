"""Every fair policy: one contract; and what is particular to each."""

from __future__ import annotations

from math import inf, nextafter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotgate.core.fairness import (
    DeficitRoundRobin,
    FairPolicy,
    LeastRecentService,
    RoundRobin,
    Vtc,
)
from slotgate.core.policies import FAIRNESS

TENANTS = ("a", "b", "c", "d")

tenants = st.sampled_from(TENANTS)
costs = st.floats(0.001, 1e6)
steps = st.one_of(
    st.tuples(st.sampled_from(["wait", "go", "resume", "pass", "grant"]), tenants, st.just(1.0)),
    st.tuples(st.just("charge"), tenants, costs),
    st.tuples(st.just("refund"), tenants, st.floats(0, 1)),
    st.tuples(st.just("time"), tenants, st.floats(0, 100)),
)


class Life:
    """A policy that is driven as the queue drives it, with what each tenant was charged."""

    def __init__(self, policy: FairPolicy) -> None:
        self.policy = policy
        self.waiting: list[str] = []
        self.now = 0.0
        # Tenant -> its last charge, which may be refunded.
        self.charged: dict[str, float] = {}

    def keys(self) -> dict[str, float]:
        return {tenant: self.policy.key(tenant) for tenant in TENANTS}

    def take(self, what: str, tenant: str, number: float) -> None:
        policy = self.policy
        is_waiting = tenant in self.waiting
        if what in ("wait", "resume") and not is_waiting:
            (policy.arrive if what == "wait" else policy.resume)(tenant)
            self.waiting.append(tenant)
        elif what == "go" and is_waiting:
            self.waiting.remove(tenant)
            policy.depart(tenant)
        elif what == "pass" and not self.waiting:
            policy.pass_by(tenant)
        elif what == "grant":
            policy.grant(tenant, 2.0)
        elif what == "charge":
            policy.charge(tenant, number, self.now)
            self.charged[tenant] = number
        elif what == "refund" and tenant in self.charged:
            policy.charge(tenant, -number * self.charged.pop(tenant), self.now)
        elif what == "time":
            self.now += number


def lives(name: str, script: list[tuple[str, str, float]]) -> Life:
    life = Life(FAIRNESS[name]())
    for step in script:
        life.take(*step)
    return life


@settings(max_examples=25, deadline=None)
@given(script=st.lists(steps, max_size=25), last=steps)
@pytest.mark.parametrize("name", sorted(FAIRNESS))
def test_only_a_refund_or_an_arrival_may_lower_a_key(
    name: str, script: list[tuple[str, str, float]], last: tuple[str, str, float]
) -> None:
    life = lives(name, script)
    before = life.keys()
    life.take(*last)
    after = life.keys()
    for tenant in TENANTS:
        is_touched = tenant == last[1]
        if not is_touched:
            assert after[tenant] == before[tenant], "nobody else's key is moved"
        elif last[0] != "refund":
            assert after[tenant] >= before[tenant]


@settings(max_examples=25, deadline=None)
@given(script=st.lists(steps, max_size=25), tenant=tenants, one=costs, other=costs)
@pytest.mark.parametrize("name", sorted(FAIRNESS))
def test_turns_come_later_the_more_is_before_them(
    name: str, script: list[tuple[str, str, float]], tenant: str, one: float, other: float
) -> None:
    policy = lives(name, script).policy
    tolls = sorted([0.0, *(policy.toll(cost, 2.0) for cost in (one, other))])
    for part in (0.0, 0.5, 1.0):
        turns = [policy.turn(tenant, toll, part) for toll in tolls]
        assert turns == sorted(turns)
    places = [policy.key_after(tenant, toll) for toll in tolls]
    assert places == sorted(places)


@settings(max_examples=25, deadline=None)
@given(script=st.lists(steps, max_size=25))
@pytest.mark.parametrize("name", sorted(FAIRNESS))
def test_turns_are_in_the_order_of_keys(name: str, script: list[tuple[str, str, float]]) -> None:
    policy = lives(name, script).policy
    by_key = sorted(TENANTS, key=policy.key)
    turns = [policy.turn(tenant, 0.0, 0.5) for tenant in by_key]
    # Two logarithms that are apart by no more than rounding may be one number.
    assert turns == pytest.approx(sorted(turns))


@settings(max_examples=25, deadline=None)
@given(script=st.lists(steps, max_size=25), one=costs, other=costs)
@pytest.mark.parametrize("name", sorted(FAIRNESS))
def test_of_two_that_came_together_whoever_is_charged_more_is_not_ahead(
    name: str, script: list[tuple[str, str, float]], one: float, other: float
) -> None:
    life = lives(name, script)
    policy = life.policy
    for newcomer in ("x", "y"):
        policy.arrive(newcomer)
    policy.charge("x", max(one, other), life.now)
    policy.charge("y", min(one, other), life.now)
    assert policy.key("x") >= policy.key("y")


@settings(max_examples=25, deadline=None)
@given(script=st.lists(steps, max_size=25))
@pytest.mark.parametrize("name", sorted(FAIRNESS))
def test_a_newcomer_is_not_ahead_of_all_that_wait(
    name: str, script: list[tuple[str, str, float]]
) -> None:
    life = lives(name, script)
    foreseen = life.policy.entry_turn("newcomer")
    life.policy.arrive("newcomer")
    assert life.policy.turn("newcomer", 0.0, 1.0) == foreseen
    least = min((life.policy.key(each) for each in life.waiting), default=-inf)
    assert life.policy.key("newcomer") >= least
    # Nor is it behind all of them: it has had nothing.
    assert life.policy.key("newcomer") == least or not life.waiting


@settings(max_examples=25, deadline=None)
@given(script=st.lists(steps, max_size=25))
@pytest.mark.parametrize("name", sorted(FAIRNESS))
def test_where_nobody_waits_a_newcomer_stands_where_the_last_one_did(
    name: str, script: list[tuple[str, str, float]]
) -> None:
    life = lives(name, script)
    for tenant in list(life.waiting):
        life.take("go", tenant, 0.0)
    life.policy.pass_by("last")
    life.policy.charge("last", 5.0, life.now)
    for arrive in (life.policy.pass_by, life.policy.arrive):
        arrive(f"newcomer {arrive}")
        assert life.policy.key(f"newcomer {arrive}") == life.policy.key("last")


@pytest.mark.parametrize("name", sorted(set(FAIRNESS) - {"none"}))
def test_who_comes_back_below_its_cap_is_the_first_of_those_that_have_had_no_less(
    name: str,
) -> None:
    policy = FAIRNESS[name]()
    for tenant in ("a", "b"):
        policy.arrive(tenant)
        policy.grant(tenant, 0.001)
        policy.charge(tenant, 10_000.0, 0.0)
    policy.resume("capped")
    # A whole quantum before, where turns are quanta.
    assert policy.key("a") - 1 <= policy.key("capped") <= policy.key("a")
    policy.charge("capped", 10_000.0, 0.0)
    policy.grant("capped", 0.001)
    policy.depart("capped")
    policy.resume("capped")
    assert policy.key("capped") > policy.key("a"), "and behind once it has had more"


# Particulars.


def test_a_counter_is_cost_over_weight() -> None:
    vtc = Vtc()
    vtc.arrive("a")
    vtc.charge("a", 30.0, 0.0)
    vtc.charge("a", -10.0, 0.0)
    assert vtc.key("a") == 20.0


def test_the_floor_follows_refunds_and_charges() -> None:
    vtc = Vtc()
    for tenant, cost in (("a", 100.0), ("b", 50.0)):
        vtc.arrive(tenant)
        vtc.charge(tenant, cost, 0.0)
    vtc.charge("b", 100.0, 0.0)
    vtc.arrive("c")
    assert vtc.key("c") == 100.0
    vtc.charge("b", -190.0, 0.0)
    vtc.arrive("d")
    assert vtc.key("d") == 60.0


def test_just_before_is_as_little_as_can_be() -> None:
    vtc = Vtc()
    vtc.arrive("a")
    vtc.charge("a", 100.0, 0.0)
    vtc.resume("capped")
    assert vtc.key("capped") == nextafter(100.0, -inf)


def test_the_turn_of_deficit_round_robin_is_the_whole_quanta_that_were_had() -> None:
    drr = DeficitRoundRobin(quantum=100.0)
    drr.arrive("a")
    for cost, turn in ((99.0, 0), (1.0, 1), (350.0, 4)):
        drr.charge("a", cost, 0.0)
        assert drr.key("a") == turn
    assert drr.key_after("a", 49.0) == 499.0
    assert [drr.turn("a", toll, 0.0) for toll in (49.0, 50.0)] == [400.0, 500.0]
    assert drr.turn("a", 49.0, 0.25) == 425.0, "others that came first take their quantum before"


def test_in_round_robin_a_turn_is_a_request_over_its_weight() -> None:
    turns = RoundRobin()
    turns.arrive("a")
    turns.charge("a", 1e9, 0.0)
    turns.grant("a", 1.0)
    turns.grant("a", 4.0)
    assert turns.key("a") == 1.25
    assert turns.key_after("a", turns.toll(1e9, 4.0)) == 1.5


def test_recent_service_is_forgotten_by_half_each_half_life() -> None:
    las = LeastRecentService(half_life_seconds=10.0)
    for tenant in ("a", "b"):
        las.arrive(tenant)
    las.charge("a", 1000.0, 0.0)
    las.charge("b", 499.0, 10.0)
    assert las.key("b") < las.key("a")
    las.charge("b", 2.0, 10.0)
    assert las.key("b") > las.key("a")


def test_recent_service_bears_any_age() -> None:
    las = LeastRecentService()
    las.arrive("a")
    for now in (0.0, 1e7, 1e9):
        las.charge("a", 1.0, now)
        las.charge("a", 1000.0, now)
        assert 1001.0 <= las.key_after("a", 1.0) < 2001.0


def test_a_refund_of_all_recent_service_leaves_nothing() -> None:
    las = LeastRecentService()
    las.arrive("a")
    las.charge("a", 100.0, 0.0)
    las.charge("a", -100.0, 0.0)
    assert las.key("a") == -inf
    las.charge("a", -100.0, 0.0)
    assert las.key("a") == -inf
    las.charge("a", 7.0, 0.0)
    las.charge("a", -nextafter(7.0, 0.0), 0.0)
    assert las.key("a") < 0


def test_a_refund_that_is_all_but_equal_leaves_nothing_either() -> None:
    las = LeastRecentService(half_life_seconds=1.0)
    las.arrive("a")
    # Their logarithms are apart by less than what a power of two can tell from one.
    las.charge("a", 1.0, 0.1)
    las.charge("a", -1.0, nextafter(0.1, 0.0))
    assert las.key("a") == -inf


@pytest.mark.parametrize("name", sorted(set(FAIRNESS) - {"none"}))
@pytest.mark.parametrize("way", ["arrive", "pass_by"])
def test_counters_of_thousands_that_were_here_once_are_forgotten(name: str, way: str) -> None:
    policy = FAIRNESS[name]()
    for n in range(5000):
        policy.grant(f"t{n}", 1.0)
        getattr(policy, way)(f"t{n}")
        policy.charge(f"t{n}", 10.0, 0.0)
        policy.depart(f"t{n}")
        policy.end(f"t{n}")
    assert isinstance(policy, Vtc)
    assert len(policy._counters) <= 3000


def test_what_is_kept_is_who_is_ahead_and_who_waits() -> None:
    vtc = Vtc()
    vtc.arrive("waits")
    vtc.charge("waits", 50.0, 0.0)
    vtc.arrive("ahead")
    vtc.charge("ahead", 100.0, 0.0)
    vtc.depart("ahead")
    for n in range(5000):
        vtc.arrive(f"t{n}")
        vtc.depart(f"t{n}")
    assert len(vtc._counters) < 3000
    assert vtc.key("waits") == 50.0
    vtc.arrive("ahead")
    assert vtc.key("ahead") == 150.0


# Forgetting.


class Runs:
    """Two policies that see the same: one forgets whenever it may, the other never."""

    def __init__(self, name: str) -> None:
        self.forgetful, self.mindful = FAIRNESS[name](), FAIRNESS[name]()
        assert isinstance(self.mindful, Vtc)
        self.mindful._sweep_at = 1_000_000
        self.lives = [Life(self.forgetful), Life(self.mindful)]
        self.running: list[str] = []

    def take(self, what: str, tenant: str, number: float) -> None:
        assert isinstance(self.forgetful, Vtc)
        self.forgetful._sweep_at = 0
        if what == "grant":
            self.running.append(tenant)
        elif what == "end" and tenant in self.running:
            self.running.remove(tenant)
            for life in self.lives:
                life.policy.end(tenant)
        if what != "charge" or tenant in self.running:
            for life in self.lives:
                life.take(what, tenant, number)


@settings(max_examples=30, deadline=None)
@given(
    script=st.lists(
        st.one_of(
            st.tuples(
                st.sampled_from(["wait", "go", "resume", "pass", "grant", "end"]),
                tenants,
                st.just(1.0),
            ),
            st.tuples(st.just("charge"), tenants, st.floats(1.0, 1e5)),
        ),
        max_size=40,
    )
)
@pytest.mark.parametrize("name", sorted(set(FAIRNESS) - {"none"}))
def test_who_is_forgotten_comes_back_as_if_it_were_not(
    name: str, script: list[tuple[str, str, float]]
) -> None:
    runs = Runs(name)
    for step in script:
        runs.take(*step)
    for tenant in TENANTS:
        runs.take("wait", tenant, 1.0)
        assert runs.forgetful.key(tenant) == runs.mindful.key(tenant)


def test_who_runs_is_not_forgotten_among_thousands() -> None:
    vtc = Vtc()
    vtc.arrive("waits")
    vtc.charge("waits", 50.0, 0.0)
    vtc.arrive("runs")
    vtc.depart("runs")
    vtc.grant("runs", 1.0)
    for n in range(5000):
        vtc.arrive(f"t{n}")
        vtc.depart(f"t{n}")
    vtc.charge("runs", 20.0, 0.0)
    assert vtc.key("runs") == 70.0


def test_who_has_ended_is_forgotten_like_others() -> None:
    vtc = Vtc()
    for n in range(5000):
        vtc.grant(f"t{n}", 1.0)
        vtc.grant(f"t{n}", 1.0)
        vtc.end(f"t{n}")
        vtc.end(f"t{n}")
    assert not vtc._running
    vtc.end("nobody")
    assert not vtc._running


def test_a_refund_of_recent_service_takes_back_what_was_charged_then() -> None:
    las = LeastRecentService(half_life_seconds=10.0)
    las.charge("a", 40.0, 0.0)
    las.charge("a", 60.0, 0.0)
    las.charge("b", 60.0, 0.0)
    las.charge("b", 1.0, 10.0)
    las.charge("a", -40.0, 0.0)
    las.charge("a", 1.0, 10.0)
    assert las.key("a") == pytest.approx(las.key("b"))
    assert las.key_after("a", 0.0) == pytest.approx(31.0), "what comes after still counts twice"
