"""Attention: what is there while queries are made, and while they are compared with the cells.

With flash attention the comparison needs no memory of its own.  Without, each head has a number
for each cell and token: the scores, which soon outweigh everything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from slotgate.capacity.compute_facts import Fact
from slotgate.capacity.compute_inputs import (
    compressed_cells,
    has_indexer,
    mask_bytes,
    row_bytes_always,
)
from slotgate.capacity.compute_networks import kept_for_layers
from slotgate.capacity.compute_work import ELEMENT_BYTES, Work, spilled
from slotgate.capacity.ggml_types import BY_NAME
from slotgate.capacity.settings import PAD_TOKENS

if TYPE_CHECKING:
    from collections.abc import Mapping

_F16 = 2


class _Form(NamedTuple):
    """Bytes at the widest moment, and bytes that are there with the scores."""

    widest: int
    held: int


def attention_phases(work: Work) -> Mapping[str, int]:
    """The phases of attention, in bytes; none for a model without."""
    if not work.cells:
        return {}
    name = work.shape.row.name
    if name == "deepseek4":
        return _compressed(work)
    if work.is_(Fact.BIASED):
        return _biased(work)
    form, kept = _form(work), kept_for_layers(work)
    scores = form.held + work.heads * work.rows(work.cells)
    if has_indexer(work) and not work.is_(Fact.BLOCK_MASK):
        return {"indexer": _indexer(work, scores)}
    if work.without_flash:
        return {"scores": scores + kept}
    casts = cast_bytes(work)
    copied = work.rows(2 * work.queries) + casts if casts else 0
    attention = {"attention": max(form.widest, copied) + kept}
    # Where blocks are chosen, the first layers attend to everything all the same.
    return {**attention, "indexer": _indexer(work, scores)} if has_indexer(work) else attention


def cast_bytes(work: Work) -> int:
    """One layer's f32 keys and values as f16, which is how flash attention reads them."""
    elements = work.key_row if work.settings.type_k == "f32" else 0
    if work.settings.type_v == "f32" and not work.shape.heads.latent:
        elements += work.value_row
    return _F16 * elements * work.cells * work.streams if work.caches else 0


def _form(work: Work) -> _Form:
    if work.shape.heads.latent:
        return _latent(work)
    if work.is_(Fact.FUSED):
        return _fused(work)
    if work.is_(Fact.GATED_QUERIES):
        return _Form(work.rows(4 * work.queries), work.rows(3 * work.queries))
    if work.sees_batch_alone:
        return _uncached(work)
    if work.is_(Fact.EXPANDED) and work.keys.number("attention.kv_lora_rank", 0):
        return _expanded(work)
    made = _made(work)
    return _Form(work.rows(made + _keys_spilled(work, with_values=True)), work.rows(made))


def _fused(work: Work) -> _Form:
    """The product stays while queries are rotated; for a quantised cache, they are mixed, too."""
    changed = [work.queries]
    if BY_NAME[work.settings.type_k].block_elements > 1:
        changed.append(work.queries)
    made = work.queries + work.key_row + work.value_row
    widest = work.rows(made + spilled(changed, [work.shape.n_embd]))
    return _Form(widest, widest)


def _made(work: Work) -> int:
    """Elements of the queries, as a product and rotated; one of them may fill a row's gap."""
    return work.queries if work.queries <= work.shape.n_embd else 2 * work.queries


def _keys_spilled(work: Work, *, with_values: bool) -> int:
    gaps = [work.shape.n_embd]
    if work.queries > work.shape.n_embd:
        # The product is done with once it has been rotated.
        gaps.append(work.queries)
    values = [work.value_row] if with_values else []
    return spilled([*values, work.key_row, work.key_row], gaps)


def _uncached(work: Work) -> _Form:
    queries = spilled([work.queries], [work.shape.n_embd])
    if work.is_(Fact.NOT_ROTATED):
        # Keys are there as f16, too.
        widest = work.value_row + work.key_row // 2 + queries
        return _Form(work.rows(widest), work.rows(work.value_row + queries))
    made = _made(work) + _keys_spilled(work, with_values=False)
    widest = max(made + work.value_row, spilled([work.queries] * 3, [work.shape.n_embd]))
    return _Form(work.rows(widest), work.rows(made + work.value_row))


def _latent(work: Work) -> _Form:
    key = work.keys.number("attention.key_length_mla")
    lora = work.keys.number("attention.kv_lora_rank", 0)
    row = lora + work.keys.number("rope.dimension_count", 0)
    # Values are a copy of the keys' latent part, transposed.
    values = _F16 * lora * work.cells * work.streams
    widest = work.rows(work.heads * (key + 2 * row))
    return _Form(widest, work.rows(work.heads * 2 * row) + values)


def _expanded(work: Work) -> _Form:
    """Queries, the expanded keys and values, the rotated part of the keys, and both made whole."""
    rotated = work.heads * work.keys.number("rope.dimension_count", 0)
    plain = work.queries - rotated
    widest = 2 * work.queries + plain + rotated + 2 * work.mixed
    return _Form(work.rows(widest), work.rows(2 * work.queries))


def _indexer(work: Work, scores: int) -> int:
    """Choose cells: a number for each cell and token, and then a mask of those chosen."""
    cells = work.rows(work.cells)
    if work.is_(Fact.BLOCK_MASK):
        groups = work.keys.number("attention.indexer.head_count")
        masked = work.rows(2 * work.queries) + 2 * groups * cells // work.streams
        return max(masked, _gathered(work, groups))
    if work.without_flash:
        return scores + 2 * cells
    index = work.keys.number("attention.indexer.head_count")
    index *= work.keys.number("attention.indexer.key_length")
    latent = _latent(work)
    values = _F16 * work.keys.number("attention.kv_lora_rank", 0) * work.cells * work.streams
    return work.rows(index) + latent.held - values + cells


def _gathered(work: Work, groups: int) -> int:
    """One token for each slot: the keys and values of the chosen blocks, for each group of heads.

    They are gathered as f32, the keys first, and made f16 for flash attention; beside them are
    their places, twice, and what maps places to cells.
    """
    block = work.keys.number("attention.indexer.block_size")
    # What is reserved is for a context that is still empty: its first cells.
    cells = min(PAD_TOKENS, work.cells)
    chosen = min(work.keys.number("attention.indexer.top_k") * block, cells)
    key, value = work.shape.heads.key, work.shape.heads.value
    keys = key * (ELEMENT_BYTES if work.settings.type_k == "f32" else _F16)
    values = value * (ELEMENT_BYTES if work.settings.type_v == "f32" else _F16 + ELEMENT_BYTES)
    widest = max(keys + values, ELEMENT_BYTES * key + keys)
    places = 3 * ELEMENT_BYTES
    per_slot = groups * chosen * (widest + places) + 4 * ELEMENT_BYTES * cells
    # This step has masks and rows of few tokens, where those of a whole batch are counted.
    slots = work.settings.n_seq
    fewer = (mask_bytes(work) + row_bytes_always(work)) * (work.tokens - slots) // work.tokens
    return slots * per_slot - fewer


def _biased(work: Work) -> Mapping[str, int]:
    """T5: scores beside their bias, twice; and the decoder's view of all that was encoded."""
    scores = work.heads * work.rows(work.cells)
    if not work.caches:
        return {"scores": 3 * scores + work.row + work.rows(work.queries)}
    values = _F16 * work.value_row * work.cells * work.streams
    trained = work.shape.n_ctx_train
    cross = 3 * ELEMENT_BYTES * work.queries * trained
    if work.without_flash:
        cross += work.heads * work.rows(trained)
    return {"scores": 3 * scores + values, "cross-attention": cross}


def _compressed(work: Work) -> Mapping[str, int]:
    """deepseek4: queries, and all keys in one piece, which may lie where its streams were."""
    streams = work.keys.number("hyper_connection.count") * work.row
    window = max(cache.cells for cache in work.caches if cache.part == "window")
    cells = window + compressed_cells(work)
    sequences = work.settings.n_seq
    keys = _F16 * work.shape.heads.key * cells * sequences
    if work.without_flash:
        scores = work.heads * work.rows(cells)
        return {"scores": work.rows(2 * work.queries) + scores + max(0, 2 * (keys - streams))}
    index = work.keys.number("attention.indexer.head_count")
    index *= work.keys.number("attention.indexer.key_length")
    queries = work.queries * (2 if sequences == 1 else 3)
    return {"attention": work.rows(queries + index) + max(0, keys - 2 * streams)}
