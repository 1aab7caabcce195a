"""The estimate of scratch memory against what llama.cpp itself reserved.

It is no exact formula, so what is asserted is how many sizes it hits; the counts are those of the
data, and a change that makes any of them worse or better has to say so here.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from slotgate.capacity.architectures import ARCHITECTURES
from slotgate.capacity.compute import (
    EVERY_TOKEN,
    PIPELINE_COPIES,
    ComputeEstimate,
    compute_bytes,
)
from slotgate.capacity.compute_facts import FACTS
from slotgate.capacity.settings import Settings
from slotgate.errors import PlanRefused
from tests.capacity.truth import CATALOG, KV_ROWS, meta_of, settings_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

GIB = 1 << 30
_DATA = Path(__file__).parent / "data"


class Hits(NamedTuple):
    """How many sizes there are, and how many the estimate hits; `below` counts too small plans."""

    rows: int
    exact: int
    within_5: int
    within_15: int
    below: int


def _hits(pairs: Iterable[tuple[ComputeEstimate, int]]) -> Hits:
    pairs = list(pairs)
    off = [abs(estimate.total - actual) / actual for estimate, actual in pairs]
    return Hits(
        rows=len(pairs),
        exact=off.count(0),
        within_5=sum(error <= 0.05 for error in off),
        within_15=sum(error <= 0.15 for error in off),
        below=sum(estimate.planned < actual for estimate, actual in pairs),
    )


def _tiny() -> Iterable[tuple[ComputeEstimate, int]]:
    metas = {name: meta_of(name) for name in {row["name"] for row in KV_ROWS}}
    for row in KV_ROWS:
        if "compute" in row:
            estimate = compute_bytes(
                metas[row["name"]], settings_of(row["params"]), n_outputs=EVERY_TOKEN
            )
            yield estimate, row["compute"]


def _catalog() -> Iterable[tuple[ComputeEstimate, int]]:
    for model in CATALOG:
        for row in model["checked"]:
            yield compute_bytes(model["meta"], settings_of(row)), row["compute"]


def _random() -> Iterable[tuple[ComputeEstimate, int]]:
    content = json.loads(gzip.decompress((_DATA / "compute_random.json.gz").read_bytes()))
    for header, params, actual in content["rows"]:
        settings = settings_of(params)
        meta = content["headers"][header]
        yield compute_bytes(meta, settings, n_outputs=params["n_out"]), actual


def test_nearly_all_sizes_of_tiny_models_are_within_15_percent_and_no_plan_is_too_small() -> None:
    hits = _hits(_tiny())
    assert hits == Hits(rows=6639, exact=3121, within_5=6180, within_15=6547, below=0)
    assert hits.within_15 >= 0.95 * hits.rows


def test_all_sizes_of_popular_models_are_within_15_percent_and_no_plan_is_too_small() -> None:
    assert _hits(_catalog()) == Hits(rows=432, exact=260, within_5=418, within_15=432, below=0)


def test_models_that_the_estimate_was_not_written_from_are_hit_as_well() -> None:
    hits = _hits(_random())
    assert hits == Hits(rows=949, exact=418, within_5=833, within_15=919, below=0)
    assert hits.within_15 >= 0.95 * hits.rows


def test_slots_that_each_gather_the_keys_of_their_blocks_are_not_planned_too_small() -> None:
    content = json.loads(gzip.decompress((_DATA / "minimax_m3.json.gz").read_bytes()))
    meta, ratios, refused = meta_of("minimax-m3"), [], []
    for n_ctx, n_seq, kind, n_ubatch, actual in content["rows"]:
        settings = Settings(
            n_ctx=n_ctx, n_seq=n_seq, unified=False, type_k=kind, type_v=kind, n_ubatch=n_ubatch
        )
        try:
            estimate = compute_bytes(meta, settings)
        except PlanRefused:
            refused.append(actual)
        else:
            ratios.append(estimate.planned / actual)
    # llama.cpp aborted on as many as are refused, and on no other.
    assert refused == [None] * 114
    assert len(ratios) == 366
    assert min(ratios) >= 1


def _of(name: str, settings: Settings, **options: Any) -> ComputeEstimate:
    meta: Mapping[str, Any] = next(one["meta"] for one in CATALOG if one["name"] == name)
    return compute_bytes(meta, settings, **options)


LLAMA = "Llama-3.1-8B"
# Its sizes.
N_EMBD, N_FF, HEADS, KEY_ROW, VOCABULARY = 4096, 14336, 32, 1024, 128256


def test_a_plain_model_is_a_mask_five_rows_and_its_feed_forward_network() -> None:
    estimate = _of(LLAMA, Settings(n_ctx=8192, n_seq=1))
    tokens = 512
    assert estimate.phase_name == "feed-forward"
    assert estimate.parts["mask"] == 8192 * tokens * 2
    assert estimate.parts["phase"] == 3 * N_FF * tokens * 4
    # Tokens and places twice over, two caches' cells, and one answer.
    small = 2 * 4 * tokens + 8 * tokens + 4 * tokens + 2 * 8 * tokens + 32
    assert estimate.parts["inputs"] == 5 * N_EMBD * tokens * 4 + small
    assert estimate.total == 138430496


def test_without_flash_attention_the_scores_of_a_long_context_take_8_gib() -> None:
    settings = Settings(n_ctx=131072, n_seq=1, flash_attn="off")
    estimate = _of(LLAMA, settings)
    scores = HEADS * 131072 * 512 * 4
    assert scores == 8 * GIB
    assert estimate.phase_name == "scores"
    assert estimate.parts["phase"] == scores + N_EMBD * 512 * 4
    assert estimate.total > 15 * _of(LLAMA, Settings(n_ctx=131072, n_seq=1)).total


def test_the_micro_batch_multiplies_everything() -> None:
    usual = _of(LLAMA, Settings(n_ctx=131072, n_seq=1))
    larger = _of(LLAMA, Settings(n_ctx=131072, n_seq=1, n_ubatch=2048))
    assert 4 * usual.total - 1000 < larger.total <= 4 * usual.total


def test_streams_share_the_mask() -> None:
    separate = _of(LLAMA, Settings(n_ctx=65536, n_seq=8, unified=False))
    unified = _of(LLAMA, Settings(n_ctx=65536, n_seq=8, unified=True))
    assert unified.parts["mask"] == 8 * separate.parts["mask"]


def test_logits_of_every_token_outweigh_the_rest() -> None:
    settings = Settings(n_ctx=8192, n_seq=4)
    estimate = _of(LLAMA, settings, n_outputs=EVERY_TOKEN)
    assert estimate.phase_name == "logits"
    assert estimate.parts["phase"] == 512 * VOCABULARY * 4
    assert _of(LLAMA, settings).phase_name == "feed-forward"


def test_a_server_wants_one_answer_a_slot_and_one_for_each_drafted_token() -> None:
    settings = Settings(n_ctx=8192, n_seq=4, n_rs_seq=3)
    assert _of(LLAMA, settings) == _of(LLAMA, settings, n_outputs=16)
    assert _of(LLAMA, settings).host_outputs == 4 * VOCABULARY * 4


def test_a_quantised_cache_is_copied_as_f16_on_cuda_one_layer_at_a_time() -> None:
    settings = Settings(n_ctx=8192, n_seq=1, type_k="q8_0", type_v="q8_0")
    estimate = _of(LLAMA, settings, backend="cuda")
    assert estimate.parts["f16_copy"] == 2 * 2 * KEY_ROW * 8192
    assert estimate.total == _of(LLAMA, settings).total + estimate.parts["f16_copy"]
    keys_alone = Settings(n_ctx=8192, n_seq=1, type_k="q8_0")
    assert _of(LLAMA, keys_alone, backend="cuda").parts["f16_copy"] == 2 * KEY_ROW * 8192


@pytest.mark.parametrize(
    "settings",
    [
        Settings(n_ctx=8192, n_seq=1),
        Settings(n_ctx=8192, n_seq=1, type_k="q8_0", flash_attn="off"),
        Settings(n_ctx=8192, n_seq=1, type_k="f32", type_v="f32"),
    ],
    ids=["f16", "no flash attention", "f32, which the graph copies"],
)
def test_nothing_is_copied_for_cuda_where_flash_attention_has_what_it_reads(
    settings: Settings,
) -> None:
    assert _of(LLAMA, settings, backend="cuda").parts["f16_copy"] == 0


def test_a_latent_cache_has_no_values_to_copy() -> None:
    settings = Settings(n_ctx=8192, n_seq=1, type_k="q8_0", type_v="q8_0")
    estimate = _of("DeepSeek-V3/R1", settings, backend="cuda")
    assert estimate.parts["f16_copy"] == 2 * 576 * 8192


def test_a_pipeline_holds_its_inputs_several_times() -> None:
    settings = Settings(n_ctx=8192, n_seq=1)
    one = _of(LLAMA, settings)
    piped = _of(LLAMA, settings, copies=PIPELINE_COPIES)
    small = one.parts["inputs"] - 5 * N_EMBD * 512 * 4
    once_more = one.parts["mask"] + small + N_EMBD * 512 * 4
    assert piped.total - one.total == piped.parts["copies"] == 3 * once_more
    assert piped.inputs == one.inputs == one.parts["mask"] + one.parts["inputs"]


def test_a_plan_counts_a_fifth_more_rounded_up() -> None:
    estimate = _of(LLAMA, Settings(n_ctx=8192, n_seq=1))
    assert estimate.planned == 166116596
    assert estimate.planned - 1 < 1.2 * estimate.total <= estimate.planned


def test_an_estimate_says_how_far_it_may_be_off_and_where_it_was_not_measured() -> None:
    settings = Settings(n_ctx=8192, n_seq=1)
    assert "20 %" in _of(LLAMA, settings).bound
    assert "not measured" in _of(LLAMA, settings, backend="cuda").bound


def test_what_llama_cpp_refuses_is_not_estimated() -> None:
    settings = Settings(n_ctx=8192, n_seq=1, type_v="q8_0", flash_attn="off")
    with pytest.raises(PlanRefused, match="needs flash attention"):
        _of(LLAMA, settings)


def test_every_readable_header_has_an_estimate() -> None:
    content = json.loads(gzip.decompress((_DATA / "random_headers.json.gz").read_bytes()))
    allowed = [row for row in content["rows"] if row[2] is not None]
    for header, settings, _ in allowed:
        estimate = compute_bytes(content["headers"][header], Settings(**settings), backend="cuda")
        assert min(estimate.parts.values()) >= 0
        assert estimate.total > 0
    assert len(allowed) == 1440


def test_facts_are_about_architectures_that_are_known() -> None:
    for fact, names in FACTS.items():
        assert names, fact
        assert names <= set(ARCHITECTURES), fact
