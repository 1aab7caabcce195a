"""The context's memory against what llama.cpp itself allocated, row by row."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from slotgate.capacity.context import ContextMemory, context_memory
from slotgate.capacity.settings import Settings
from slotgate.errors import PlanRefused
from tests.capacity.truth import CATALOG, KV_ROWS, meta_of, settings_of

if TYPE_CHECKING:
    from collections.abc import Mapping


def _by_name() -> Mapping[str, list[Mapping[str, Any]]]:
    rows = defaultdict(list)
    for row in KV_ROWS:
        rows[row["name"]].append(row)
    return rows


_ROWS = _by_name()


def _memory(meta: Mapping[str, Any], params: Mapping[str, Any]) -> ContextMemory | None:
    try:
        return context_memory(meta, settings_of(params))
    except PlanRefused:
        return None


@pytest.mark.parametrize("name", _ROWS)
def test_a_tiny_model_takes_exactly_what_llama_cpp_allocated_or_is_refused(name: str) -> None:
    wrong = []
    for row in _ROWS[name]:
        memory = _memory(meta_of(name), row["params"])
        expected = row["actual"]
        if (memory and memory.total) != expected:
            wrong.append((row["params"], expected, memory and memory.parts))
    assert wrong == []


def test_the_sizes_that_llama_cpp_made_of_the_settings_are_foreseen() -> None:
    for row in KV_ROWS:
        if row["actual"] is None:
            continue
        memory = _memory(meta_of(row["name"]), row["params"])
        assert memory is not None
        size = memory.size
        made = (size.n_ctx, size.n_ctx_seq, size.n_batch, size.n_ubatch)
        assert made == (row["n_ctx"], row["n_ctx_seq"], row["n_batch"], row["n_ubatch"])


@pytest.mark.parametrize("model", CATALOG, ids=lambda model: model["name"])
def test_a_popular_model_at_its_real_size_takes_exactly_what_llama_cpp_allocated(
    model: dict[str, Any],
) -> None:
    for row in model["checked"]:
        memory = _memory(model["meta"], row)
        assert memory is not None
        assert memory.total == row["actual"]
        assert memory.total == sum(memory.parts.values()) == sum(memory.by_layer)


def _catalog(name: str) -> dict[str, Any]:
    meta: dict[str, Any] = next(model["meta"] for model in CATALOG if model["name"] == name)
    return meta


def test_llama_3_1_8b_takes_131072_bytes_a_token() -> None:
    memory = context_memory(_catalog("Llama-3.1-8B"), Settings(n_ctx=8192, n_seq=1))
    assert memory.total == 2 * 32 * 8 * 128 * 2 * 8192
    assert memory.parts == {"full": memory.total}
    assert len(set(memory.by_layer)) == 1


def test_a_window_does_not_grow_with_the_context() -> None:
    gemma = _catalog("Gemma-3-27b")
    short, long = (context_memory(gemma, Settings(n_ctx=n, n_seq=1)) for n in (16384, 131072))
    assert short.parts["window"] == long.parts["window"]
    assert long.parts["full"] == 8 * short.parts["full"]


@pytest.mark.parametrize(
    ("n_ctx", "n_seq", "unified", "n_ctx_seq", "pool"),
    [
        (8192, 4, True, 8192, 8192),
        (8192, 4, False, 2048, 8192),
        (8192, 3, False, 2816, 8448),
        (1000, 4, False, 256, 1024),
        (100, 1, True, 256, 256),
        (0, 2, False, 65536, 131072),
    ],
)
def test_the_context_is_divided_and_rounded_up_as_llama_server_does(
    n_ctx: int, n_seq: int, unified: bool, n_ctx_seq: int, pool: int
) -> None:
    settings = Settings(n_ctx=n_ctx, n_seq=n_seq, unified=unified)
    memory = context_memory(_catalog("Llama-3.1-8B"), settings)
    assert (memory.n_ctx_seq, memory.n_ctx) == (n_ctx_seq, pool)


def test_a_slot_cannot_use_more_than_the_model_was_trained_for() -> None:
    memory = context_memory(meta_of("llama"), Settings(n_ctx=65536, n_seq=1, unified=False))
    assert (memory.n_ctx_seq, memory.n_ctx_slot) == (65536, 32768)


@pytest.mark.parametrize(
    ("meta", "why"),
    [
        ({}, "names no architecture"),
        ({"general.architecture": "llama"}, "lacks the key llama.block_count"),
        ({"general.architecture": 3}, "names no architecture"),
    ],
)
def test_a_header_without_what_is_needed_is_refused(meta: dict[str, Any], why: str) -> None:
    with pytest.raises(PlanRefused, match=why):
        context_memory(meta, Settings())


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"llama.block_count": 0}, "0 layers"),
        ({"llama.block_count": 600}, "600 layers"),
        ({"llama.block_count": "four"}, "is no number of anything"),
        ({"llama.attention.head_count_kv": [1, 2]}, "2 elements for 4 layers"),
        ({"llama.nextn_predict_layers": 9}, "9 of them extra"),
        ({"llama.context_length": 0}, "how long the context is"),
    ],
)
def test_a_header_that_llama_cpp_would_not_load_is_refused(
    change: dict[str, Any], why: str
) -> None:
    with pytest.raises(PlanRefused, match=why):
        context_memory({**meta_of("llama"), **change}, Settings())


def test_an_unknown_architecture_is_planned_as_a_plain_cache() -> None:
    known = meta_of("llama")
    unknown = {key.replace("llama.", "newcomer.", 1): value for key, value in known.items()}
    unknown["general.architecture"] = "newcomer"
    settings = Settings(n_ctx=4096)
    assert context_memory(unknown, settings).total == context_memory(known, settings).total


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"n_seq": 0}, "0 slots"),
        ({"n_seq": 257}, "257 slots"),
        ({"n_ctx": -1}, "cannot be negative"),
        ({"n_batch": 0, "n_ubatch": 0}, "cannot both be 0"),
        ({"flash_attn": "maybe"}, "on, off or auto"),
        ({"type_k": "q2_K"}, "llama.cpp knows f32"),
        ({"type_v": "f8"}, "llama.cpp knows f32"),
        ({"flash_attn": "off", "type_v": "q8_0"}, "needs flash attention"),
        ({"n_batch": 2, "n_seq": 4}, "smaller than 4 slots"),
        ({"mtp": True}, "no layers for multi-token prediction"),
    ],
)
def test_settings_that_llama_cpp_refuses_are_refused(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(PlanRefused, match=why):
        context_memory(meta_of("llama"), Settings(**settings))
