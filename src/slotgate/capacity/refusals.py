"""What llama.cpp refuses, or aborts on, for a model and its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.capacity.architectures import Memory
from slotgate.capacity.ggml_types import BY_NAME, CACHE_TYPES
from slotgate.errors import PlanRefused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slotgate.capacity.caches import Cache
    from slotgate.capacity.settings import ContextSize, Settings
    from slotgate.capacity.shapes import Shape
    from slotgate.capacity.state_rows import StateRow

# Their indexer makes a rotation of the head's size, which an empty cache does not have.
_ROTATED = {"deepseek32", "deepseek4", "dots3note", "glm-dsa"}


def check(shape: Shape, settings: Settings, size: ContextSize, caches: Sequence[Cache]) -> None:
    """Raise PlanRefused with the reason, the first that llama.cpp would meet."""
    if settings.mtp and (shape.layers.all == shape.layers.trunk or shape.layers.router):
        raise PlanRefused("the model has no layers for multi-token prediction")
    _check_types(shape, settings)
    _check_heads(shape, settings)
    _check_batches(shape, settings, size)
    _check_layers(shape, caches)
    _check_graph(shape, settings, size)
    for cache in caches:
        keys = {cache.key_elements(layer) for layer in cache.layers}
        values = set() if cache.heads.latent else set(map(cache.value_elements, cache.layers))
        if cache.layers and not any(keys | values):
            raise PlanRefused("the cache's layers have no heads; llama.cpp cannot allocate nothing")
        for elements in keys:
            _check_row("K", settings.type_k, elements)
        for elements in values:
            _check_row("V", settings.type_v, elements)


def check_states(states: Sequence[StateRow]) -> None:
    """Raise PlanRefused if there are layers with a state, and nothing in it."""
    if states and not any(row.n_bytes for row in states):
        raise PlanRefused("the recurrent layers have no state; llama.cpp cannot allocate nothing")


def _check_types(shape: Shape, settings: Settings) -> None:
    for flag, kind in (("k", settings.type_k), ("v", settings.type_v)):
        if kind not in CACHE_TYPES:
            known = ", ".join(CACHE_TYPES)
            raise PlanRefused(f"--cache-type-{flag} {kind}: llama.cpp knows {known}")
    one_type = shape.heads.latent or shape.row.memory is Memory.COMPRESSED
    if one_type and settings.type_k != settings.type_v:
        raise PlanRefused(
            f"{shape.row.name} keeps one row for keys and values: --cache-type-k "
            f"{settings.type_k} and --cache-type-v {settings.type_v} must be the same"
        )


def _check_heads(shape: Shape, settings: Settings) -> None:
    """Flash attention reads whole blocks, so a block must divide the head of every layer."""
    without_flash = settings.flash_attn == "off" or shape.row.name == "grok"
    if without_flash:
        if BY_NAME[settings.type_v].block_elements > 1:
            raise PlanRefused(
                f"--cache-type-v {settings.type_v} needs flash attention, which is off"
            )
        return
    trunk = range(shape.layers.trunk)
    for size in set(map(shape.heads.key_size, trunk)):
        _check_block("K", settings.type_k, size)
    for size in set(map(shape.heads.value_size, trunk)):
        _check_block("V", settings.type_v, size)


def _check_block(what: str, kind: str, head: int) -> None:
    block = BY_NAME[kind].block_elements
    if head % block:
        raise PlanRefused(
            f"{what} cache type {kind}: its blocks of {block} do not divide the head size {head}"
        )


def _check_row(what: str, kind: str, elements: int) -> None:
    block = BY_NAME[kind].block_elements
    if elements % block:
        raise PlanRefused(
            f"{what} cache type {kind}: its blocks of {block} do not divide a row of {elements}; "
            "llama.cpp aborts"
        )


def _check_batches(shape: Shape, settings: Settings, size: ContextSize) -> None:
    if size.n_batch < settings.n_seq:
        raise PlanRefused(
            f"a batch of {size.n_batch} tokens is smaller than {settings.n_seq} slots; "
            "llama.cpp aborts"
        )
    tokens = min(size.n_ctx, size.n_ubatch)
    if shape.row.name == "minimax-01" and size.streams > 1 and tokens % size.streams:
        raise PlanRefused(
            f"minimax-01 aborts when {size.streams} slots of their own do not divide a batch of "
            f"{tokens}: choose another number of slots, or --kv-unified"
        )
    if shape.row.name == "t5" and size.streams > 1:
        raise PlanRefused("t5 with several slots of their own aborts: use one slot or --kv-unified")


def _check_graph(shape: Shape, settings: Settings, size: ContextSize) -> None:
    """minimax-m3 has nodes in its graph for each slot, and llama.cpp room for so many in all.

    The counts are of its graph and its tensors in build 11434; where it aborts was tried from 1 to
    64 slots with micro-batches of 32 to 512.
    """
    sparse = sum(shape.indexed)
    tokens = min(size.n_ctx, size.n_ubatch)
    together = size.streams == 1 or settings.flash_attn == "off" or tokens <= size.streams
    if shape.row.name != "minimax-m3" or together:
        return
    nodes = 49 * sparse * size.streams + 66 * shape.layers.all
    tensors = 23 * sparse + 14 * (shape.layers.all - sparse) + 3
    if nodes > max(40 * tokens, 32 * tensors):
        raise PlanRefused(
            f"minimax-m3 aborts with {size.streams} slots of their own: its graph has no room for "
            "so many; choose fewer, or --kv-unified, which attends densely"
        )


def _check_layers(shape: Shape, caches: Sequence[Cache]) -> None:
    rotated = shape.row.name in _ROTATED
    for cache in caches:
        if rotated and not cache.layers and cache.heads.key == shape.index_size:
            raise PlanRefused(
                "a cache without layers meets an indexer of its size; llama.cpp aborts"
            )
    _check_shared(shape)


def _check_shared(shape: Shape) -> None:
    """A layer without a cache of its own uses that of the last layer of its kind that has one."""
    first = shape.own_cache_layers
    if not 0 < first < shape.layers.all:
        return
    windowed = shape.heads.windowed
    for layer in range(first, shape.layers.all):
        source = first - (2 if windowed[layer] else 1)
        if first < 2 or windowed[source] != windowed[layer]:
            raise PlanRefused(f"layer {layer} shares the cache of a layer of another kind")
