"""Plans, started on a real llama.cpp by their own commands, and what became of them."""

from __future__ import annotations

from statistics import median

import pytest

from tests.capacity.closed_loop import MODELS, Outcome, plans_of, run

pytestmark = [pytest.mark.llama, pytest.mark.process]

MiB = 1 << 20
# llama.cpp prints two places of a MiB.
ROUNDING = 0.005


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Outcome]]:
    directory = tmp_path_factory.mktemp("models")
    return {name: run(plans_of(name, directory)) for name in MODELS}


@pytest.mark.parametrize("name", MODELS)
def test_a_started_plan_has_the_context_and_the_slots_that_were_planned(
    outcomes: dict[str, list[Outcome]], name: str
) -> None:
    assert len(outcomes[name]) == 5
    for outcome in outcomes[name]:
        plan = outcome.plan
        assert outcome.error == ""
        planned = plan.usage.context_bytes / MiB
        assert abs(planned - outcome.context_mib) <= ROUNDING * outcome.context_buffers + 1e-9
        assert [slot["n_ctx"] for slot in outcome.slots] == [plan.ctx_per_slot] * plan.slots
        assert abs(plan.usage.weights.total / MiB - outcome.mib["model"]) <= ROUNDING + 1e-9


def test_no_plan_takes_more_than_its_budget_and_little_is_left_unused(
    outcomes: dict[str, list[Outcome]],
) -> None:
    every = [outcome for each in outcomes.values() for outcome in each]
    assert all(outcome.plan.fits for outcome in every)
    over = [o.plan.command for o in every if o.used > o.budget + ROUNDING * MiB * len(o.mib)]
    assert over == []
    assert median(outcome.waste for outcome in every) <= 0.05
