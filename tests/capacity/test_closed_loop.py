"""Plans, started on a real llama.cpp by their own commands, and what became of them."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

import pytest

from slotgate.capacity.devices import by_hand
from slotgate.capacity.header import read_header
from slotgate.capacity.model import model_of_file
from slotgate.capacity.plan import make_plan
from slotgate.capacity.wish import Wish
from tests.capacity.closed_loop import MODELS, Outcome, plans_of, run, start
from tests.capacity.tiny_models import write_model

if TYPE_CHECKING:
    from pathlib import Path

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


# What flags become: slots, tokens of each, tokens of the pool.
FLAGS = (
    ({"ctx_size": 8192, "slots": 4}, (4, 2048, 8192)),
    ({"ctx_size": 8192, "slots": 4, "unified": True}, (4, 8192, 8192)),
    ({"ctx_size": 8192, "slots": 3}, (3, 2816, 8448)),
    ({"ctx_size": 1000, "slots": 4}, (4, 256, 1024)),
    ({"ctx_per_slot": 3000, "slots": 4}, (4, 3072, 12288)),
    ({"ctx_size": 65536, "slots": 1}, (1, 32768, 65536)),
)


def test_flags_become_the_slots_that_llama_server_makes_of_them(tmp_path: Path) -> None:
    path = write_model("llama", tmp_path)
    model = model_of_file(read_header(path), name="llama", source=str(path))
    host = by_hand((), host_bytes=1 << 30)
    plans = [make_plan(model, host, Wish(**asked)) for asked, _ in FLAGS]  # type: ignore[arg-type]
    answers, log = start([plan.command for plan in plans])
    for plan, answer, (_, (slots, tokens, pool)) in zip(plans, answers, FLAGS, strict=True):
        assert (plan.slots, plan.ctx_per_slot, plan.usage.memory.n_ctx) == (slots, tokens, pool)
        assert [slot["n_ctx"] for slot in answer["slots"]] == [tokens] * slots
        assert answer["props"]["total_slots"] == slots
    for _, (_, _, pool) in FLAGS:
        assert f"n_ctx                 = {pool}" in log
