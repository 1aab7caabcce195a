"""Warnings: each appears where it applies, with the plan's own figures, and nowhere else."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from slotgate.capacity import Settings, context_memory, read_header
from slotgate.capacity.devices import Device, DeviceKind, DeviceSet, by_hand
from slotgate.capacity.model import model_of_file
from slotgate.capacity.plan import Plan, make_plan
from slotgate.capacity.units import show_size
from slotgate.capacity.warnings import CODES, warnings_of
from slotgate.capacity.wish import Wish
from tests.capacity.plans import (
    CARD_24,
    HOST_64,
    GiB,
    MiB,
    catalog_model,
    model_of_meta,
    plan_of,
    renamed,
    tiny_plan,
)
from tests.capacity.tiny_models import write_model
from tests.capacity.truth import CATALOG, meta_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_HOST_16 = Device(name="host", kind=DeviceKind.HOST, total_bytes=16 * GiB, free_bytes=16 * GiB)
_CARD_AND_HOST = replace(CARD_24, host=_HOST_16)
_OLD_DEEPSEEK = {
    key: value
    for key, value in catalog_model("DeepSeek-V3").meta.items()
    if not key.endswith("_mla")
} | {
    "deepseek2.attention.head_count_kv": 128,
    "deepseek2.attention.key_length": 192,
    "deepseek2.attention.value_length": 128,
}


def _codes(plan: Plan, build: int | None = None) -> set[str]:
    return {warning.code for warning in warnings_of(plan, build=build)}


def _message(plan: Plan, code: str, build: int | None = None) -> str:
    found = [one.message for one in warnings_of(plan, build=build) if one.code == code]
    assert len(found) == 1, f"{code}: {found}"
    return found[0]


def _llama(**wish: Any) -> Plan:
    return plan_of("Llama-3.1-8B", **wish)


def _gemma(**wish: Any) -> Plan:
    return plan_of("Gemma-3-27b", **wish)


def _qwen(**wish: Any) -> Plan:
    return plan_of("Qwen3.5-27B", **wish)


def _of_meta(meta: Any, devices: DeviceSet = CARD_24, **wish: Any) -> Plan:
    return make_plan(model_of_meta(meta), devices, Wish(**wish))


# Code -> a plan that it applies to, words that its message has, and a plan that it does not.
_CASES: dict[str, tuple[Callable[[], Plan], str, Callable[[], Plan]]] = {
    "does-not-fit": (
        lambda: _llama(slots=20, ctx_per_slot=8192),
        "GPU 0 lacks .* room for 18 slots of 8,192 tokens, or 20 slots of 7,",
        _llama,
    ),
    "overcommitted": (
        lambda: _llama(ctx_size=8192, slots=4, unified=True),
        "4 slots may take 8,192 tokens each, 32,768 in all, .* pool of 8,192.*"
        "--kv-unified-per-slot 2048.*takes 3.0 GiB more",
        lambda: _llama(slots=4, ctx_per_slot=2048, unified=True),
    ),
    "partial-offload": (
        lambda: plan_of("Llama-3.3-70B"),
        r"\d+ of 80 layers stay on the host, with \d.* GiB of weights",
        lambda: plan_of("Llama-3.3-70B", by_hand((80 * GiB,))),
    ),
    "host-memory-short": (
        lambda: _gemma(devices=_CARD_AND_HOST, slots=4, cache_ram_mib=16384),
        r"The host has 1\d\.\d GiB beside the model.*may come to .* GiB: lower --cache-ram",
        lambda: _gemma(devices=_CARD_AND_HOST, slots=4),
    ),
    "compressed-unified": (
        lambda: tiny_plan("deepseek4", slots=4, ctx_per_slot=1024, unified=True),
        "deepseek4 keeps the whole pool for each slot .* Leave --kv-unified off",
        lambda: tiny_plan("deepseek4", slots=4, ctx_per_slot=1024),
    ),
    "old-latent-file": (
        lambda: _of_meta(_OLD_DEEPSEEK, slots=1, ctx_per_slot=1024),
        "71 times as much. Convert the model again",
        lambda: plan_of("DeepSeek-V3", slots=1, ctx_per_slot=1024),
    ),
    "without-flash-attention": (
        lambda: _llama(flash_attn="off", slots=1, ctx_per_slot=8192),
        "heads x context x micro-batch: it is .* here, and .* with it",
        _llama,
    ),
    "above-trained": (
        lambda: _llama(slots=1, ctx_size=262144),
        "131,072 tokens and a slot can use no more.* allocated for 262,144 each: 16.0 GiB are "
        "wasted. Ask for 131,072 tokens in all",
        lambda: _llama(slots=1, ctx_size=131072),
    ),
    "doubtful-training": (
        lambda: plan_of("Mistral-Nemo-12B", slots=1, ctx_per_slot=262144),
        "1,024,000 tokens.*at most 131,072 tokens a slot instead of 262,144",
        lambda: plan_of("Mistral-Nemo-12B", slots=1, ctx_per_slot=131072),
    ),
    "rounded-up": (
        lambda: _llama(ctx_size=8192, slots=3),
        "8,192 tokens were asked for; .* multiple of 256 for each slot and allocates 8,448, 2,816 "
        "a slot",
        lambda: _llama(ctx_size=8192, slots=4),
    ),
    "swa-full": (
        lambda: _gemma(slots=1, ctx_per_slot=8192, swa_full=True),
        "window of 1,024 tokens: 2.* GiB more than without it",
        lambda: _llama(slots=1, swa_full=True),
    ),
    "window-caches": (
        lambda: _gemma(slots=4, ctx_per_slot=8192),
        "The window layers take 2.4 GiB of the context's 4.9 GiB.* "
        "--ubatch-size 256 instead of 512 would save",
        lambda: _gemma(slots=4, ctx_per_slot=8192, swa_full=True),
    ),
    "unified-saves": (
        lambda: _gemma(slots=4, ctx_per_slot=8192),
        "--kv-unified --kv-unified-per-slot 8192 gives the slots the same 8,192 tokens and saves",
        lambda: _gemma(slots=4, ctx_per_slot=8192, unified=True),
    ),
    "recurrent-state": (
        lambda: plan_of("Granite-4.0-H-Small", slots=8, ctx_per_slot=1024),
        "state of 147.5 MiB, 1.2 GiB in all, always f32.*slots cost more than their context",
        lambda: plan_of("LFM2-1.2B", slots=1),
    ),
    "state-copies": (
        lambda: _qwen(slots=1, n_rs_seq=2),
        "each state 3 times: 448.9 MiB instead of 149.6 MiB",
        lambda: _qwen(slots=1),
    ),
    "mtp-context": (
        lambda: tiny_plan("qwen35-mtp", slots=1, n_rs_seq=3),
        "1 extra layers .* second context: .* not in this plan",
        lambda: tiny_plan("qwen35-mtp", slots=1),
    ),
    "f16-copy": (
        lambda: _llama(slots=1, ctx_per_slot=131072, type_k="q8_0", type_v="q8_0"),
        "f16 copy of one quantised layer: 512.0 MiB of scratch.*cache of 8.5 GiB",
        lambda: _llama(devices=HOST_64, slots=1, type_k="q8_0", type_v="q8_0"),
    ),
    "host-memory": (
        lambda: _gemma(slots=4),
        "checkpoints of 416.0 MiB for each of 4 slots, .* GiB, and 8.0 GiB of prompts.*"
        "own 32 would come to 52.0 GiB",
        _llama,
    ),
    "prompt-not-kept": (
        lambda: _llama(slots=1, ctx_per_slot=131072),
        r"fills a slot takes 16.0 GiB, more than all of --cache-ram \(8.0 GiB\)",
        lambda: _llama(slots=4, ctx_per_slot=8192),
    ),
    "batch-limits-slots": (
        lambda: _llama(slots=1, n_batch=128),
        "A batch has 128 tokens",
        lambda: _llama(slots=1, n_batch=256),
    ),
    "cache-type-refused": (
        lambda: tiny_plan("falcon", slots=1),
        "cannot use q8_0 and q4_0 .* blocks of 32 do not divide the head size 16",
        _llama,
    ),
    "equal-cache-types": (
        lambda: plan_of("DeepSeek-V2-Lite"),
        "--cache-type-k and --cache-type-v must be the same",
        _llama,
    ),
    "t5-slots": (
        lambda: tiny_plan("t5"),
        "use one slot, or --kv-unified",
        _llama,
    ),
    "no-context": (
        lambda: tiny_plan("bert", slots=1),
        "bert keeps no context: .* scratch only",
        _llama,
    ),
    "unverified": (
        lambda: _of_meta(renamed(meta_of("llama"), "llama9")),
        "llama9 is not known to build 11434.* every layer for the whole context, unverified.",
        lambda: _of_meta(meta_of("llama")),
    ),
    "catalog": (
        lambda: plan_of("Gemma-3-27b"),
        "15.4 GiB of weights are what was given.*shape: window 1024 on 5 of 6 layers",
        _llama,  # not compared: what has a file has a test of its own
    ),
    "catalog-unchecked": (
        lambda: plan_of("Mistral-Nemo-12B"),
        "not checked against a file: the KV heads",
        _llama,
    ),
}


def test_every_warning_has_a_case() -> None:
    assert set(_CASES) == set(CODES)


@pytest.mark.parametrize("code", _CASES)
def test_a_warning_appears_where_it_applies_with_the_plans_figures(code: str) -> None:
    plan, words, _ = _CASES[code]
    assert re.search(words, _message(plan(), code)), _message(plan(), code)


@pytest.mark.parametrize("code", [code for code in _CASES if code != "catalog"])
def test_a_warning_does_not_appear_where_it_does_not_apply(code: str) -> None:
    _, _, other = _CASES[code]
    assert code not in _codes(other())


def test_a_plain_plan_from_a_file_needs_no_warning(tmp_path: Path) -> None:
    header = read_header(write_model("llama", tmp_path))
    model = model_of_file(header, name="tiny", source="tiny.gguf")
    assert not warnings_of(make_plan(model, CARD_24, Wish(slots=2)), build=11434)


@pytest.mark.parametrize("model", CATALOG, ids=[model["name"] for model in CATALOG])
def test_every_popular_model_is_warned_of_in_whole_sentences(model: Any) -> None:
    wish = {"slots": 16, "ctx_per_slot": 3000, "unified": len(model["name"]) % 2 == 0}
    plan = plan_of(model["name"], by_hand((48 * GiB,)), n_rs_seq=2, **wish)
    for warning in warnings_of(plan, build=3000):
        assert re.fullmatch(r"[a-z0-9-]+", warning.code)
        assert warning.message.endswith(".")
        assert not re.search(r"None|-\d+\.\d (G|M)iB|\(\)|  |\.\.", warning.message)


def test_what_a_smaller_micro_batch_or_one_pool_saves_is_what_replanning_says() -> None:
    plan = _gemma(slots=4, ctx_per_slot=8192)
    smaller = _gemma(slots=4, ctx_per_slot=8192, n_ubatch=256)
    saved = _used(plan) - _used(smaller)
    assert f"save {show_size(saved)}," in _message(plan, "window-caches")
    one_pool = _gemma(slots=4, ctx_per_slot=8192, unified=True)
    saved = _used(plan) - _used(one_pool)
    assert saved > 500 * MiB
    assert f"saves {show_size(saved)}," in _message(plan, "unified-saves")


def test_what_is_said_to_fit_fits_and_a_little_more_does_not() -> None:
    message = _message(_gemma(slots=12, ctx_per_slot=16384), "does-not-fit")
    found = re.findall(r"(\d+) slots of ([\d,]+) tokens", message)
    for slots, tokens in ((int(slots), int(tokens.replace(",", ""))) for slots, tokens in found):
        assert _gemma(slots=slots, ctx_per_slot=tokens).fits
        beyond = {"slots": slots + 1} if tokens == 16384 else {"ctx_per_slot": tokens + 256}
        assert not _gemma(**{"slots": slots, "ctx_per_slot": tokens, **beyond}).fits
    assert len(found) == 2


def test_only_a_mixture_of_experts_is_told_to_leave_its_experts_on_the_host() -> None:
    small = by_hand((8 * GiB,))
    assert "--n-cpu-moe" in _message(plan_of("Qwen3-30B-A3B", small), "partial-offload")
    assert "--n-cpu-moe" not in _message(plan_of("Gemma-3-27b", small), "partial-offload")


def test_a_model_larger_than_the_card_is_told_from_too_large_a_context() -> None:
    plan = plan_of("Llama-3.1-8B", by_hand((4 * GiB,)), n_gpu_layers=99)
    assert "the weights alone take 4.3 GiB" in _message(plan, "does-not-fit")


def test_a_context_that_one_slot_cannot_have_is_named_without_slots_that_could() -> None:
    message = _message(_llama(slots=2, ctx_size=2 * 400_000), "does-not-fit")
    assert "slots of 400,128" not in message
    assert "room for 2 slots of" in message


def test_rounding_is_said_of_one_slots_context_and_of_one_pool() -> None:
    assert "1,000 tokens a slot .* allocates 1,024" not in _message(
        _llama(slots=2, ctx_size=1000, unified=True), "rounded-up"
    )
    assert "allocates 1,024." in _message(
        _llama(slots=2, ctx_size=1000, unified=True), "rounded-up"
    )
    assert "allocates 1,024." in _message(_llama(slots=2, ctx_per_slot=1000), "rounded-up")


def test_checkpoints_count_for_the_host_and_for_the_prompts_it_keeps() -> None:
    few = _gemma(devices=_CARD_AND_HOST, slots=4, cache_ram_mib=4096, ctx_checkpoints=1)
    assert not {"host-memory-short", "prompt-not-kept"} & _codes(few)
    many = _gemma(devices=_CARD_AND_HOST, slots=4, cache_ram_mib=4096, ctx_checkpoints=32)
    assert "may come to 56.0 GiB" in _message(many, "host-memory-short")
    assert many.host.prompt < many.host.cache_ram
    assert "with its checkpoints" in _message(many, "prompt-not-kept")
    none = _gemma(devices=_CARD_AND_HOST, slots=4, cache_ram_mib=0)
    assert "prompt-not-kept" not in _codes(none)


def test_a_smallest_micro_batch_has_no_smaller_one_to_offer() -> None:
    message = _message(_gemma(slots=4, ctx_per_slot=4096, n_ubatch=1), "window-caches")
    assert "--ubatch-size 0" not in message


def test_grok_cannot_turn_flash_attention_on() -> None:
    plan = _of_meta(renamed(meta_of("llama"), "grok"), slots=1)
    message = _message(plan, "without-flash-attention")
    assert "grok cannot use it" in message
    assert "with it" not in message


def test_speculation_without_states_to_go_back_to_is_said() -> None:
    plan = plan_of("Granite-4.0-H-Small", slots=1, n_rs_seq=2)
    assert "cannot roll its states back" in _message(plan, "state-copies")
    assert "state-copies" not in _codes(_llama(slots=1, n_rs_seq=2))


def test_the_extra_layers_of_a_file_are_counted_with_their_weights(tmp_path: Path) -> None:
    header = read_header(write_model("qwen35-mtp", tmp_path))
    model = model_of_file(header, name="tiny", source="tiny.gguf")
    plan = make_plan(model, CARD_24, Wish(slots=2, ctx_per_slot=1024, n_rs_seq=1))
    second = context_memory(header.meta, Settings(n_ctx=2048, n_seq=2, unified=False, mtp=True))
    message = _message(plan, "mtp-context")
    assert f"second context: {show_size(second.total)}, and " in message
    assert "of weights" in message


def test_extra_layers_that_could_not_predict_are_not_counted() -> None:
    llama = meta_of("llama")
    layers = llama["llama.block_count"]
    heads = (2,) * (layers - 1) + (0,)
    meta = {**llama, "llama.nextn_predict_layers": 1, "llama.attention.head_count_kv": heads}
    assert "mtp-context" not in _codes(_of_meta(meta, slots=1, n_rs_seq=2))


def test_one_slot_of_deepseek4_is_the_same_in_one_pool() -> None:
    plan = tiny_plan("deepseek4", slots=1, ctx_per_slot=1024, unified=True)
    assert "compressed-unified" not in _codes(plan)


def test_layers_that_other_layers_predict_with_are_no_speculation_where_there_are_none() -> None:
    assert "mtp-context" not in _codes(_llama(slots=1, n_rs_seq=2))


def test_an_architecture_that_was_only_read_is_told_from_one_that_is_not_known() -> None:
    read = _of_meta(renamed(meta_of("rwkv6"), "rwkv6qwen2"), slots=1)
    assert "was read in llama.cpp but never compared" in _message(read, "unverified")
    arrays = {**renamed(meta_of("llama"), "llama9")}
    layers = arrays["llama9.block_count"]
    arrays["llama9.attention.head_count_kv"] = (2,) * layers
    message = _message(_of_meta(arrays, slots=1), "unverified")
    assert "single layers (attention.head_count_kv)" in message


def test_a_file_is_no_catalog_and_keys_of_another_source_have_no_note(tmp_path: Path) -> None:
    header = read_header(write_model("gemma3", tmp_path))
    model = model_of_file(header, name="Mistral-Nemo-12B", source="tiny.gguf")
    codes = _codes(make_plan(model, CARD_24, Wish(slots=1)))
    assert not codes & {"catalog", "catalog-unchecked"}
    assert "shape" not in _message(_of_meta(meta_of("llama")), "catalog")


def test_unified_memory_is_said_to_be_short_like_any_other() -> None:
    apple = Device(name="MTL0", kind=DeviceKind.UNIFIED, total_bytes=8 * GiB, free_bytes=8 * GiB)
    plan = plan_of("Llama-3.1-8B", DeviceSet(gpus=(apple,)), slots=8, ctx_per_slot=8192)
    assert "MTL0 lacks" in _message(plan, "does-not-fit")


# Code -> a plan, a build that is too old for it, words of the message.
_OLD: dict[str, tuple[Callable[[], Plan], int, str]] = {
    "build-window-caches": (lambda: _gemma(slots=1, ctx_per_slot=8192), 3000, "take 2.6 GiB more"),
    "build-window-cells": (lambda: _gemma(slots=1), 5553, "larger than planned"),
    "build-separate-slots": (lambda: _llama(slots=2), 5912, "in build 5913 .#14363.* one pool"),
    "build-window-checkpoints": (lambda: _gemma(slots=1), 5900, "about 2025-08 .#15293"),
    "build-state-checkpoints": (lambda: _qwen(slots=1), 6502, "does not know --ctx-checkpoints"),
    "build-prompt-cache": (lambda: _llama(cache_ram_mib=1024), 6000, "leave --cache-ram out"),
    "build-fit": (_llama, 7347, "lacks what came about 2025-12 .* leave --fit out"),
    "build-multi-token-prediction": (lambda: _qwen(n_rs_seq=2), 9179, "no such speculation"),
    "build-output-rows": (_llama, 9459, "scratch is .* MiB larger"),
    "build-checkpoint-cells": (lambda: _gemma(slots=1), 9472, "checkpoints are larger"),
    "build-cuda-copy": (
        lambda: _llama(slots=1, type_k="q8_0", type_v="q8_0"),
        9488,
        "while it runs",
    ),
    "build-slot-limit": (
        lambda: _gemma(slots=2, unified=True),
        10661,
        "in build 10662 .* without --kv-unified",
    ),
}


@pytest.mark.parametrize("code", _OLD)
def test_an_older_build_is_told_what_it_lacks_and_a_newer_one_is_not(code: str) -> None:
    plan, build, words = _OLD[code]
    assert re.search(words, _message(plan(), code, build)), _message(plan(), code, build)
    assert code not in _codes(plan(), 11434)


def test_changes_that_do_not_matter_to_a_plan_are_not_mentioned() -> None:
    plan = _llama(slots=1)
    codes = {code for code in _codes(plan, 3000) if code.startswith("build-")}
    assert codes == {"build-prompt-cache", "build-fit", "build-output-rows"}
    assert "the host needs no memory for them" in _message(plan, "build-prompt-cache", 3000)
    every_row = tiny_plan("llama", slots=1, ctx_per_slot=256, n_ubatch=1)
    assert "build-output-rows" not in _codes(every_row, 9459)
    bare = replace(plan, command=("llama-server",))
    assert "build-fit" not in _codes(bare, 3000)


def test_one_pool_needs_no_flag_where_there_is_nothing_else() -> None:
    plan = _llama(slots=2, ctx_size=8192, unified=True)
    assert "leave --kv-unified out" in _message(plan, "build-separate-slots", 5000)


def test_a_build_between_two_that_are_known_may_lack_a_change() -> None:
    assert "Build 7400 may lack what came about 2025-12" in _message(_llama(), "build-fit", 7400)
    quantised = _gemma(slots=1, type_k="q8_0", type_v="q8_0")
    assert "in f16, whatever was asked" in _message(quantised, "build-window-types", 8650)
    assert "build-window-types" not in _codes(quantised, 8000) | _codes(_gemma(slots=1), 8650)


def test_a_build_that_nobody_compared_is_said_to_be_newer() -> None:
    assert "newer than those" in _message(_llama(), "build-newer", 12000)
    assert "build-newer" not in _codes(_llama(), 11549)


def _used(plan: Plan) -> int:
    return sum(use.used for use in plan.usage.devices)


@pytest.mark.parametrize("name", ["deci", "deepseek32", "glm-dsa", "kimi-linear", "mamba", "mimo2"])
def test_a_rare_model_with_strange_settings_is_warned_of_in_whole_sentences(name: str) -> None:
    plan = tiny_plan(name, slots=1, ctx_size=100, n_rs_seq=1, unified=True)
    assert all(warning.message.endswith(".") for warning in warnings_of(plan, build=8650))
