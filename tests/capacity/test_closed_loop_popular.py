"""Plans of popular models at their real size, with llama.cpp's own micro-batch, and their waste.

The waste of a plan is the share of its budget that the server leaves unused.  The budget is for
everything: weights, context, scratch and outputs.  It binds: there is less room than the model's
context could fill.  Since weights are known exactly, the share of the *room*, which is what the
weights leave of the budget, is the harder measure; it is held to twice as much.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

import pytest

from slotgate.capacity import Settings
from slotgate.capacity.compute import compute_bytes
from tests.capacity.real_models import POPULAR
from tests.capacity.real_server import run_popular, start_one, waste_of_room
from tests.capacity.tiny_models import write_model
from tests.capacity.truth import meta_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.capacity.closed_loop import Outcome

pytestmark = [pytest.mark.llama, pytest.mark.process]

MiB = 1 << 20
# llama.cpp prints two places of a MiB.
ROUNDING = 0.005
# One of the wishes for each model, so that the tests stay short; the benchmark takes all.
WISHES = {name: (number % 4,) for number, name in enumerate(POPULAR)}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Outcome]]:
    directory = tmp_path_factory.mktemp("popular")
    return {name: run_popular(name, directory, wishes) for name, wishes in WISHES.items()}


@pytest.mark.parametrize("name", POPULAR)
def test_a_started_plan_of_a_real_size_is_what_was_planned(
    outcomes: dict[str, list[Outcome]], name: str
) -> None:
    assert len(outcomes[name]) == 1
    for outcome in outcomes[name]:
        plan = outcome.plan
        assert outcome.error == ""
        planned = plan.usage.context_bytes / MiB
        assert abs(planned - outcome.context_mib) <= ROUNDING * outcome.context_buffers + 1e-9
        assert abs(plan.usage.weights.total / MiB - outcome.mib["model"]) <= ROUNDING + 1e-9
        assert [slot["n_ctx"] for slot in outcome.slots] == [plan.ctx_per_slot] * plan.slots


def test_no_plan_of_a_real_size_is_over_its_budget_and_little_is_left_unused(
    outcomes: dict[str, list[Outcome]],
) -> None:
    every = [outcome for each in outcomes.values() for outcome in each]
    assert all(outcome.plan.fits for outcome in every)
    assert [o.plan.command for o in every if o.used > o.budget] == []
    assert median(outcome.waste for outcome in every) <= 0.05
    assert median(waste_of_room(outcome) for outcome in every) <= 0.10


# An indexer by blocks gathers keys and values for every slot that writes one token.
@pytest.mark.parametrize(("slots", "n_ubatch"), [(4, 64), (8, 128), (32, 512)])
def test_scratch_of_many_slots_with_an_indexer_by_blocks_is_within_what_is_planned(
    tmp_path: Path, slots: int, n_ubatch: int
) -> None:
    path = write_model("minimax-m3", tmp_path)
    words = f"-c {256 * slots} -np {slots} -ub {n_ubatch} -fa on --fit off"
    started = start_one(("-m", str(path), *words.split()))
    settings = Settings(n_ctx=256 * slots, n_seq=slots, n_ubatch=n_ubatch, unified=False)
    assert started.compute_mib <= compute_bytes(meta_of("minimax-m3"), settings).planned / MiB
