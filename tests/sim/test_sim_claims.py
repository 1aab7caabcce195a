"""What scheduling promises, in virtual time; each claim with a control that must fail it.

Eight slots of a GPU-like server; requests are in target with a first token within 10 s.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import pytest

from slotgate.load.arrival import Arrival
from slotgate.load.backoff import ClientKind
from slotgate.load.capacity import gpu_like
from slotgate.load.report import Report, make_report
from slotgate.load.run import Targets
from slotgate.load.workloads import Plan, Workload, make_workload
from slotgate.sim.policies import Scheduled, make_policy
from slotgate.sim.rehearsal import rehearse
from slotgate.sim.setting import Servers, parse_pace
from slotgate.sim.study import Study
from slotgate.sim.watching import Leads, watched
from slotgate.slotsim import ServerSpec

if TYPE_CHECKING:
    from slotgate.load.dice import Dice

SLOTS = 8
SERVERS = Servers(ServerSpec(slots=SLOTS, ctx=32768, pace=parse_pace("gpu", SLOTS)), 1)
TTFT = 10.0
SECONDS = 200.0
SEEDS = (1, 2)


def draw(
    name: str,
    load: float,
    hog: float,
    dice: Dice,
    *,
    max_tokens: int | None = None,
    seconds: float = SECONDS,
) -> Workload:
    plan = Plan(
        capacity=gpu_like(SLOTS),
        dice=dice,
        seconds=seconds,
        load=load,
        hog_share=hog,
        max_tokens=max_tokens,
    )
    return make_workload(name, plan)


@cache
def played(
    policy: str,
    name: str,
    load: float,
    hog: float = 0.8,
    *,
    client: ClientKind = ClientKind.NONE,
    pool: int | None = None,
) -> Report:
    study = Study(
        draw=lambda dice: draw(name, load, hog, dice),
        make_front=lambda dice: make_policy(policy, dice, TTFT),
        specs=[replace(SERVERS.spec, pool=pool)],
        client=client,
    )
    runs = [study.run(random.Random(seed)).as_run(seed) for seed in SEEDS]
    return make_report(runs, title=name, targets=Targets(ttft=TTFT))


def whole(report: Report, key: str) -> float:
    found = report.whole.mean(key)
    assert found is not None, key
    return found


def shares(report: Report) -> dict[str, float]:
    return {group.name: group.mean("attainment") or 0.0 for group in report.tenants}


# Goodput.


@pytest.mark.parametrize("load", [2.0, 5.0])
def test_an_overloaded_server_does_as_much_in_time_as_it_can(load: float) -> None:
    """The bar is 0.9 of what the best of all policies would get from its slots."""

    def holds(policy: str) -> bool:
        report = played(policy, "overload", load)
        return whole(report, "attainment") >= 0.9 / load

    assert holds("slotgate")
    assert not holds("fifo")
    assert not holds("fifo-q16")
    assert not holds("bare")


@pytest.mark.parametrize("load", [2.0, 5.0])
def test_guessed_lengths_serve_nearly_as_many_as_known_ones_would(load: float) -> None:
    def holds(policy: str) -> bool:
        best = whole(played("oracle", "overload", load), "goodput_requests")
        return whole(played(policy, "overload", load), "goodput_requests") >= 0.95 * best

    assert holds("slotgate")
    assert not holds("fifo-q16")


def test_nothing_is_lost_while_there_is_room_for_all() -> None:
    def holds(policy: str, load: float) -> bool:
        return whole(played(policy, "steady", load), "attainment") >= 0.97

    assert holds("slotgate", 0.6)
    assert not holds("slotgate", 1.5)


def test_hardly_a_token_is_worked_for_nothing() -> None:
    def holds(policy: str) -> bool:
        return whole(played(policy, "overload", 5.0), "wasted") <= 0.05

    assert holds("slotgate")
    assert not holds("bare")
    assert not holds("fifo")


# Fairness.


@pytest.mark.parametrize(("load", "hog", "bar"), [(2.4, 2.0 / 2.4, 0.95), (10.0, 0.9, 0.6)])
def test_light_tenants_are_served_in_time_beside_a_hog(load: float, hog: float, bar: float) -> None:
    def holds(policy: str) -> bool:
        return whole(played(policy, "hog", load, hog), "light_attainment") >= bar

    assert holds("slotgate")
    assert holds("drr")
    assert not holds("unfair")
    assert not holds("fifo-deadline")


def test_a_hog_costs_the_others_nothing_and_the_server_no_work() -> None:
    fair, unfair = (played(policy, "hog", 5.0) for policy in ("slotgate", "unfair"))
    assert whole(fair, "goodput_requests") >= 0.95 * whole(unfair, "goodput_requests")
    assert min(share for name, share in shares(fair).items() if name != "A") >= 0.5
    assert min(share for name, share in shares(unfair).items() if name != "A") < 0.5


LONG, SHORT = 80, 4


def twenty_to_one(dice: random.Random) -> Workload:
    """Two tenants that wait all the time; the answers of one are twenty times as long."""
    arrivals = [
        Arrival(
            at=dice.uniform(0.0, 90.0),
            tenant=tenant,
            input_tokens=dice.randint(10, 30),
            output_tokens=length,
            max_tokens=length,
        )
        # Each alone is more than the server can do.
        for tenant, length, count in (("long", LONG, 600), ("short", SHORT, 4500))
        for _ in range(count)
    ]
    arrivals.sort(key=lambda arrival: arrival.at)
    return Workload(name="twenty to one", seconds=90.0, arrivals=tuple(arrivals))


def test_of_two_that_always_wait_neither_gets_ahead_beyond_the_bound() -> None:
    """VTC's bound, 2U with U = longest prompt + what all slots may write after a grant."""
    output_cost = SERVERS.spec.pace.prefill * SERVERS.spec.pace.steps[SLOTS] / SLOTS

    def lead(policy: str) -> float:
        """The widest lead over the bound."""
        dice = random.Random(1)
        workload = twenty_to_one(dice)
        front = make_policy(policy, dice, 300.0)
        assert isinstance(front, Scheduled)
        assert front.policies is not None
        leads = Leads()
        policies = replace(front.policies, fairness=watched(front.policies.fairness, leads))
        rehearse(workload, SERVERS.specs, replace(front, policies=policies))
        written = output_cost * SLOTS * LONG
        bound = 2 * (written + max(arrival.input_tokens for arrival in workload.arrivals))
        # Else it would say nothing: they have waited together for long enough to get further.
        assert leads.longest > 2 * bound
        return leads.widest / bound

    assert lead("slotgate") <= 1
    assert lead("drr") <= 1
    assert lead("round-robin") > 2
    assert lead("unfair") > 2


# Refusals.


def test_who_cannot_be_in_time_is_told_at_once() -> None:
    def holds(policy: str) -> bool:
        report = played(policy, "overload", 5.0)
        return whole(report, "refusal_p50") <= 0.02 and whole(report, "retry_after") == 1.0

    assert holds("slotgate")
    assert not holds("patient")
    assert not holds("fifo-deadline")


def test_clients_that_come_back_as_told_are_served_more_often_than_those_that_do_not() -> None:
    def in_time_at_last(client: ClientKind) -> float:
        return whole(played("slotgate", "burst", 5.0, client=client), "eventual")

    told, ignoring = in_time_at_last(ClientKind.OPENAI), in_time_at_last(ClientKind.IGNORING)
    assert told > ignoring + 0.05
    assert in_time_at_last(ClientKind.NONE) < told - 0.05


def test_most_waits_are_as_long_as_was_predicted_or_shorter() -> None:
    def share(policy: str) -> float:
        return whole(played(policy, "overload", 2.0), "wait_calibration")

    assert 0.6 <= share("slotgate") <= 0.9


# Memory.


def test_a_shared_pool_that_is_too_small_for_all_slots_kills_nobody() -> None:
    # Room for the longest prompt of all, which would else end itself, if nobody beside it.
    def holds(policy: str) -> bool:
        return whole(played(policy, "kv-tight", 3.0, pool=16_384), "failed") == 0.0

    assert holds("slotgate")
    assert not holds("bare")
