"""How many slots are worth using: from the gaps between tokens, and nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable
from math import inf
from statistics import fmean
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotgate.core.limit import AimdLimit, FixedLimit, GapTableLimit
from slotgate.core.policies import CONCURRENCY, Policies
from slotgate.core.speeds import GapTable, Speeds
from slotgate.slotsim import Pace
from slotgate.testing import Script, ready

if TYPE_CHECKING:
    from slotgate.core.limit import ConcurrencyPolicy

# Time by passes: on a card, on a processor, and as measured on a shared virtual machine.
CARD = Pace.linear(0.015, 0.0012, slots=8)
PROCESSOR = Pace.linear(0.060, 0.030, slots=8)
MEASURED = Pace.curve(
    {1: 43, 2: 28, 3: 17, 4: 16, 6: 8.7, 8: 9.7, 12: 6.8, 16: 5.5},
    slots=16,
)
# Four write 180 tokens a second together, and more write fewer.
KNEE = Pace.curve({1: 50, 2: 48, 3: 46, 4: 45, 5: 30, 6: 24, 8: 17}, slots=8)
REPORT_TOKENS = 16


def everybody(now: float) -> int:
    return 1000


def rising_and_falling(now: float) -> int:
    """One more every twenty seconds, and from the start again."""
    return 1 + int(now / 20) % 16


def up_and_down(now: float) -> int:
    """All numbers of eight slots are seen within forty seconds, again and again."""
    return 1 + int(now / 5) % 8


def lives(
    policy: ConcurrencyPolicy,
    pace: Pace,
    *,
    noise: float = 0.0,
    seconds: float = 300.0,
    demand: Callable[[float], int] = rising_and_falling,
    gaps: GapTable | None = None,
    seed: int = 7,
    half_speed_at: float = inf,
) -> list[tuple[float, int]]:
    """Let as many write as the limit allows, and return each change of the limit."""
    dice = random.Random(seed)
    gaps = gaps or GapTable()
    slots = len(pace.steps) - 1
    now, limit = 0.0, policy.limit(slots, gaps, 0.0)
    changes = [(now, limit)]
    while now < seconds:
        writing = min(limit, demand(now), slots)
        step = pace.steps[writing] * (2 if now >= half_speed_at else 1)
        now += REPORT_TOKENS * step
        for _ in range(writing):
            gap = step * dice.uniform(1 - noise, 1 + noise)
            gaps.observe(writing, gap, tokens=REPORT_TOKENS, now=now)
        limit = policy.limit(slots, gaps, now)
        if limit != changes[-1][1]:
            changes.append((now, limit))
    return changes


def seen(pace: Pace, *numbers: int, now: float = 0.0, tokens: int = 512) -> GapTable:
    """A table in which those numbers were seen, and no others."""
    gaps = GapTable()
    for number in numbers:
        gaps.observe(number, pace.steps[number], tokens=tokens, now=now)
    return gaps


# The table.


def test_a_gap_is_a_median_which_stalls_do_not_move() -> None:
    gaps = GapTable()
    for gap in (0.1, 5.0, 0.1, 0.1, 5.0, 0.1, 0.1, 5.0, 0.1):
        gaps.observe(2, gap, tokens=1, now=0)
        assert gaps.gap(2) in {0.1, (0.1 + 5.0) / 2}
    assert gaps.gap(2) == 0.1


def test_a_gap_follows_what_is_seen_later() -> None:
    gaps = GapTable()
    for _ in range(9):
        gaps.observe(2, 0.1, tokens=1, now=0)
    for _ in range(9 * 20):
        gaps.observe(2, 0.2, tokens=1, now=0)
    assert gaps.gap(2) == pytest.approx(0.2, rel=0.05)


def test_noise_of_a_fifth_moves_a_gap_by_a_twentieth_at_most() -> None:
    dice = random.Random(3)
    gaps = GapTable()
    for place in range(9 * 300):
        gaps.observe(2, dice.uniform(0.08, 0.12), tokens=1, now=0)
        if place > 9 * 20:
            assert gaps.gap(2) == pytest.approx(0.1, rel=0.05)


def test_of_a_number_that_was_not_seen_the_next_one_speaks() -> None:
    gaps = GapTable()
    assert gaps.gap(3) is None
    for number, gap in ((2, 0.2), (4, 0.4), (9, 0.9)):
        gaps.observe(number, gap, tokens=10, now=number)
    assert [gaps.gap(n) for n in (1, 2, 3, 4, 8, 20)] == [0.2, 0.2, 0.2, 0.4, 0.9, 0.9]
    assert gaps.seen_at(4) == 4
    assert gaps.known(tokens=10) == {2: 0.2, 4: 0.4, 9: 0.9}
    assert gaps.known(tokens=11) == {}


def test_what_is_forgotten_was_never_seen() -> None:
    gaps = seen(CARD, 1, 2)
    gaps.forget(2)
    gaps.forget(2)
    assert gaps.known() == {1: CARD.steps[1]}
    assert gaps.gap(2) == CARD.steps[1]
    gaps.observe(2, 9.0, tokens=1, now=0)
    assert gaps.gap(2) == 9.0
    with pytest.raises(KeyError):
        gaps.seen_at(5)


# Speeds.


def test_the_reading_speed_is_of_the_last_twenty_thousand_tokens() -> None:
    speeds = Speeds()
    assert speeds.prefill is None
    speeds.read(1000, 1.0)
    assert speeds.prefill == 1000
    speeds.read(10_000, 5.0)
    assert speeds.prefill == pytest.approx((500 + 10_000) / (0.5 + 5))
    speeds.read(30_000, 10.0)
    assert speeds.prefill == 3000


@pytest.mark.parametrize(("tokens", "seconds"), [(31, 1.0), (1000, 0.0), (1000, -1.0), (0, 0.0)])
def test_too_short_a_prompt_says_nothing_of_the_reading_speed(tokens: int, seconds: float) -> None:
    speeds = Speeds()
    speeds.read(tokens, seconds)
    assert speeds.prefill is None


def test_a_request_holds_its_slot_while_it_reads_and_writes() -> None:
    speeds = Speeds()
    assert speeds.seconds(input_tokens=100, output_tokens=10, sequences=4) is None
    speeds.gaps.observe(4, 0.1, tokens=1, now=0)
    assert speeds.seconds(input_tokens=100, output_tokens=10, sequences=4) == pytest.approx(1)
    speeds.read(500, 1.0)
    assert speeds.seconds(input_tokens=100, output_tokens=10, sequences=4) == pytest.approx(1.2)


# The limit by the table.


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_on_a_card_all_slots_are_worth_using(noise: float) -> None:
    assert [limit for _, limit in lives(GapTableLimit(), CARD, noise=noise)] == [8]


def test_on_a_processor_the_last_slot_may_bring_nothing() -> None:
    """Seven slots give 97 % of what eight give."""
    assert [limit for _, limit in lives(GapTableLimit(), PROCESSOR)] == [8, 7]


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_where_more_slots_are_slower_than_four_times_one_they_are_not_used(noise: float) -> None:
    """As measured, b / gap(b) is 43, 55, 51, 66, 52, 78: not monotone, and noisy."""
    changes = lives(GapTableLimit(), MEASURED, noise=noise, seconds=390)
    assert changes[0] == (0.0, 16)
    assert changes[-1][1] == 4
    assert len(changes) <= 3


def limit_at(changes: list[tuple[float, int]], time: float) -> int:
    return next(limit for since, limit in reversed(changes) if since <= time)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("pace", [CARD, PROCESSOR, KNEE], ids=["card", "processor", "knee"])
def test_gaps_that_are_off_by_a_fifth_move_a_limit_twice_in_a_quarter_of_an_hour(
    pace: Pace, seed: int
) -> None:
    policy = GapTableLimit()
    changes = lives(policy, pace, noise=0.2, seconds=900, demand=up_and_down, seed=seed)
    assert sum(since > 120 for since, _ in changes) <= 2


@pytest.mark.parametrize("noise", [0.1, 0.2, 0.3])
def test_a_knee_is_found_within_two_minutes_and_kept(noise: float) -> None:
    changes = lives(GapTableLimit(), KNEE, noise=noise, seconds=600, demand=up_and_down)
    assert limit_at(changes, 120) == 4
    assert changes[-1][0] <= 120


def test_a_server_of_half_the_speed_has_its_limit_lowered() -> None:
    """60 + 30 b <= 250 ms: six; of twice that, two."""
    policy = GapTableLimit(0.25)
    changes = lives(
        policy, PROCESSOR, noise=0.2, seconds=900, demand=up_and_down, half_speed_at=400
    )
    assert limit_at(changes, 400) == 6
    assert limit_at(changes, 520) < 6
    assert limit_at(changes, 700) in {2, 3}


def test_a_server_of_half_the_speed_keeps_its_knee() -> None:
    policy = GapTableLimit()
    changes = lives(policy, KNEE, noise=0.2, seconds=900, demand=up_and_down, half_speed_at=300)
    assert changes[-1][0] < 300 + 200
    assert changes[-1][1] == 4


def test_the_error_of_a_gap_is_that_of_the_mean_of_its_medians() -> None:
    dice = random.Random(5)
    off, errors = [], []
    for _ in range(300):
        gaps = GapTable()
        for _ in range(9 * 30):
            gaps.observe(2, dice.uniform(0.8, 1.2), tokens=1, now=0)
        off.append((gaps.known()[2] - 1) ** 2)
        errors.append(gaps.error(2) ** 2)
    assert fmean(errors) == pytest.approx(fmean(off), rel=0.25)


def test_of_one_median_no_error_is_known() -> None:
    gaps = GapTable()
    assert gaps.error(2) == 0
    for _ in range(9):
        gaps.observe(2, 0.1, tokens=1, now=0)
    assert gaps.error(2) == 0


def test_what_was_tried_in_vain_is_tried_again_after_twice_as_long() -> None:
    changes = lives(GapTableLimit(), MEASURED, seconds=3200)
    tries = [since for since, limit in changes if limit == 5]
    assert len(tries) == 2
    assert 1150 < tries[1] - tries[0] < 1350


def test_what_was_seen_beyond_the_limit_is_tried_again_after_ten_minutes_one_by_one() -> None:
    changes = lives(GapTableLimit(), MEASURED, seconds=1100)
    since, limit = changes[1]
    assert limit == 4
    # It was last seen before the limit fell.
    again, tried = changes[2]
    assert tried == 5
    assert 540 < again - since < 600
    after, fallen = changes[3]
    assert fallen == 4
    assert after - again < 60
    assert {limit for _, limit in changes[1:]} == {4, 5}


def test_a_server_that_becomes_faster_gets_its_slots_back() -> None:
    policy, gaps = GapTableLimit(), GapTable()
    changes = lives(policy, MEASURED, seconds=390, gaps=gaps)
    assert changes[-1][1] == 4
    faster = Pace.linear(0.023, 0.0001, slots=16)
    now, limit = 390.0, 4
    while now < 390 + 12 * 320 and limit < 16:
        now += REPORT_TOKENS * faster.steps[limit]
        for number in range(1, limit + 1):
            gaps.observe(number, faster.steps[number], tokens=REPORT_TOKENS, now=now)
        limit = policy.limit(16, gaps, now)
    assert limit == 16


def test_a_target_is_kept() -> None:
    limits = [limit for _, limit in lives(GapTableLimit(0.2), PROCESSOR)]
    assert limits == sorted(limits, reverse=True)
    # 60 + 30 b <= 200 ms.
    assert limits[-1] == 4


def test_a_target_that_even_one_misses_leaves_one() -> None:
    changes = lives(GapTableLimit(0.001), PROCESSOR)
    assert changes[-1][1] == 1


def test_a_lower_limit_is_not_believed_at_once() -> None:
    policy = GapTableLimit(0.1)
    gaps = seen(PROCESSOR, 1, 2)
    assert policy.limit(8, seen(PROCESSOR, 1), 0) == 8
    found = [policy.limit(8, gaps, now) for now in (4.9, 5, 9, 10, 14.9, 15)]
    assert found == [8, 8, 8, 8, 8, 1]


def test_between_two_lower_ones_a_limit_that_is_not_lower_starts_the_count_anew() -> None:
    policy = GapTableLimit(0.1)
    slow, fast = seen(PROCESSOR, 1, 2), seen(CARD, 1, 2)
    assert [policy.limit(8, g, 5.0 * n) for n, g in enumerate([fast, slow, slow, fast])] == [8] * 4
    assert [policy.limit(8, slow, 20.0 + 5 * n) for n in range(3)] == [8, 8, 1]


def test_too_little_that_was_seen_counts_for_nothing() -> None:
    policy = GapTableLimit(0.1)
    gaps = seen(PROCESSOR, 1, 2, tokens=511)
    assert [policy.limit(8, gaps, 5.0 * n) for n in range(5)] == [8] * 5


def test_a_limit_that_nobody_reaches_stays() -> None:
    """Five minutes on nothing was seen of four: then it is not known what five would be worth."""
    policy = GapTableLimit(0.2)
    gaps = seen(PROCESSOR, 1, 2, 6, 7, 8)
    limits = [policy.limit(8, gaps, 5.0 * n) for n in range(200)]
    assert limits[:3] == [5, 5, 5]
    assert set(limits) == {5}


def test_more_or_fewer_slots_are_looked_at_at_once() -> None:
    policy = GapTableLimit()
    gaps = GapTable()
    assert [policy.limit(n, gaps, 0.0) for n in (8, 4, 12, 0, 3)] == [8, 4, 12, 0, 3]


# By additive increase and multiplicative decrease.


def test_aimd_falls_by_a_fifth_where_the_gap_is_too_long_and_rises_by_one_elsewhere() -> None:
    policy = AimdLimit(0.25)
    gaps = seen(PROCESSOR, *range(1, 9))
    limits = [policy.limit(8, gaps, 5.0 * n) for n in range(6)]
    # 60 + 30 b <= 250: six are fast enough, seven are not.
    assert limits == [6, 7, 5, 6, 7, 6]


def test_aimd_moves_every_five_seconds_at_most() -> None:
    policy = AimdLimit(0.01)
    gaps = seen(PROCESSOR, *range(1, 9))
    assert [policy.limit(8, gaps, now) for now in (0, 1, 4.9, 5)] == [6, 6, 6, 5]


def test_aimd_by_itself_allows_four_times_the_gap_of_one() -> None:
    policy = AimdLimit()
    gaps = seen(MEASURED, *range(1, 17))
    limits = [policy.limit(16, gaps, 5.0 * n) for n in range(60)]
    assert max(limits[20:]) <= 6
    assert min(limits[20:]) >= 4


def test_without_a_gap_aimd_has_no_reason_to_fall() -> None:
    policy = AimdLimit(0.001)
    assert [policy.limit(4, GapTable(), 5.0 * n) for n in range(4)] == [4] * 4


# Contracts, for all of them.


@pytest.mark.parametrize("name", CONCURRENCY)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 12), st.integers(1, 16), st.floats(1e-4, 10.0), st.floats(0.0, 400.0)
        ),
        max_size=30,
    )
)
@settings(max_examples=40, deadline=None)
def test_a_limit_is_at_least_one_and_at_most_all(
    name: str, events: list[tuple[int, int, float, float]]
) -> None:
    policy, gaps, now = CONCURRENCY[name](), GapTable(), 0.0
    for slots, writing, gap, later in events:
        now += later
        gaps.observe(writing, gap, tokens=600, now=now)
        limit = policy.limit(slots, gaps, now)
        assert min(1, slots) <= limit <= slots


@pytest.mark.parametrize("name", CONCURRENCY)
def test_without_anything_seen_all_slots_are_used(name: str) -> None:
    assert [CONCURRENCY[name]().limit(n, GapTable(), 0.0) for n in (0, 1, 8)] == [0, 1, 8]


@pytest.mark.parametrize("name", CONCURRENCY)
def test_a_limit_does_not_depend_on_how_long_requests_take(name: str) -> None:
    """Answers of 10 and of 10,000 tokens at the same gap: the limit is the same."""
    found = set()
    for tokens in (600, 60_000):
        policy = CONCURRENCY[name]()
        gaps = seen(CARD, *range(1, 9), tokens=tokens)
        found.add(tuple(policy.limit(8, gaps, 5.0 * n) for n in range(9)))
    assert found == {(8,) * 9}


def test_fixed_is_all_slots_however_slow() -> None:
    assert FixedLimit().limit(8, seen(PROCESSOR, *range(1, 9)), 0.0) == 8


# Through the scheduler.


def script_with_limit_two(slots: int = 6) -> Script:
    """Where two write at 0.1 s and three at 10 s a token."""
    script = Script(
        ready("left", slots=slots), policies=Policies.named(tpot_target=1.0, admission="expiry")
    )
    script.run("""
        0    submit a                    -> granted a on left
        0    submit b                    -> granted b on left
        0    charge a output=1
        0    charge b output=1
        60   charge a output=600
        60   submit c                    -> granted c on left
        60   charge c output=1
        60   charge a output=1
        6060 charge a output=600
        6066 charge a output=0
        6072 charge a output=0
        6078 charge a output=0
    """)
    assert script.scheduler.snapshot().deployment("left").limit == 2
    return script


def test_the_limit_is_kept_by_the_scheduler() -> None:
    script_with_limit_two().run("""
        6079 submit d
        6080 leave a
        6080 leave b                     -> granted d on left
    """)


def test_who_is_wider_than_the_limit_still_runs_while_it_is_not_reached() -> None:
    script = script_with_limit_two().run("""
        6079 submit wide width=3
        6080 leave a
        6080 leave b                     -> granted wide on left
        6080 submit other width=4
        6081 leave c
        6082 leave wide                  -> granted other on left
    """)
    assert script.scheduler.snapshot().deployment("left").limit == 2


def test_who_is_wider_than_the_limit_waits_like_others_when_it_is_reached() -> None:
    script_with_limit_two(slots=9).run("""
        6080 leave a
        6080 leave b
        6080 submit d                    -> granted d on left
        6080 submit wide width=3
        6081 leave c                     -> granted wide on left
    """)
