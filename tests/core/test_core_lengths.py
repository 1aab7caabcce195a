"""How long answers are, from what was seen: against the samples themselves."""

from __future__ import annotations

import random
from math import inf, sqrt
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotgate.core.lengths import Histogram, Lengths, Residual
from slotgate.core.ticket import Ticket

# A bucket is a tenth wide, and a token at least.
ERROR = 0.05

lengths_seen = st.lists(st.integers(1, 5000), min_size=1, max_size=60)


def lognormal(count: int, *, mu: float = 5.0, sigma: float = 0.9, seed: int = 1) -> list[int]:
    dice = random.Random(seed)
    return [max(1, round(dice.lognormvariate(mu, sigma))) for _ in range(count)]


def histogram_of(samples: list[int]) -> Histogram:
    histogram = Histogram()
    for sample in samples:
        histogram.add(sample)
    return histogram


def ticket(tenant: str = "chat", output: int | None = None) -> Ticket:
    return Ticket(id="t", arrival=0, deadline=9, tenant=tenant, output_tokens=output)


def lengths_of(samples: list[int], *, tenant: str = "chat") -> Lengths:
    lengths = Lengths()
    for sample in samples:
        lengths.observe(tenant, sample, input_tokens=100)
    return lengths


# Quantiles.


@pytest.mark.parametrize("part", [0.5, 0.9, 0.95, 0.99])
@pytest.mark.parametrize(("mu", "sigma"), [(5.02, 0.86), (2.79, 0.85), (6.5, 0.5)])
def test_a_quantile_is_good_to_five_per_cent(mu: float, sigma: float, part: float) -> None:
    samples = lognormal(400, mu=mu, sigma=sigma)
    exact = sorted(samples)[int(part * len(samples))]
    quantile = histogram_of(samples).quantile(part)
    # Fading shifts the weight to the later samples, a little.
    assert quantile == pytest.approx(exact, rel=2 * ERROR, abs=1)


@given(lengths_seen, st.floats(0.01, 0.99))
@settings(max_examples=60, deadline=None)
def test_a_quantile_lies_between_the_samples_around_it(samples: list[int], part: float) -> None:
    quantile = histogram_of(samples).quantile(part)
    place = part * len(samples)
    ordered = [0, *sorted(samples), 0]
    # Fading is worth less than one sample in so few.
    low = min(s for s in ordered[max(1, int(place) - 1) : int(place) + 3] if s)
    high = max(ordered[max(1, int(place) - 1) : int(place) + 3])
    assert low * (1 - ERROR) - 0.5 <= quantile <= high * (1 + ERROR) + 0.5


@given(lengths_seen, st.floats(0.01, 0.99))
@settings(max_examples=60, deadline=None)
def test_a_bound_cuts_no_more_than_the_rest(samples: list[int], part: float) -> None:
    histogram = histogram_of(samples)
    bound = histogram.bound(part)
    longer = sum(sample > bound for sample in samples)
    # Fading weighs the later ones by a twentieth more at most.
    assert longer <= (1 - part) * len(samples) * 1.05
    assert histogram.quantile(part) <= bound <= histogram.quantile(part) * 1.06 + 1


def test_answers_that_are_all_as_long_are_bounded_by_no_less() -> None:
    for length in (1, 7, 40, 100, 512, 3000):
        assert length <= histogram_of([length] * 30).bound(0.5) <= 1.1 * length


def test_the_longest_and_the_emptiest_answers_have_a_place_too() -> None:
    histogram = histogram_of([0, 10**9])
    assert histogram.quantile(0.1) == 1
    assert histogram.quantile(0.99) > 8e6
    assert histogram.residual(10**9) == Residual(1e9, 0.0)


# What is left of an answer that has so many tokens.


def rest_of(samples: list[int], written: int, bound: float) -> Residual | None:
    """The same from the samples themselves, the later ones weighing a little more."""
    fade = 0.5 ** (1 / 1000)
    rests = [
        (min(sample, bound) - written, fade ** (len(samples) - place))
        for place, sample in enumerate(samples)
        if sample > written
    ]
    weight = sum(each for _, each in rests)
    if not rests or bound <= written:
        return None
    mean = sum(rest * each for rest, each in rests) / weight
    return Residual(mean, sum((rest - mean) ** 2 * each for rest, each in rests) / weight)


@given(lengths_seen, st.integers(0, 4000), st.sampled_from([inf, inf, 50, 700, 3000]))
@settings(max_examples=150, deadline=None)
def test_a_residual_is_that_of_the_samples_but_for_the_buckets(
    samples: list[int], written: int, bound: float
) -> None:
    residual = histogram_of(samples).residual(written, bound)
    if bound <= written:
        assert residual == Residual(0.0, 0.0)
        return
    assert 0 <= residual.mean <= (bound - written) * (1 + 1e-9)
    exact = rest_of(samples, written, bound)
    # Whoever is about as long as what is written may count as ended, or not: then all bets but
    # these are off.
    near = [s for s in samples if abs(s - written) <= written / 10 + 1]
    if exact is not None and not near:
        slack = ERROR * max(samples) + 1
        assert residual.mean == pytest.approx(exact.mean, abs=slack)
        assert residual.spread == pytest.approx(sqrt(exact.variance), abs=slack)
    elif not near and exact is None:
        assert residual == Residual(min(bound - written, max(1, written)), 0.0)


def test_who_has_written_much_will_write_more() -> None:
    """The tail of real answers is heavy."""
    histogram = histogram_of(lognormal(5000, sigma=1.2))
    rests = [histogram.residual(written).mean for written in (0, 200, 500, 1000, 2000)]
    assert rests == sorted(rests)
    assert rests[-1] > 3 * rests[0]


def test_an_answer_that_always_is_as_long_is_nearly_done() -> None:
    """Negative control: where all are alike, what is left shrinks."""
    histogram = histogram_of([512] * 1000)
    for written in (0, 100, 256, 400, 500, 511):
        left = histogram.residual(written)
        assert left.mean == pytest.approx(512 - written, abs=0.05 * 512)
        assert left.spread < 0.05 * 512


def test_longer_than_any_seen_is_taken_to_be_half_done() -> None:
    histogram = histogram_of([100] * 50)
    assert histogram.residual(300) == Residual(300.0, 0.0)
    assert histogram.residual(300, bound=350) == Residual(50.0, 0.0)
    assert histogram.residual(300, bound=200) == Residual(0.0, 0.0)


def test_no_answer_goes_beyond_its_bound() -> None:
    histogram = histogram_of([50] * 50 + [5000] * 50)
    left = histogram.residual(0, bound=100)
    assert left.mean == pytest.approx((50 + 100) / 2, rel=0.05)
    assert left.spread == pytest.approx(25, rel=0.1)


# Old answers fade.


def test_the_weight_of_an_answer_halves_with_each_thousand_that_follow() -> None:
    histogram = histogram_of([10] * 3000 + [1000] * 1000)
    # All before weigh half of what they did: 1442 x (1 - 1/8) / 2 against 1442 / 2.
    long_part = (1 - 0.5) / (1 - 0.5**4)
    mean = long_part * 1000 + (1 - long_part) * 10
    assert histogram.residual(0).mean == pytest.approx(mean, rel=0.05)
    assert histogram.quantile(0.45) == pytest.approx(10, abs=0.5)
    assert histogram.quantile(0.48) == pytest.approx(1000, rel=0.05)


def test_weights_are_scaled_down_before_they_overflow() -> None:
    """A weight doubles in 1,000 answers: 1e9 is reached after 30,000."""
    histogram = histogram_of([70] * 29_800)
    histogram.add(70, is_cut=True)
    for _ in range(5000):
        histogram.add(7)
    assert histogram.seen == 34_801
    part = 0.5**5
    assert histogram.residual(0).mean == pytest.approx(70 * part + 7 * (1 - part), rel=0.05)
    assert histogram.residual(20).mean == pytest.approx(50, abs=4)
    assert histogram.quantile(0.95) == 7


def test_what_was_long_ago_is_forgotten_for_good() -> None:
    histogram = histogram_of([70] + [7] * 31_000)
    assert histogram.residual(20) == Residual(20.0, 0.0)


def test_few_answers_count_at_once_and_many_in_batches() -> None:
    histogram = Histogram()
    for seen in range(1, 8):
        histogram.add(seen)
        assert histogram.residual(0).mean == pytest.approx((1 + seen) / 2, rel=0.01)
    for _ in range(5000):
        histogram.add(10)
    before = histogram.residual(0).mean
    for _ in range(15):
        histogram.add(1000)
    assert histogram.residual(0).mean == before
    histogram.add(1000)
    assert histogram.residual(0).mean > before + 5


# Answers that were cut.


def test_short_bounds_do_not_make_answers_look_short() -> None:
    """Half of all answers were cut at 100; the others show how long they would have been."""
    dice = random.Random(3)
    samples = lognormal(2000, mu=5.5)
    histogram = Histogram()
    for sample in samples:
        bound = 100 if dice.random() < 0.5 else 10_000
        histogram.add(min(sample, bound), is_cut=sample >= bound)
    exact = histogram_of(samples)
    for part in (0.5, 0.9, 0.99):
        assert histogram.quantile(part) == pytest.approx(exact.quantile(part), rel=0.2)
    assert histogram.residual(0).mean == pytest.approx(fmean(samples), rel=0.1)
    # Negative control: taken at face value they look much shorter.
    taken = histogram_of([min(s, 100) if dice.random() < 0.5 else s for s in samples])
    assert taken.residual(0).mean < 0.8 * fmean(samples)


def test_what_is_cut_beyond_all_others_would_have_been_twice_as_long() -> None:
    histogram = Histogram()
    for _ in range(100):
        histogram.add(100, is_cut=True)
    assert histogram.quantile(0.5) == pytest.approx(200, rel=0.06)
    assert histogram.residual(0, bound=100).mean == pytest.approx(100)


def test_a_cut_below_all_others_says_nothing() -> None:
    histogram = histogram_of([1000] * 50)
    for _ in range(50):
        histogram.add(10, is_cut=True)
    assert histogram.quantile(0.01) == pytest.approx(1000, rel=0.05)
    assert histogram.residual(0).mean == pytest.approx(1000, rel=0.05)


@given(st.lists(st.tuples(st.integers(1, 5000), st.booleans()), min_size=1, max_size=40))
@settings(max_examples=100, deadline=None)
def test_cutting_makes_nothing_shorter(samples: list[tuple[int, bool]]) -> None:
    histogram, taken = Histogram(), Histogram()
    for tokens, is_cut in samples:
        histogram.add(tokens, is_cut=is_cut)
        taken.add(tokens)
    for written in (0, 10, 500):
        if any(tokens > 1.2 * written for tokens, _ in samples):
            least = taken.residual(written)
            assert histogram.residual(written).mean >= least.mean * (1 - 1e-6) - 1e-6
    for part in (0.1, 0.5, 0.9):
        assert histogram.quantile(part) >= taken.quantile(part)


# Whose answers.


def test_a_tenant_speaks_for_itself_once_it_was_seen_often_enough() -> None:
    lengths = lengths_of([1000] * 100)
    for seen in range(20):
        assert lengths.mean(ticket("code")) > 800, f"after {seen} answers"
        lengths.observe("code", 10, input_tokens=9)
    assert lengths.mean(ticket("code")) == pytest.approx(10, abs=0.5)
    assert lengths.seen == 120


def test_without_answers_an_answer_is_typical_within_its_bound() -> None:
    lengths = lengths_of([1000] * 19)
    assert lengths.of(ticket()) is None
    assert lengths.typical_total() == 0.0
    assert lengths.mean(ticket()) == 256
    assert lengths.mean(ticket(output=40)) == 40
    assert lengths.residual(ticket(), 200).mean == 200
    assert lengths.residual(ticket(), 100).mean == 156
    assert lengths.residual(ticket(output=110), 100).mean == 10
    assert lengths.residual(ticket(), 1000, bound=1200).mean == 200
    assert lengths.residual(ticket(), 1000, bound=900).mean == 0


def test_a_ticket_writes_no_more_than_the_client_or_we_allow() -> None:
    lengths = lengths_of([1000] * 100)
    assert lengths.mean(ticket(output=100)) == pytest.approx(100)
    assert lengths.residual(ticket(output=100), 0, bound=30).mean == pytest.approx(30)
    assert lengths.residual(ticket(output=30), 0, bound=100).mean == pytest.approx(30)


def test_a_typical_request_is_its_prompt_and_its_answer() -> None:
    assert lengths_of([1000] * 20).typical_total() == pytest.approx(1100, rel=0.05)


def test_of_too_many_tenants_those_seen_longest_ago_are_forgotten() -> None:
    lengths = Lengths(most_tenants=3)
    for tenant in ("a", "b", "c"):
        for _ in range(20):
            lengths.observe(tenant, 10, input_tokens=1)
    lengths.observe("a", 10, input_tokens=1)
    everybody = lengths.of(ticket("nobody"))
    lengths.observe("d", 10, input_tokens=1)
    assert lengths.of(ticket("b")) is everybody
    assert lengths.of(ticket("a")) is not everybody
    assert lengths.of(ticket("c")) is not everybody


def test_a_mean_that_was_asked_for_moves_with_what_comes_after() -> None:
    histogram = Histogram()
    for tokens in (10, 1000):
        for _ in range(400):
            histogram.add(tokens)
        assert histogram.mean() == histogram.residual(0).mean
    assert histogram.mean() > 100
