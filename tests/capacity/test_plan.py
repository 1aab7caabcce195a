"""The plan: slots and context for the memory there is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from slotgate.capacity import Settings, context_memory, read_header
from slotgate.capacity.devices import Device, DeviceKind, DeviceSet, by_hand, keeping_prompts
from slotgate.capacity.model import Model, model_of_file, model_of_keys
from slotgate.capacity.placement import HOST, Override, experts_on_host
from slotgate.capacity.plan import Plan, make_plan
from slotgate.capacity.wish import Wish
from slotgate.errors import ConfigError, PlanRefused
from tests.capacity.tiny_models import write_model
from tests.capacity.truth import CATALOG

if TYPE_CHECKING:
    from pathlib import Path

MiB, GiB = 1 << 20, 1 << 30


def _model(name: str, weights_gib: float) -> Model:
    meta = next(model["meta"] for model in CATALOG if model["name"] == name)
    return model_of_keys(meta, name=name, weights_bytes=int(weights_gib * GiB))


LLAMA = _model("Llama-3.1-8B", 4.31)
CARD_24 = by_hand((24 * GiB,))


def _plan(model: Model = LLAMA, devices: DeviceSet = CARD_24, **wish: Any) -> Plan:
    return make_plan(model, devices, Wish(**wish))


# Largest contexts of 1, 2, 4, 8 and 16 slots, worked out apart from this code, with an estimate of
# the scratch memory of their own: a step or two of 256 tokens may lie between.
WORKED = (
    ("Llama-3.1-8B", 4.31, 24, "f16", (131072, 77056, 38656, 19200, 9472)),
    ("Llama-3.1-8B", 4.31, 24, "q8_0", (131072, 131072, 67840, 33792, 16896)),
    ("Llama-3.1-8B", 4.31, 12, "f16", (56320, 28160, 14080, 6912, 3328)),
    ("gpt-oss-20b", 11.3, 16, "f16", (131072, 84224, 42240, 20736, 9984)),
    ("Qwen3-30B-A3B", 17.1, 24, "q8_0", (40960, 40960, 30208, 15104, 7424)),
    ("Gemma-3-27b", 15.4, 24, "q8_0", (131072, 70912, 32256, 12800, 3072)),
    ("Qwen3.5-27B (also 3.6-27B, 3.8-27B)", 15.5, 24, "q8_0", (198400, 98816, 47616, 22016, 8960)),
    ("Mistral-Small-3.x-24B", 13.0, 24, "q8_0", (116480, 58624, 29184, 14592, 7168)),
)


@pytest.mark.parametrize(("name", "weights_gib", "card_gib", "kind", "contexts"), WORKED)
def test_the_worked_plans_come_out_as_worked_by_hand(
    name: str, weights_gib: float, card_gib: int, kind: str, contexts: tuple[int, ...]
) -> None:
    table = _plan(_model(name, weights_gib), by_hand((card_gib * GiB,))).table
    row = next(row for row in table if row.cache_type == kind)
    for ours, theirs in zip(row.tokens, contexts, strict=False):
        assert abs(ours - theirs) <= 512


def test_18_slots_of_8192_tokens_fit_a_24_gib_card_and_33_in_q8_0() -> None:
    assert _plan(ctx_per_slot=8192).slots == 18
    assert _plan(ctx_per_slot=8192, type_k="q8_0", type_v="q8_0").slots == 33


def test_a_chosen_plan_fits_and_the_next_larger_one_does_not() -> None:
    for slots in (1, 3, 8):
        plan = _plan(slots=slots)
        if plan.ctx_per_slot == 131072:
            continue
        assert plan.fits
        assert not _plan(slots=slots, ctx_per_slot=plan.ctx_per_slot + 256).fits
    plan = _plan(ctx_per_slot=8192)
    assert not _plan(ctx_per_slot=8192, slots=plan.slots + 1).fits


def test_every_slot_has_its_own_tokens_unless_a_shared_pool_is_asked_for() -> None:
    plan = _plan()
    assert not plan.usage.settings.unified
    assert not plan.overcommitted
    assert plan.ctx_per_slot * plan.slots <= plan.usage.memory.n_ctx


def test_a_unified_pool_is_as_large_as_its_slots_together() -> None:
    gemma = _model("Gemma-3-27b", 15.4)
    wish: dict[str, Any] = {"slots": 16, "type_k": "q8_0", "type_v": "q8_0"}
    plan, separate = _plan(gemma, unified=True, **wish), _plan(gemma, **wish)
    # Its windows overlap: sixteen of 1,024 tokens and one batch, instead of sixteen of both.
    assert plan.ctx_per_slot > 1.5 * separate.ctx_per_slot
    assert plan.usage.memory.n_ctx == 16 * plan.ctx_per_slot
    assert not plan.overcommitted
    assert "--kv-unified-per-slot" in plan.command


def test_a_pool_that_the_user_overcommits_is_planned_as_asked_and_said() -> None:
    plan = _plan(ctx_size=8192, slots=4, unified=True)
    assert (plan.ctx_per_slot, plan.usage.memory.n_ctx) == (8192, 8192)
    assert plan.overcommitted
    assert plan.concurrent_requests(4096) == 2
    assert "--kv-unified-per-slot" not in plan.command


def test_a_context_size_is_divided_among_the_slots_as_llama_server_does() -> None:
    plan = _plan(ctx_size=8192, slots=3)
    assert (plan.ctx_per_slot, plan.usage.memory.n_ctx) == (2816, 8448)
    assert _plan(ctx_size=8192).slots == 4


def test_how_many_requests_run_at_once_depends_on_their_length() -> None:
    plan = _plan(slots=4, ctx_per_slot=8192)
    assert (plan.concurrent_requests(8192), plan.concurrent_requests(8193)) == (4, 0)


def test_what_does_not_fit_is_planned_and_said_not_to_fit() -> None:
    plan = _plan(slots=64, ctx_per_slot=131072)
    assert not plan.fits
    assert plan.usage.devices[0].left is not None
    assert plan.usage.devices[0].left < 0


def test_the_marginal_costs_are_those_of_a_token_and_of_a_slot() -> None:
    plan = _plan(slots=4, ctx_per_slot=8192)
    assert plan.bytes_per_token == 131072
    assert plan.bytes_per_slot == 8192 * 131072
    assert _plan(slots=256, ctx_per_slot=256).bytes_per_slot == 0


def test_a_token_more_costs_a_window_model_only_its_full_layers() -> None:
    plan = _plan(_model("Gemma-3-27b", 15.4), slots=2, ctx_per_slot=16384)
    assert plan.bytes_per_token == 81920


def test_a_model_too_large_for_the_card_leaves_layers_on_the_host() -> None:
    plan = _plan(_model("Llama-3.3-70B", 40.0))
    layers = plan.usage.placement.n_gpu_layers
    assert layers is not None
    assert 20 < layers < 60
    assert plan.fits
    assert ("-ngl", str(layers)) == plan.command[3:5]
    assert plan.usage.devices[-1].weights > 10 * GiB


def test_two_cards_share_the_layers_by_their_free_memory_or_as_asked() -> None:
    cards = by_hand((24 * GiB, 8 * GiB))
    weights = [use.weights for use in _plan(devices=cards).usage.devices]
    assert weights[0] > 2 * weights[1] > 0 == weights[2]
    halves = _plan(devices=cards, tensor_split=(1.0, 1.0))
    first, second, _ = (use.weights for use in halves.usage.devices)
    assert 0.8 < first / second < 1.25
    assert "-ts" in halves.command


def test_as_many_shares_as_cards_are_needed() -> None:
    with pytest.raises(ConfigError, match="3 shares for 1 GPUs"):
        _plan(tensor_split=(1.0, 1.0, 1.0))


def test_a_machine_without_cards_is_planned_for_its_memory() -> None:
    plan = _plan(devices=by_hand((), host_bytes=16 * GiB))
    assert plan.fits
    assert not plan.usage.on_gpus
    assert "-ngl" not in plan.command
    asked = _plan(devices=by_hand((), host_bytes=16 * GiB), n_gpu_layers=0)
    assert asked.command[3:5] == ("-ngl", "0")
    left = plan.usage.devices[0].left
    assert left is not None
    assert 0 <= left < 4 * 256 * 131072


def test_where_no_memory_is_known_it_must_be_given() -> None:
    with pytest.raises(ConfigError, match="--memory 24GiB"):
        _plan(devices=DeviceSet())


def test_unified_memory_holds_what_the_host_would_hold_too() -> None:
    apple = Device(name="MTL0", kind=DeviceKind.UNIFIED, total_bytes=24 * GiB, free_bytes=24 * GiB)
    separate, shared = _plan(), _plan(devices=DeviceSet(gpus=(apple,)))
    assert sum(use.used for use in shared.usage.devices) == shared.usage.devices[0].used
    assert shared.ctx_per_slot <= separate.ctx_per_slot


def test_a_measured_host_keeps_room_for_prompts_to_reuse() -> None:
    host = Device(name="host", kind=DeviceKind.HOST, total_bytes=16 * GiB, free_bytes=12 * GiB)
    devices = keeping_prompts(DeviceSet(host=host))
    plan = _plan(devices=devices)
    assert plan.host.free is not None
    assert plan.host.free >= 3 * GiB
    assert 1024 <= plan.host.cache_ram_mib < 8192
    assert ("--cache-ram", str(plan.host.cache_ram_mib)) == plan.command[-4:-2]
    assert keeping_prompts(CARD_24) == CARD_24


def test_a_host_given_by_hand_is_for_the_model_alone() -> None:
    plan = _plan(devices=by_hand((), host_bytes=16 * GiB))
    assert (plan.host.free, plan.host.cache_ram_mib) == (None, 8192)


def test_checkpoints_that_the_host_cannot_afford_are_fewer() -> None:
    # A checkpoint of Gemma 3 27B takes 416 MiB, and there are up to 32 of them for each slot.
    plan = _plan(_model("Gemma-3-27b", 15.4), slots=4)
    assert plan.host.checkpoint == 436221188
    assert plan.host.all_checkpoints <= 8 * GiB
    assert "--ctx-checkpoints" in plan.command
    assert _plan(_model("Gemma-3-27b", 15.4), slots=4, ctx_checkpoints=3).host.checkpoints == 3
    assert _plan().host.checkpoints == 0


def test_the_command_says_what_was_planned_and_nothing_is_left_to_change() -> None:
    plan = _plan(slots=4, ctx_per_slot=8192, type_k="q8_0", type_v="q8_0", n_ubatch=256)
    assert plan.command == (
        *("llama-server", "-m", "Llama-3.1-8B.gguf", "-ngl", "999", "-c", "32768", "-np", "4"),
        *("-fa", "on", "-ctk", "q8_0", "-ctv", "q8_0", "-ub", "256", "--fit", "off"),
    )


def test_settings_that_are_not_llama_servers_own_are_in_the_command() -> None:
    plan = _plan(slots=1, n_batch=1024, swa_full=True, flash_attn="off", cache_ram_mib=0)
    command = " ".join(plan.command)
    for words in ("-b 1024", "--swa-full", "-fa off", "--cache-ram 0"):
        assert words in command


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (experts_on_host(2), "--n-cpu-moe 2 "),
        (experts_on_host(), "--cpu-moe "),
        ((Override("blk.0", "GPU 0"), *experts_on_host(1)), "-ot blk.0=GPU 0 --n-cpu-moe 1 "),
        ((Override("a", HOST), Override("b", HOST)), "-ot a=CPU,b=CPU "),
    ],
)
def test_tensors_that_were_moved_are_moved_by_the_command(
    overrides: tuple[Override, ...], words: str
) -> None:
    plan = _plan(_model("Qwen3-30B-A3B", 17.1), overrides=overrides, slots=1)
    assert f"-ngl 999 {words}-c " in " ".join(plan.command)


def test_two_cards_with_all_layers_hold_the_inputs_of_a_pipeline_however_it_is_asked() -> None:
    cards = by_hand((24 * GiB, 24 * GiB))
    copies = [
        _plan(devices=cards, slots=1, n_gpu_layers=layers).usage.compute.parts.get("copies")
        for layers in (None, 33, 99, 32)
    ]
    assert copies[0] == copies[1] == copies[2] is not None
    assert copies[3] is None


def test_a_wish_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(PlanRefused, match="give one"):
        Wish(ctx_size=8192, ctx_per_slot=2048)
    with pytest.raises(PlanRefused, match="slots: 0"):
        Wish(slots=0)


def test_what_llama_cpp_refuses_is_refused_as_asked_and_noted_in_the_table() -> None:
    falcon = replace(_model("Phi-3-mini-4k", 2.2))
    assert all(not row.refusal for row in _plan(falcon).table)
    with pytest.raises(PlanRefused, match="needs flash attention"):
        _plan(type_v="q8_0", flash_attn="off")


def test_a_model_with_a_file_counts_its_tensors(tmp_path: Path) -> None:
    header = read_header(write_model("gemma3", tmp_path))
    model = model_of_file(header, name="tiny", source="tiny.gguf")
    plan = _plan(model, by_hand((), host_bytes=64 * MiB), slots=2)
    memory = context_memory(
        header.meta, Settings(n_ctx=plan.usage.memory.n_ctx, n_seq=2, unified=False)
    )
    assert plan.usage.context_bytes == memory.total
    assert plan.usage.devices[0].weights == plan.usage.weights.total


def test_types_that_a_model_cannot_use_are_refused_in_the_table(tmp_path: Path) -> None:
    header = read_header(write_model("falcon", tmp_path))
    model = model_of_file(header, name="tiny", source="tiny.gguf")
    rows = _plan(model, by_hand((), host_bytes=64 * MiB)).table
    assert [bool(row.refusal) for row in rows] == [False, True, True]
    assert "head size 16" in rows[1].refusal


def test_a_catalog_model_needs_the_size_of_its_file() -> None:
    with pytest.raises(ConfigError, match=r"--weights 4\.7GB"):
        model_of_keys(LLAMA.meta, name="x", weights_bytes=None)


def test_t5_is_given_one_slot(tmp_path: Path) -> None:
    header = read_header(write_model("t5", tmp_path))
    model = model_of_file(header, name="t5", source="t5.gguf")
    assert _plan(model, by_hand((), host_bytes=256 * MiB)).slots == 1
