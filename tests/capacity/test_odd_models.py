"""Models that are odd, broken or hostile: planned, or refused with a reason, and never a crash."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotgate.capacity.context import context_memory
from slotgate.capacity.saved import checkpoint_bytes, saved_prompt_bytes, slot_file_bytes
from slotgate.capacity.settings import Settings
from slotgate.capacity.shapes import shape_of
from slotgate.errors import PlanRefused
from tests.capacity.tiny_models import NAMES
from tests.capacity.truth import meta_of

if TYPE_CHECKING:
    from collections.abc import Mapping

SMALL = Settings(n_ctx=4096, n_seq=2, unified=False)


def _with(name: str, **changes: Any) -> Mapping[str, Any]:
    meta = dict(meta_of(name))
    architecture = meta["general.architecture"]
    for key, value in changes.items():
        meta[f"{architecture}.{key.replace('__', '.')}"] = value
    return meta


def _as(architecture: str, name: str, **changes: Any) -> Mapping[str, Any]:
    """The tiny model's keys under another architecture's name."""
    meta = dict(meta_of(name))
    old = meta["general.architecture"]
    renamed = {key.replace(f"{old}.", f"{architecture}.", 1): value for key, value in meta.items()}
    renamed["general.architecture"] = architecture
    renamed |= {f"{architecture}.{key.replace('__', '.')}": v for key, v in changes.items()}
    return renamed


def test_a_model_that_runs_through_its_layers_again_has_a_cache_for_each_time() -> None:
    once = context_memory(_as("nanbeige", "llama"), SMALL).total
    assert context_memory(_as("nanbeige", "llama", num_loops=3), SMALL).total == 3 * once


@pytest.mark.parametrize("loops", [0, 500])
def test_loops_that_llama_cpp_would_not_load_are_refused(loops: int) -> None:
    with pytest.raises(PlanRefused, match="loops of 4 layers"):
        context_memory(_as("nanbeige", "llama", num_loops=loops), SMALL)


def test_stacks_that_do_not_come_to_the_layers_are_refused() -> None:
    stacked = {"hrm__layers_per_stack": 1, "hrm__h_cycles": 2, "hrm__l_cycles": 1}
    assert context_memory(_as("hrm_text", "llama", **stacked), SMALL).total > 0
    with pytest.raises(PlanRefused, match="cycles of hrm_text"):
        context_memory(_as("hrm_text", "llama", **{**stacked, "hrm__l_cycles": 2}), SMALL)


def test_a_router_is_one_more_layer_of_one_head() -> None:
    plain, routed = (context_memory(_as(n, "llama"), SMALL) for n in ("granite", "graniteswitch"))
    assert len(routed.by_layer) == len(plain.by_layer) + 1
    assert routed.by_layer[-1] * 2 == routed.by_layer[0]


@pytest.mark.parametrize(
    ("meta", "why"),
    [
        (_as("qwen35", "qwen35", full_attention_interval=0), "must be positive"),
        (_as("dots3note", "glm-dsa", attention__sliding_window=512), "lacks the array"),
        (_with("deepseek4", attention__compress_ratios=[0, 4]), "shorter than the layers"),
        (_as("hy_v4", "glm-dsa", attention__indexer__types=[0, 1, 0, 0, 0, 0]), "no indexer"),
        (_with("mamba", ssm__conv_kernel=1, ssm__state_size=0), "have no state"),
        (_with("llama", attention__head_count_kv=0), "have no heads"),
        (_with("gemma4", attention__shared_kv_layers=9), "layer of another kind"),
        (_with("llama", attention__head_count_kv=-1), "no number of anything"),
        (_with("llama", attention__head_count=[1.0, 2.0, 4.0, 4.0]), "no number of anything"),
        (_with("llama", block_count=float("nan")), "no number of anything"),
    ],
)
def test_a_model_that_contradicts_itself_is_refused(meta: Mapping[str, Any], why: str) -> None:
    with pytest.raises(PlanRefused, match=why):
        context_memory(meta, SMALL)


def test_an_indexer_must_have_its_list_where_there_is_no_rule() -> None:
    window = {"attention__sliding_window": 512, "attention__sliding_window_pattern": [1, 0, 1] * 2}
    meta = dict(_as("dots3note", "glm-dsa", **window))
    assert context_memory(meta, SMALL).parts["indexer"] > 0
    del meta["dots3note.attention.indexer.types"]
    with pytest.raises(PlanRefused, match="lacks the array"):
        context_memory(meta, SMALL)


def test_the_second_context_of_multi_token_prediction_has_no_indexer_of_its_own() -> None:
    extra = Settings(n_ctx=4096, n_seq=1, mtp=True)
    memory = context_memory(_as("deepseek32", "deepseek2-mla-nextn", **_INDEXER), extra)
    assert set(memory.parts) == {"latent"}


_INDEXER = {"attention__indexer__key_length": 64, "attention__indexer__top_k": 64}


def test_a_draft_with_hyper_connections_has_a_window_on_all_its_layers() -> None:
    draft = {"attention__sliding_window": 512, "nextn_predict_layers": 1}
    plain = _as("dflash", "llama", **draft, attention__sliding_window_pattern=[1, 0, 1, 0])
    hyper = _as("dflash", "llama", **draft, hyper_connection__count=4)
    assert set(context_memory(plain, SMALL).parts) == {"full", "window"}
    memory = context_memory(hyper, SMALL)
    assert set(memory.parts) == {"window"}
    assert all(memory.by_layer)
    assert shape_of(_as("dflash", "llama", rope__dimension_sections=[4, 0, 0, 0])).m_rope


def test_image_places_are_kept_where_the_file_has_sections_for_them() -> None:
    plain, placed = (
        _as("glm4", "llama", rope__dimension_sections=sections)
        for sections in ([0, 0, 0, 0], [4, 6, 6, 0])
    )
    assert not shape_of(plain).m_rope
    more = saved_prompt_bytes(placed, SMALL, 100) - saved_prompt_bytes(plain, SMALL, 100)
    assert more == 12 * 100


def test_a_prompt_of_no_tokens_is_next_to_nothing() -> None:
    assert saved_prompt_bytes(meta_of("llama"), SMALL, 0) == 12
    assert checkpoint_bytes(meta_of("bert"), SMALL, 10) == 0


def test_a_chunked_window_forgets_all_at_the_end_of_a_chunk() -> None:
    at_end, after = (
        checkpoint_bytes(meta_of("llama4"), Settings(n_ctx=32768, n_seq=1), tokens)
        for tokens in (8192, 8193)
    )
    assert at_end > 1000 * (after - 12 * 7)


def test_n_gram_history_is_a_state_of_its_own_layer() -> None:
    # qwen4exp's, on its first layer: (kernel - 1) x n-gram x streams x n_embd = 4 x 64 x 4.
    extras = {
        "hyper_connection__count": 4,
        **_INDEXER,
        "ple__layers": [0],
        "ple__conv_kernel": 3,
        "ple__ngram_size": 2,
    }
    without = _as("qwen4exp", "qwen35", **{k: v for k, v in extras.items() if k[:3] != "ple"})
    with_history = _as("qwen4exp", "qwen35", **extras)
    more = context_memory(with_history, SMALL).total - context_memory(without, SMALL).total
    elements = 2 * 2 * 4 * with_history["qwen4exp.embedding_length"]
    assert more == 2 * 4 * elements
    saved = saved_prompt_bytes(with_history, SMALL, 10) - saved_prompt_bytes(without, SMALL, 10)
    # The cells of all caches are kept with their token besides; those of the attention were.
    assert saved == 4 * elements + 8 + 12 * 10


def test_deepseek4_saves_whole_compressed_rows_and_its_compressors() -> None:
    meta, one = meta_of("deepseek4"), Settings(n_ctx=4096, n_seq=1)
    # Each 128 tokens more are a heavy row on 3 layers, and 32 rows with their index on 3 others;
    # the window of 128 tokens is full, and the empty full cache notes its cells.
    more = saved_prompt_bytes(meta, one, 512) - saved_prompt_bytes(meta, one, 384)
    assert more == 3 * 1024 + 3 * 32 * (1024 + 256) + 12 * 128
    grown = checkpoint_bytes(meta, one, 512) - checkpoint_bytes(meta, one, 384)
    assert grown == 0
    assert slot_file_bytes(meta, one, 512) > checkpoint_bytes(meta, one, 512) > 0


_VALUES = st.one_of(
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.booleans(),
    st.text(max_size=3),
    st.lists(st.integers(-3, 700), max_size=12).map(tuple),
    st.lists(st.floats(), max_size=3).map(tuple),
)


@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_whatever_the_keys_say_there_is_a_size_or_a_reason(data: st.DataObject) -> None:
    meta = dict(meta_of(data.draw(st.sampled_from(NAMES))))
    keys = [key for key in meta if not key.startswith("tokenizer.")]
    for key in data.draw(st.lists(st.sampled_from(keys), min_size=1, max_size=4)):
        meta[key] = data.draw(_VALUES)
    try:
        total = context_memory(meta, SMALL).total + saved_prompt_bytes(meta, SMALL, 100)
    except PlanRefused:
        return
    assert total >= 0
