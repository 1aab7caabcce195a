"""What a plan refuses, a real llama.cpp refuses or aborts on; a step beside it, both agree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from slotgate.capacity import PlanRefused, Settings, context_memory, read_header
from tests.capacity.real_server import start_one
from tests.capacity.tiny_models import write_model
from tests.capacity.truth import meta_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.llama, pytest.mark.process]


class Case(NamedTuple):
    """A model, and what is refused of it; `instead` is the nearest that is not.

    `reason` are our words, `said` llama.cpp's.
    """

    model: str
    refused: dict[str, Any]
    instead: dict[str, Any]
    reason: str
    said: str


Q8 = {"type_k": "q8_0", "type_v": "q8_0"}
HEADS = "block size 32 does not divide n_embd_head_k"
CASES = (
    Case(
        "llama", {**Q8, "flash_attn": "off"}, Q8,
        "needs flash attention", "quantized V cache requires flash_attn",
    ),
    Case("falcon", Q8, {}, "head size 16", HEADS),
    Case("phi3", Q8, {}, "head size 16", HEADS),
    Case("minicpm3", {"type_k": "q5_0"}, {}, "head size 48", HEADS),
    Case(
        "falcon", {"type_k": "q8_0", "flash_attn": "off"}, {"flash_attn": "off"},
        "a row of 16", "GGML_ASSERT",
    ),
    Case(
        "deepseek2-mla", {"type_k": "q8_0"}, Q8,
        "must be the same", "does not support different K (q8_0) and V (f16) cache types",
    ),
    Case("minimax-01", {"n_seq": 3}, {"n_seq": 4}, "do not divide a batch", "GGML_ASSERT"),
    Case(
        "llama", {"n_batch": 2, "n_ubatch": 2}, {"n_batch": 4, "n_ubatch": 4},
        "smaller than 4 slots", "GGML_ASSERT(n_outputs_max",
    ),
)  # fmt: skip
_FLAGS = {
    "n_ctx": "-c",
    "n_seq": "-np",
    "type_k": "-ctk",
    "type_v": "-ctv",
    "flash_attn": "-fa",
    "n_batch": "-b",
    "n_ubatch": "-ub",
}


def _words(path: Path, asked: dict[str, Any]) -> tuple[str, ...]:
    pairs = ((_FLAGS[name], str(value)) for name, value in asked.items())
    return ("-m", str(path), *(word for pair in pairs for word in pair), "--fit", "off")


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.model}: {case.reason}")
def test_what_is_refused_does_not_start_and_the_nearest_that_is_not_does(
    tmp_path: Path, case: Case
) -> None:
    path = write_model(case.model, tmp_path)
    meta = read_header(path).meta
    always: dict[str, Any] = {"n_ctx": 4096, "n_seq": 4, "flash_attn": "on"}
    refused, instead = always | case.refused, always | case.instead
    with pytest.raises(PlanRefused, match=case.reason):
        context_memory(meta, Settings(unified=False, **refused))
    assert case.said in start_one(_words(path, refused)).failure
    memory = context_memory(meta, Settings(unified=False, **instead))
    started = start_one(_words(path, instead))
    assert (started.failure, started.n_ctx) == ("", memory.n_ctx)


# Slots and micro-batch -> too many nodes of minimax-m3's graph for llama.cpp.
TOO_MANY = ((17, 32), (48, 64), (48, 128))


def _asked(slots: int, n_ubatch: int) -> dict[str, Any]:
    return {"n_ctx": slots * 256, "n_seq": slots, "n_ubatch": n_ubatch, "flash_attn": "on"}


@pytest.mark.parametrize(("slots", "n_ubatch"), TOO_MANY)
def test_more_slots_than_a_graph_has_room_for_abort_and_are_refused(
    tmp_path: Path, slots: int, n_ubatch: int
) -> None:
    path = write_model("minimax-m3", tmp_path)
    started = start_one(_words(path, _asked(slots, n_ubatch)))
    assert "GGML_ASSERT(obj_new)" in started.failure
    with pytest.raises(PlanRefused, match="no room for so many"):
        context_memory(meta_of("minimax-m3"), Settings(unified=False, **_asked(slots, n_ubatch)))
