"""The slots and the context that a user gets who asks for nothing."""

from __future__ import annotations

import pytest

from slotgate.backends.default_plan import plan_default


@pytest.mark.parametrize(
    ("parallel", "ctx_size", "trained", "plan"),
    [
        (None, None, None, (4, 16384)),
        (None, None, 32768, (4, 16384)),
        (None, None, 2048, (4, 8192)),
        (8, None, 32768, (8, 32768)),
        (None, 8192, 32768, (4, 8192)),
        (2, 6000, None, (2, 6000)),
        (None, None, 1000, (4, 4096)),
    ],
)
def test_what_is_not_asked_for_is_chosen(
    parallel: int | None, ctx_size: int | None, trained: int | None, plan: tuple[int, int]
) -> None:
    assert plan_default(parallel, ctx_size, trained)[:2] == plan


def test_the_choice_is_explained_with_the_flags_that_change_it() -> None:
    assert plan_default(None, None, 8192)[2] == (
        "4 slots of 4,096 tokens each (the model was trained for 8,192); "
        "change it with --parallel and --ctx-size"
    )
    assert plan_default(1, 9000, None)[2].startswith("1 slot of 9,000 tokens (9,000 tokens as")


def test_more_context_than_the_model_can_use_is_said() -> None:
    assert "more than it can use" in plan_default(2, 40000, 8192)[2]
