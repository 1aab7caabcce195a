"""What fairness promises (docs/explanation/fairness.md), and that other rules do not keep it.

Each check has a negative control: a rule with which the same check must fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import combinations
from random import Random

import pytest
from typing_extensions import override

from slotgate.core.fairness import Vtc
from slotgate.core.policies import Policies
from tests.core.contest import OUTPUT_COST, Contender, Contest, between

LONGEST_PROMPT, LONGEST_ANSWER = 600, 60
TURNS = 400


class NeverLifted(Vtc):
    """Whoever was away comes back to where it was."""

    @override
    def _lift(self, tenant: str, floor: float) -> None:
        super()._lift(tenant, self._ZERO)


class Watch:
    """The largest differences between tenants since it began."""

    def __init__(self, contest: Contest, tenants: Iterable[str]) -> None:
        self._contest = contest
        self._start = dict(contest.service)
        self._pairs = list(combinations(tenants, 2))
        self._least = dict.fromkeys(self._pairs, 0.0)
        self._most = dict.fromkeys(self._pairs, 0.0)
        # Of two counters at one moment.
        self.keys = 0.0

    def look(self) -> None:
        service, start = self._contest.service, self._start
        for pair in self._pairs:
            one, other = pair
            apart = service[one] - start[one] - service[other] + start[other]
            self._least[pair] = min(self._least[pair], apart)
            self._most[pair] = max(self._most[pair], apart)
            keys = abs(self._contest.key(one) - self._contest.key(other))
            self.keys = max(self.keys, keys)

    @property
    def service(self) -> float:
        """The largest difference in service over weight, over any interval."""
        return max(self._most[pair] - self._least[pair] for pair in self._pairs)


def bound(contest: Contest) -> float:
    """U: what a tenant can be ahead by after its last grant."""
    prompts = LONGEST_PROMPT
    if contest.guesses:
        # What prompts were longer than thought is charged late, for all slots.
        prompts += contest.slots * LONGEST_PROMPT // 2
    cost = prompts + OUTPUT_COST * contest.slots * LONGEST_ANSWER
    return cost / min(contender.weight for contender in contest.contenders.values())


def backlogged(seed: int, fairness: str = "vtc", *, guesses: bool = False) -> Contest:
    """Two to four tenants, each with other habits and another weight, that ask all the time."""
    dice = Random(seed)
    contenders = {}
    for number in range(dice.randint(2, 4)):
        prompt, answer = dice.randint(1, LONGEST_PROMPT), dice.randint(1, LONGEST_ANSWER)
        contenders[f"tenant{number}"] = Contender(
            backlog=dice.randint(1, 9),
            prompt=between(dice.randint(1, prompt), prompt),
            answer=between(dice.randint(1, answer), answer),
            weight=dice.choice([0.5, 1.0, 2.0, 5.0]),
        )
    return Contest(
        contenders,
        slots=dice.randint(1, 6),
        policies=Policies.named(fairness=fairness),
        seed=seed,
        guesses=guesses,
    )


def contend(contest: Contest, *tenants: str, turns: int = TURNS) -> Watch:
    """Let these, or all, wait all the time, and watch."""
    contest.top_up(*tenants)
    watch = Watch(contest, tenants or contest.contenders)
    for _ in range(turns):
        contest.turn()
        contest.top_up(*tenants)
        watch.look()
    return watch


# Tenants that wait all the time.


@pytest.mark.parametrize("seed", range(4))
def test_tenants_that_always_wait_are_served_by_weight(seed: int) -> None:
    contest = backlogged(seed)
    watch = contend(contest)
    assert watch.keys <= bound(contest), "counters, at every moment"
    assert watch.service <= 2 * bound(contest), "service, over every interval"


@pytest.mark.parametrize("seed", range(4))
def test_so_they_are_where_prompts_are_only_guessed(seed: int) -> None:
    contest = backlogged(seed, guesses=True)
    watch = contend(contest)
    assert watch.keys <= bound(contest)
    assert watch.service <= 2 * bound(contest)


@pytest.mark.parametrize("seed", range(4))
def test_counters_are_the_service_that_was_had(seed: int) -> None:
    contest = backlogged(seed)
    contest.top_up()
    apart = {name: contest.key(name) - contest.service[name] for name in contest.contenders}
    for _ in range(TURNS):
        contest.turn()
        contest.top_up()
    for name, before in apart.items():
        assert contest.key(name) - contest.service[name] == pytest.approx(before, abs=1e-6)


def unequal(fairness: str) -> Contest:
    """Two tenants: one asks for more at a time, and for longer answers."""
    return Contest(
        {
            "long": Contender(9, between(500, LONGEST_PROMPT), between(50, LONGEST_ANSWER)),
            "short": Contender(3, between(1, 50), between(1, 6)),
        },
        slots=2,
        policies=Policies.named(fairness=fairness),
    )


@pytest.mark.parametrize("fairness", ["none", "round_robin"])
def test_control_other_rules_do_not_serve_by_service(fairness: str) -> None:
    contest = unequal(fairness)
    assert contend(contest, turns=1000).service > 2 * bound(contest)


@pytest.mark.parametrize(("fairness", "slack"), [("vtc", 0.0), ("las", 0.0), ("drr", 4000.0)])
def test_the_fair_rules_serve_by_service_up_to_their_grain(fairness: str, slack: float) -> None:
    contest = unequal(fairness)
    assert contend(contest, turns=1000).service <= 2 * (bound(contest) + slack)


def test_the_bound_is_not_much_too_large() -> None:
    """One slot: after each request of the full length, its tenant is ahead by nearly U."""
    whole = Contender(2, between(LONGEST_PROMPT, LONGEST_PROMPT), between(60, LONGEST_ANSWER))
    contest = Contest({"whole": whole, "tiny": Contender(2, between(1, 9), between(1, 2))})
    assert contend(contest).keys > 0.9 * bound(contest)


# A tenant that asks for little.


def waits_of_a_light_tenant(fairness: str) -> tuple[list[float], Contest]:
    """Beside a hog with fifty requests in the queue, one that asks for a tenth of the machine."""
    light = Contender(0, between(1, 100), between(1, 30))
    hog = Contender(50, between(1, LONGEST_PROMPT), between(1, LONGEST_ANSWER))
    contest = Contest(
        {"hog": hog, "light": light}, slots=3, policies=Policies.named(fairness=fairness)
    )
    asked_for = 0.0
    for _ in range(1200):
        contest.top_up("hog")
        if contest.work / 10 > asked_for and not contest.waiting["light"]:
            contest.ask("light")
            asked_for += 50 + OUTPUT_COST * 15
        contest.turn()
    return contest.waits["light"], contest


def test_a_light_tenant_gets_all_that_it_asks_for_and_soon() -> None:
    waits, contest = waits_of_a_light_tenant("vtc")
    assert len(waits) > 40
    # All that it waits for is that one of the slots comes free.
    assert max(waits) <= bound(contest)
    assert contest.service["light"] >= 0.09 * contest.work


def test_control_in_order_of_arrival_a_light_tenant_waits_for_the_hogs_whole_queue() -> None:
    waits, contest = waits_of_a_light_tenant("none")
    assert max(waits) > 5 * bound(contest)
    assert contest.service["light"] < 0.09 * contest.work


# Nothing is saved up.


def alike(policies: Policies, *names: str, slots: int = 3, **options: int | None) -> Contest:
    """Tenants of the same habits."""
    return Contest(
        {
            name: Contender(
                4, between(1, LONGEST_PROMPT), between(1, LONGEST_ANSWER), max_in_flight=most
            )
            for name, most in (dict.fromkeys(names) | options).items()
        },
        slots=slots,
        policies=policies,
    )


VTC, UNLIFTED = Policies(), Policies(fairness=NeverLifted)


def after_an_absence(policies: Policies) -> float:
    contest = alike(policies, "here", "there", "away")
    for _ in range(TURNS):
        contest.top_up("here", "there")
        contest.turn()
    return contend(contest).service / bound(contest)


def after_having_had_the_machine_to_itself(policies: Policies) -> float:
    """One tenant alone, each of whose requests found a free slot."""
    contest = alike(policies, "alone", "late")
    for _ in range(TURNS):
        while len(contest.running) < contest.slots:
            contest.ask("alone")
        contest.turn()
    assert set(contest.waits["alone"]) == {0.0}
    return contend(contest).service / bound(contest)


def after_turns_alone(policies: Policies) -> float:
    """Each has the machine to itself for a while, and waits there; then both wait."""
    contest = alike(policies, "first", "second")
    for name, turns in (("first", 600), ("second", 50), ("first", 300)):
        for _ in range(turns):
            contest.top_up(name)
            contest.turn()
    return contend(contest).service / bound(contest)


def after_a_third_was_kept_at_its_cap(policies: Policies) -> float:
    """One waits all the time, but at its cap: it keeps no place for whoever comes late."""
    contest = alike(policies, "here", "late", slots=6, capped=1)
    for _ in range(800):
        contest.top_up("here", "capped")
        contest.turn()
    return contend(contest, "here", "late").service / bound(contest)


def after_having_been_at_its_cap(policies: Policies) -> float:
    """One had less than its share, at its cap; now there are many, and its cap is no limit."""
    late = [f"late{n}" for n in range(6)]
    contest = alike(policies, "here", *late, slots=6, capped=2)
    for _ in range(800):
        contest.top_up("here", "capped")
        contest.turn()
    return contend(contest).service / bound(contest)


History = Callable[[Policies], float]
HISTORIES = [
    after_an_absence,
    after_having_had_the_machine_to_itself,
    after_turns_alone,
    after_a_third_was_kept_at_its_cap,
    after_having_been_at_its_cap,
]


@pytest.mark.parametrize("history", HISTORIES)
def test_whatever_was_before_who_waits_now_is_served_alike(history: History) -> None:
    assert history(VTC) <= 2


@pytest.mark.parametrize("history", HISTORIES)
def test_control_without_lifting_the_past_counts(history: History) -> None:
    assert history(UNLIFTED) > 2


@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("fairness", ["las", "drr"])
def test_so_it_is_with_the_other_fair_rules(history: History, fairness: str) -> None:
    # A quantum is about as large as the bound here.
    assert history(Policies.named(fairness=fairness)) <= 4


def test_a_capped_tenant_gets_its_whole_cap_where_that_is_less_than_its_share() -> None:
    contest = alike(VTC, "here", slots=4, capped=1)
    for _ in range(1200):
        contest.top_up()
        contest.turn()
    # One slot of four, all of the time.
    assert contest.service["capped"] / contest.work == pytest.approx(0.25, rel=0.1)
