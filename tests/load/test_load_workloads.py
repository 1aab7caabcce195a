"""Workloads ask for as much as they say, of whom they say, and the same for the same seed."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from math import exp
from random import Random
from statistics import fmean, pstdev

import pytest

from slotgate.errors import ConfigError
from slotgate.load.capacity import MACHINES, Rate, gpu_like
from slotgate.load.lengths import CHAT, CLASSES, CODE, REASON, Fixed, LengthClass
from slotgate.load.sessions import TURN
from slotgate.load.streams import Stream
from slotgate.load.tenants import day_factor, make_tenants, zipf_shares
from slotgate.load.workloads import BURST_SECONDS, RECIPES, TENANTS, Plan, Workload, make_workload

# The means of the traces that the classes are taken from; reason's answers: ServeGen.
MEANS = [
    ("chat", 1155, 211),
    ("code", 2048, 28),
    ("reason", None, 1506),
]
GPU = gpu_like(8)


def plan(seed: int = 1, *, seconds: float = 2000.0, load: float | None = None) -> Plan:
    return Plan(capacity=GPU, dice=Random(seed), seconds=seconds, load=load)


def cost(workload: Workload, tenant: str | None = None) -> float:
    """What the workload asks for, as a multiple of the capacity."""
    kinds = {**TENANTS, "short": CODE, "long": REASON}
    names = (arrival.tenant for arrival in workload.arrivals)
    counts = Counter(name for name in names if tenant in (None, name))
    asked = sum(count * GPU.cost(kinds.get(name, CHAT)) for name, count in counts.items())
    return asked / workload.seconds


@pytest.mark.parametrize(("name", "prompt", "answer"), MEANS)
def test_a_class_is_as_long_on_average_as_in_the_field(
    name: str, prompt: int | None, answer: int
) -> None:
    kind = CLASSES[name]
    if prompt is not None:
        assert kind.input.mean == pytest.approx(prompt, rel=0.03)
    assert kind.output.mean == pytest.approx(answer, rel=0.03)


@pytest.mark.parametrize("name", CLASSES)
def test_what_is_drawn_has_the_mean_that_is_said(name: str) -> None:
    dice, kind = Random(3), CLASSES[name]
    for lengths in (kind.input, kind.output):
        drawn = [lengths.draw(dice) for _ in range(40_000)]
        assert min(drawn) >= 1
        assert fmean(drawn) == pytest.approx(lengths.mean, rel=0.04)


def test_chat_has_the_median_and_the_tail_of_its_trace() -> None:
    dice = Random(4)
    drawn = sorted(CHAT.output.draw(dice) for _ in range(40_000))
    assert drawn[20_000] == pytest.approx(129, rel=0.03)
    assert drawn[36_000] == pytest.approx(424, rel=0.03)
    assert drawn[-1] <= 1000


def test_eight_slots_of_a_card_serve_as_many_chats_as_the_reference_says() -> None:
    assert 1 / GPU.cost(CHAT) == pytest.approx(1.24, rel=0.03)
    assert MACHINES["cpu"](8).cost(CHAT) > 5 * GPU.cost(CHAT)


@pytest.mark.parametrize("name", RECIPES)
def test_a_workload_is_in_order_within_its_time_and_the_same_for_the_same_seed(name: str) -> None:
    made = make_workload(name, plan(5, seconds=240.0))
    times = [arrival.at for arrival in made.arrivals]
    assert times == sorted(times)
    assert times[0] >= 0
    assert times[-1] < 240.0
    assert made == make_workload(name, plan(5, seconds=240.0))
    assert made.arrivals != make_workload(name, plan(6, seconds=240.0)).arrivals


@pytest.mark.parametrize("name", ["steady", "overload", "hog", "unequal", "on-off", "kv-tight"])
def test_a_load_is_a_multiple_of_the_capacity_in_work(name: str) -> None:
    made = make_workload(name, plan(seconds=8000.0, load=2.0))
    assert cost(made) == pytest.approx(2.0, rel=0.08)


def test_the_hog_asks_for_its_part_and_is_heavy() -> None:
    made = make_workload("hog", plan(seconds=8000.0, load=5.0))
    assert cost(made, "A") == pytest.approx(4.0, rel=0.05)
    assert made.heavy == frozenset("A")


def test_a_burst_is_a_minute_of_one_tenant() -> None:
    made = make_workload("burst", plan(load=5.0))
    start, end = made.seconds / 4, made.seconds / 4 + BURST_SECONDS
    assert made.burst_ended_at == end
    during = [arrival for arrival in made.arrivals if start <= arrival.at < end]
    from_one = sum(arrival.tenant == "A" for arrival in during)
    assert from_one * GPU.cost(CHAT) / BURST_SECONDS == pytest.approx(5.0, rel=0.2)
    assert cost(make_workload("burst", plan(load=0.001))) == pytest.approx(0.7, rel=0.2)


def test_the_crowd_is_of_tenants_that_nobody_has_seen_before() -> None:
    made = make_workload("flash-crowd", plan(seconds=400.0, load=20.0))
    first_seen = {arrival.tenant: arrival.at for arrival in reversed(made.arrivals)}
    crowd = [at for tenant, at in first_seen.items() if tenant.startswith("new")]
    assert len(crowd) > 90
    assert min(crowd) >= 100.0


def test_a_tenant_that_comes_and_goes_sends_nothing_while_it_is_gone() -> None:
    made = make_workload("on-off", plan())
    assert all(a.at % 60 < 31 for a in made.arrivals if a.tenant == "A")


def test_in_a_storm_clients_leave_together() -> None:
    made = make_workload("disconnects", plan(seconds=600.0))
    leaving = [a.at + a.leaves_after for a in made.arrivals if a.leaves_after is not None]
    assert len(leaving) > 50
    assert all(when % 60 == pytest.approx(0, abs=1e-6) or when % 60 > 59.999 for when in leaving)


def test_only_some_clients_read_slowly() -> None:
    made = make_workload("slow-readers", plan())
    slow = sum(arrival.reading_rate is not None for arrival in made.arrivals)
    assert slow / len(made.arrivals) == pytest.approx(0.25, abs=0.05)


def test_clients_of_a_storm_come_back_and_others_do_not() -> None:
    assert make_workload("retry-storm", plan(seconds=60.0)).retries
    assert not make_workload("burst", plan(seconds=60.0)).retries


def test_an_unknown_workload_is_named_with_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match="'boom'; there are steady, burst"):
        make_workload("boom", plan())


def test_a_measured_rate_costs_the_same_for_every_class() -> None:
    assert Rate(4.0).cost(CHAT) == Rate(4.0).cost(REASON) == 0.25


@pytest.mark.parametrize("variation", [0.5, 1.0, 2.5])
def test_gaps_vary_as_much_as_is_asked(variation: float) -> None:
    kind = LengthClass("fixed", "", Fixed(1), Fixed(1))
    stream = Stream(tenant="a", kind=kind, rate=lambda _: 10.0, end=4000.0, variation=variation)
    times = [arrival.at for arrival in stream.arrivals(Random(7))]
    gaps = [right - left for left, right in pairwise(times)]
    assert fmean(gaps) == pytest.approx(0.1, rel=0.05)
    assert pstdev(gaps) / fmean(gaps) == pytest.approx(variation, rel=0.05)


def test_a_stream_follows_its_rate() -> None:
    kind = LengthClass("fixed", "", Fixed(1), Fixed(1))
    stream = Stream(tenant="a", kind=kind, rate=lambda at: 20.0 if at < 500 else 0.0, end=1000.0)
    times = [arrival.at for arrival in stream.arrivals(Random(8))]
    assert len(times) == pytest.approx(10_000, rel=0.05)
    assert max(times) < 501


def test_few_tenants_send_most_requests() -> None:
    shares = zipf_shares(100)
    assert sum(shares) == pytest.approx(1.0)
    assert shares[0] == pytest.approx(2 * shares[1])
    made = make_tenants(plan(seconds=7200.0), count=100, load=8.0)
    counts = Counter(arrival.tenant for arrival in made.arrivals).most_common()
    assert sum(count for _, count in counts[:20]) > 0.6 * len(made.arrivals)


def test_a_day_has_its_quiet_and_its_busy_hours_and_a_mean_of_one() -> None:
    day = [day_factor(at) for at in range(0, 86400, 60)]
    assert fmean(day) == pytest.approx(1.0, rel=0.01)
    assert max(day) / min(day) == pytest.approx(exp(2 * 1.24), rel=0.01)
    assert day.index(max(day)) * 60 == pytest.approx(43200, abs=60)


def test_a_conversation_grows_by_its_answers_and_questions() -> None:
    made = make_workload("sessions", plan(9, seconds=4000.0, load=0.8))
    assert len({opening.session for opening in made.arrivals}) == len(made.arrivals)
    turns = []
    for opening in made.arrivals:
        conversation = [opening]
        while following := conversation[-1].then:
            before = conversation[-1]
            assert following.session == opening.session
            assert following.input_tokens > before.input_tokens + before.wanted_tokens
            conversation.append(following)
        turns.append(conversation)
    assert {len(each) for each in turns} == {3, 4, 5, 6, 7}
    thinking = [turn.at for each in turns for turn in each[1:]]
    assert fmean(thinking) == pytest.approx(15.0, rel=0.1)
    prompts = [turn.input_tokens for each in turns for turn in each]
    assert fmean(prompts) == pytest.approx(TURN.input.mean, rel=0.05)
    # So many turns, each read whole, ask for the load that was said.
    assert len(prompts) * GPU.cost(TURN) / made.seconds == pytest.approx(0.8, rel=0.1)
