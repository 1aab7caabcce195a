"""Prompts are estimated by their bytes, better with each one that was counted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slotgate.runtime.prompt_sizes import OVERHEAD_TOKENS, PromptSize, PromptSizes


def learned(sizes: PromptSizes, tenant: str, *, bytes_per_token: float, prompts: int = 40) -> None:
    for _ in range(prompts):
        sizes.learn(tenant, "m", 4000, round(4000 / bytes_per_token) + OVERHEAD_TOKENS)


def test_an_unknown_prompt_has_a_token_for_four_bytes_and_a_template() -> None:
    size = PromptSizes().estimate("t", "m", 4000)
    assert size.tokens == round((4000 / 4 + OVERHEAD_TOKENS) * 1.05) + 1
    assert size.low < 600
    assert size.high > 1500


def test_a_tenants_own_prompts_say_more_than_those_of_others() -> None:
    sizes = PromptSizes()
    learned(sizes, "prose", bytes_per_token=5.0)
    learned(sizes, "code", bytes_per_token=2.0)
    assert 800 <= sizes.estimate("prose", "m", 4000).tokens <= 900
    assert 2000 <= sizes.estimate("code", "m", 4000).tokens <= 2200


def test_a_new_tenant_is_taken_for_the_average_of_the_model() -> None:
    sizes = PromptSizes()
    learned(sizes, "code", bytes_per_token=2.0)
    assert 2000 <= sizes.estimate("new", "m", 4000).tokens <= 2200
    assert sizes.estimate("new", "other", 4000).tokens < 1100


def test_one_odd_prompt_does_not_speak_for_a_tenant() -> None:
    sizes = PromptSizes()
    learned(sizes, "others", bytes_per_token=4.0)
    sizes.learn("new", "m", 100, 100)
    assert sizes.estimate("new", "m", 4000).tokens < 1300


def test_what_is_seen_often_is_known_closely() -> None:
    sizes = PromptSizes()
    before = sizes.estimate("t", "m", 4000)
    learned(sizes, "t", bytes_per_token=4.0, prompts=80)
    after = sizes.estimate("t", "m", 4000)
    assert after.high - after.low < (before.high - before.low) / 3
    assert after.low < 1008 < after.high


def test_what_has_changed_is_learned_anew() -> None:
    sizes = PromptSizes()
    learned(sizes, "t", bytes_per_token=5.0)
    learned(sizes, "t", bytes_per_token=2.5, prompts=60)
    assert 1550 <= sizes.estimate("t", "m", 4000).tokens <= 1800


def test_no_more_than_a_number_of_keys_is_kept_and_the_longest_unused_goes() -> None:
    sizes = PromptSizes(max_keys=10)
    for number in range(100):
        learned(sizes, f"tenant-{number}", bytes_per_token=2.0, prompts=3)
    assert len(sizes) == 10
    assert sizes.estimate("tenant-99", "m", 4000).tokens > 1900


def test_nothing_is_learned_of_what_was_not_counted_or_has_no_text() -> None:
    sizes = PromptSizes()
    sizes.learn("t", "m", 0, 100)
    sizes.learn("t", "m", 100, 0)
    assert len(sizes) == 0
    assert sizes.estimate("t", "m", 0) == PromptSize(0, 0, 0)


@given(
    st.lists(st.tuples(st.integers(1, 100_000), st.integers(1, 100_000)), max_size=30),
    st.integers(1, 1_000_000),
)
def test_an_estimate_lies_between_its_bounds_and_is_safe(
    prompts: list[tuple[int, int]], text_bytes: int
) -> None:
    sizes = PromptSizes()
    for size, tokens in prompts:
        sizes.learn("t", "m", size, tokens)
    estimate = sizes.estimate("t", "m", text_bytes)
    assert 1 <= estimate.low <= estimate.tokens <= estimate.high
