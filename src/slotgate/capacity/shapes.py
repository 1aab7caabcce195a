"""The shape of a model: what its memory is computed from, layer by layer.

A shape is read once from a header's keys by its architecture's row (`architectures`); what depends
on the settings is left to `context`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slotgate.capacity.architectures import Architecture, Latent, OwnCache, architecture
from slotgate.capacity.heads import Heads
from slotgate.capacity.indexers import compress_ratios, index_size, indexed_layers
from slotgate.capacity.layers import Layers, layers_of
from slotgate.capacity.metadata import Keys
from slotgate.capacity.states import RecurrentState, recurrent_layers, recurrent_state
from slotgate.capacity.windows import window_of

if TYPE_CHECKING:
    from slotgate.capacity.metadata import Meta


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Everything about a model that its context memory depends on.

    `window_tokens` is None without a window.
    `indexed` says which layers have an indexer, `index_size` is the elements of its row.
    `compress_ratios`: how many tokens a compressed row of the layer stands for; 0: none.
    `own_cache_layers`: only so many of the first layers have a cache of their own.
    `m_rope`: each token is kept with its place in an image.
    `causal`: what is read depends on what stood before it only, so a batch may be cut anywhere.
    """

    row: Architecture
    n_ctx_train: int
    n_embd: int
    layers: Layers
    heads: Heads
    window_tokens: int | None
    state: RecurrentState
    indexed: tuple[bool, ...]
    index_size: int
    compress_ratios: tuple[int, ...]
    own_cache_layers: int
    m_rope: bool
    causal: bool


def shape_of(meta: Meta) -> Shape:
    """Read a model's shape from its header's keys.

    Raises PlanRefused where llama.cpp would not load the model: a key is missing, or contradicts
    another.
    """
    keys = Keys(meta)
    row = architecture(keys.architecture)
    layers = layers_of(keys)
    recurrent = recurrent_layers(keys, row, layers)
    window_tokens, windowed = window_of(keys, row, layers, recurrent)
    heads = _heads(keys, row, layers, windowed)
    return Shape(
        row=row,
        n_ctx_train=keys.number("context_length"),
        n_embd=keys.number("embedding_length"),
        layers=layers,
        heads=heads,
        window_tokens=window_tokens,
        state=recurrent_state(keys, row, recurrent, heads, layers.query_heads[0]),
        indexed=indexed_layers(keys, row, layers, recurrent),
        index_size=index_size(keys, row),
        compress_ratios=compress_ratios(keys, row, layers),
        own_cache_layers=_own_cache_layers(keys, row, layers),
        m_rope=_has_m_rope(keys, row),
        causal=row.causal and keys.flag("attention.causal", default=True),
    )


def _heads(keys: Keys, row: Architecture, layers: Layers, windowed: tuple[bool, ...]) -> Heads:
    key, value = _head_sizes(keys, row, layers.query_heads[0])
    own_sizes = row.name in {"gemma4", "gemma4-assistant"}
    return Heads(
        kv_heads=layers.kv_heads,
        key=key,
        value=value,
        key_swa=keys.number("attention.key_length_swa", None if own_sizes else key),
        value_swa=keys.number("attention.value_length_swa", None if own_sizes else value),
        windowed=windowed,
        latent=_is_latent(keys, row),
    )


def _head_sizes(keys: Keys, row: Architecture, query_heads: int) -> tuple[int, int]:
    # Read even where the first layer has no attention, which llama.cpp takes for "no heads".
    if query_heads <= 0 and row.name != "plamo2":
        return 0, 0
    by_width = keys.number("embedding_length") // query_heads if query_heads > 0 else 0
    key = keys.number("attention.key_length", by_width)
    if row.name in {"glm5-next", "kimi-k3"}:
        return key, keys.number("attention.kv_lora_rank")
    return key, keys.number("attention.value_length", by_width)


def _is_latent(keys: Keys, row: Architecture) -> bool:
    required = None if row.latent is Latent.REQUIRED else 0
    if row.latent is Latent.NO:
        return False
    key = keys.number("attention.key_length_mla", required)
    return key > 0 and keys.number("attention.value_length_mla", required) > 0


def _own_cache_layers(keys: Keys, row: Architecture, layers: Layers) -> int:
    if row.own_cache_layers is OwnCache.BUT_SHARED:
        return layers.all - keys.number("attention.shared_kv_layers", 0)
    if isinstance(row.own_cache_layers, int):
        return row.own_cache_layers
    return layers.all


def _has_m_rope(keys: Keys, row: Architecture) -> bool:
    if row.m_rope is not None:
        return row.m_rope
    sections = keys.array("rope.dimension_sections") or ()
    if row.name == "dflash":
        return any(sections)
    return len(sections) > 1 and sections[0] > 0 and sections[1] > 0
