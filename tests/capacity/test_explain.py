"""The arithmetic: every line can be worked out again, and together they make the plan's figures."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import pytest

from slotgate.capacity import read_header
from slotgate.capacity.devices import Device, DeviceKind, DeviceSet, by_hand, keeping_prompts
from slotgate.capacity.explain import explain
from slotgate.capacity.model import model_of_file
from slotgate.capacity.plan import Plan, make_plan
from slotgate.capacity.wish import Wish
from slotgate.errors import PlanRefused
from tests.capacity.plans import (
    CARD_24,
    HOST_64,
    GiB,
    catalog_model,
    model_of_meta,
    plan_of,
    tiny_plan,
)
from tests.capacity.tiny_models import META, write_model
from tests.capacity.truth import CATALOG, meta_of

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

_LINE = re.compile(
    r"  (?P<label>.+?): (?P<text>.+?) = (?P<result>-?[\d,]+) (?P<unit>[a-z ]+)(?P<rest>.*)"
)
_ALLOWED = re.compile(r"(?:[\d\s+*/(),-]|min|ceil|up256)+")
_COMMA = re.compile(r"(?<=\d),(?=\d{3})")


class _Equation(NamedTuple):
    label: str
    text: str
    result: int
    unit: str

    @property
    def terms(self) -> list[int]:
        return [int(term.replace(",", "")) for term in re.findall(r"\d[\d,]*", self.text)]


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def _equations(plan: Plan) -> list[_Equation]:
    lines = [line for line in explain(plan) if " = " in line]
    found = []
    for line in lines:
        match = _LINE.fullmatch(line)
        assert match, line
        result = _number(match["result"])
        found.append(_Equation(match["label"], match["text"], result, match["unit"].strip()))
    return found


def _worked_out(text: str) -> float:
    """Work an expression out; nothing but arithmetic is let through."""
    python = _COMMA.sub("", text).replace(" x ", " * ")
    assert _ALLOWED.fullmatch(python), text
    functions = {"min": min, "ceil": math.ceil, "up256": lambda n: math.ceil(n / 256) * 256}
    value = eval(python, {"__builtins__": {}}, functions)
    assert isinstance(value, int | float)
    return value


def _result(plan: Plan, label: str) -> int:
    found = [one.result for one in _equations(plan) if one.label == label]
    assert len(found) == 1, label
    return found[0]


def _check(plan: Plan) -> None:
    usage, equations = plan.usage, _equations(plan)
    for one in equations:
        assert _worked_out(one.text) == one.result, one
    by_label = {one.label: one for one in equations}
    context = by_label["context"]
    assert context.result == usage.context_bytes
    parts = [size for size in usage.memory.parts.values() if size]
    assert context.terms == (parts or [0])
    # Every term of a sum is the result of a line above it.
    earlier = {one.result for one in equations if one.unit == "bytes" and one is not context}
    assert set(context.terms) <= earlier | {0}
    assert by_label["weights"].result == usage.weights.total
    assert by_label["scratch"].result == usage.compute.total
    assert by_label["scratch, planned"].result == usage.compute.planned
    assert by_label["host, at most"].result == plan.host.total
    for use in usage.devices:
        if use.used:
            assert by_label[use.name].result == use.used
        if use.left is not None:
            assert by_label[f"{use.name}, left"].result == use.left
    assert by_label["micro-batch"].result == usage.memory.size.n_ubatch


@pytest.mark.parametrize("model", CATALOG, ids=[model["name"] for model in CATALOG])
def test_every_line_is_true_and_the_sums_are_the_plans_for_each_popular_model(model: Any) -> None:
    odd = len(model["name"]) % 2 == 1
    wish = Wish(slots=3, ctx_size=50000, unified=odd, type_k="q8_0", type_v="q8_0", n_rs_seq=1)
    _check(make_plan(catalog_model(model["name"]), CARD_24 if odd else HOST_64, wish))


@pytest.mark.parametrize("name", META)
def test_every_line_is_true_for_each_kind_of_model(name: str) -> None:
    for wish in (
        {"slots": 1, "ctx_per_slot": 1024, "flash_attn": "off"},
        {"slots": 2, "ctx_size": 3000, "type_k": "f32", "n_ubatch": 0, "n_rs_seq": 2},
        {"slots": 2, "unified": True, "swa_full": True},
        {"slots": 3, "unified": True, "ctx_per_slot": 2048},
    ):
        try:
            plan = tiny_plan(name, **wish)
        except PlanRefused:
            continue
        _check(plan)


def test_a_token_of_llama_3_1_8b_is_worked_out_factor_by_factor() -> None:
    lines = explain(plan_of("Llama-3.1-8B", slots=4, ctx_per_slot=8192))
    token = next(line for line in lines if "a token:" in line)
    assert "2 x 32 x 8 x 128 x 2 = 131,072 bytes" in token
    assert "keys and values x layers x KV heads x head size x bytes of f16" in token
    assert "  full, for the whole context" in lines
    slots = next(line for line in lines if line.startswith("  full:"))
    assert "131,072 x 8,192 x 4 = 4,294,967,296 bytes" in slots
    assert "4.0 GiB, 4.3 GB" in slots


def test_a_quantised_token_is_worked_out_by_blocks_and_unlike_types_apart() -> None:
    lines = explain(plan_of("Llama-3.1-8B", slots=1, type_k="q8_0", type_v="q8_0"))
    assert any("2 x 32 x 8 x 128 / 32 x 34 = 69,632 bytes a token" in line for line in lines)
    lines = explain(plan_of("Llama-3.1-8B", slots=1, type_k="f16", type_v="q4_0"))
    assert any("keys: 32 x 8 x 128 x 2 = 65,536" in line for line in lines)
    assert any("values: 32 x 8 x 128 / 32 x 18 = 18,432" in line for line in lines)
    assert any("together: 65,536 + 18,432 = 83,968" in line for line in lines)


def test_windows_latent_rows_and_states_have_their_own_arithmetic() -> None:
    gemma = explain(plan_of("Gemma-3-27b", slots=4, ctx_per_slot=8192, unified=True))
    assert any("up256(min(32,768, 1,024 x 4 + 512)) = 4,608 cells" in line for line in gemma)
    latent = explain(plan_of("DeepSeek-V2-Lite", slots=1))
    assert any("a row: 27 x 1 x 576 x 2 = 31,104 bytes a token" in line for line in latent)
    state = explain(plan_of("Qwen3.5-27B", slots=2, n_rs_seq=2))
    assert any("30,720 + 786,432 = 817,152 elements (R + S of a layer)" in line for line in state)
    assert any("817,152 x 4 x 2 x 3 = 19,611,648 bytes" in line for line in state)


def test_a_state_that_is_padded_says_by_how_much() -> None:
    meta = {**meta_of("lfm2"), "lfm2.embedding_length": 67}
    plan = make_plan(model_of_meta(meta), CARD_24, Wish(slots=1))
    _check(plan)
    assert any("x slots + padding" in line for line in explain(plan))


def test_a_context_is_led_back_to_what_was_asked() -> None:
    lines = explain(plan_of("Llama-3.1-8B", ctx_size=8000, slots=3))
    assert "  pool: up256(8,000) = 8,192 tokens" in lines
    assert any("up256(8,192 // 3) = 2,816 tokens" in line for line in lines)
    assert "  all slots: 2,816 x 3 = 8,448 tokens" in lines
    capped = explain(plan_of("Llama-3.1-8B", ctx_size=262144, slots=1))
    assert any("min(262,144, 131,072) = 131,072 tokens (what it can use" in one for one in capped)


def test_a_pool_that_slots_share_says_the_limit_of_each_if_there_is_one() -> None:
    limited = explain(plan_of("Llama-3.1-8B", slots=2, ctx_per_slot=4096, unified=True))
    assert any("8,192 // 2 = 4,096 tokens (its limit in the pool" in line for line in limited)
    shared = explain(plan_of("Llama-3.1-8B", slots=2, ctx_size=8192, unified=True))
    assert not any("limit" in line for line in shared)


def test_what_two_devices_hold_of_the_context_is_added_up() -> None:
    plan = plan_of("Gemma-3-27b", by_hand((24 * GiB, 8 * GiB)), slots=2)
    assert _result(plan, "context on all devices") == plan.usage.context_bytes
    _check(plan)
    assert "context on all devices" not in {
        one.label for one in _equations(plan_of("Gemma-3-27b", slots=2))
    }


def test_a_device_that_is_too_small_is_said_to_lack_what_it_lacks() -> None:
    plan = plan_of("Llama-3.1-8B", slots=64, ctx_per_slot=131072)
    assert _result(plan, "GPU 0, left") < 0
    assert any("it does not fit" in line for line in explain(plan))
    tiny = plan_of(
        "Llama-3.1-8B", by_hand((256 << 20,)), slots=1, ctx_per_slot=256, n_gpu_layers=99
    )
    assert _result(tiny, "GPU 0, room") == 0
    _check(tiny)


def test_unified_memory_and_a_host_that_keeps_prompts_are_added_up_too() -> None:
    apple = Device(name="MTL0", kind=DeviceKind.UNIFIED, total_bytes=24 * GiB, free_bytes=24 * GiB)
    plan = plan_of("Llama-3.1-8B", DeviceSet(gpus=(apple,)), slots=2)
    _check(plan)
    assert any("planned scratch + mask + inputs + answers" in line for line in explain(plan))
    host = replace(apple, name="host", kind=DeviceKind.HOST)
    kept = plan_of("Llama-3.1-8B", keeping_prompts(DeviceSet(host=host)), slots=2)
    _check(kept)
    assert any("(free - kept for prompts)" in line for line in explain(kept))


def test_layers_that_stay_on_the_host_take_scratch_there() -> None:
    plan = plan_of("Llama-3.3-70B")
    _check(plan)
    assert any("host, scratch" in line and "planned scratch" in line for line in explain(plan))


def test_the_weights_of_a_file_are_layers_input_and_output(tmp_path: Path) -> None:
    header = read_header(write_model("gemma3", tmp_path))
    model = model_of_file(header, name="tiny", source="tiny.gguf")
    plan = make_plan(model, CARD_24, Wish(slots=2))
    _check(plan)
    layers = len(plan.usage.weights.by_layer)
    assert any(f"({layers} layers + input + output)" in line for line in explain(plan))


def test_the_sections_come_in_order_and_what_a_token_and_a_slot_cost_is_said() -> None:
    lines = explain(plan_of("Llama-3.1-8B", slots=4, ctx_per_slot=8192))
    headings = [line for line in lines if not line.startswith(" ")]
    assert headings[0] == "Slots and context"
    assert headings[-1].startswith("Host memory")
    assert len(headings) == 6
    assert "  a token more in one slot: 131,072 bytes" in lines
    assert "  a slot more of the same context: 1,073,741,824 bytes" in lines
    most = explain(tiny_plan("bert", slots=256))
    assert not any("more" in line for line in most if line.startswith("  a "))
