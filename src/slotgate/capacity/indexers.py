"""Sparse attention: which layers keep a small row of keys to choose tokens by, and its size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.capacity.architectures import Architecture, Indexer
from slotgate.errors import PlanRefused

if TYPE_CHECKING:
    from slotgate.capacity.layers import Layers
    from slotgate.capacity.metadata import Keys

_TYPES = "attention.indexer.types"
# GLM 5.2 and newer, told by their context, share an indexer among four layers after the first two.
_SHARED_FROM_CONTEXT = 1_048_576
_SHARED_LAYERS = 78


def indexed_layers(
    keys: Keys, row: Architecture, layers: Layers, recurrent: tuple[bool, ...]
) -> tuple[bool, ...]:
    """For each layer, whether it has an indexer."""
    if not has_indexer(keys, row):
        return (False,) * layers.all
    if row.indexer is Indexer.AFTER_DENSE:
        dense = keys.number("leading_dense_block_count", 0)
        return tuple(n >= dense for n in range(layers.all))
    listed = _listed(keys, row, layers)
    if row.indexer is Indexer.LISTED_IF_USED and not listed[0]:
        raise PlanRefused("the first layer has no indexer to share; llama.cpp would not load it")
    return tuple(listed[n] and n < layers.trunk and not recurrent[n] for n in range(layers.all))


def has_indexer(keys: Keys, row: Architecture) -> bool:
    if row.indexer is Indexer.LISTED_IF_USED:
        return keys.number("attention.indexer.top_k", 0) > 0
    return row.indexer is not Indexer.NO


def index_size(keys: Keys, row: Architecture) -> int:
    """Elements of an indexer's row; several are kept side by side where keys are pooled."""
    if not has_indexer(keys, row) and row.name != "deepseek4":
        return 0
    size = keys.number("attention.indexer.key_length")
    if row.indexer is Indexer.ATTENTION_LISTED:
        return 3 * size
    if row.indexer is Indexer.ATTENTION and any(keys.array("attention.compress_ratios") or ()):
        return 2 * size
    return size


def compress_ratios(keys: Keys, row: Architecture, layers: Layers) -> tuple[int, ...]:
    """How many tokens a compressed row stands for on each layer (deepseek4); 0: none."""
    if row.name != "deepseek4":
        return (0,) * layers.all
    ratios = keys.array("attention.compress_ratios")
    if ratios is None or len(ratios) < layers.all:
        raise PlanRefused("attention.compress_ratios is missing or shorter than the layers")
    return ratios[: layers.all]


def _listed(keys: Keys, row: Architecture, layers: Layers) -> tuple[bool, ...]:
    everywhere = (True,) * layers.all
    if row.indexer in {Indexer.ALL, Indexer.ATTENTION}:
        return everywhere
    if row.name == "dots3note":
        return _from_array(keys, layers)
    default = {"glm-dsa": _glm(keys, layers), "hy_v4": (False,) * layers.all}
    if not keys.has(_TYPES):
        return default.get(row.name, everywhere)
    listed = tuple(map(bool, keys.per_layer(_TYPES, layers.trunk)))
    return listed + (False,) * (layers.all - layers.trunk)


def _from_array(keys: Keys, layers: Layers) -> tuple[bool, ...]:
    types = keys.array(_TYPES)
    if types is None:
        raise PlanRefused(f"the model lacks the array {keys.architecture}.{_TYPES}")
    return tuple(n < len(types) and bool(types[n]) for n in range(layers.all))


def _glm(keys: Keys, layers: Layers) -> tuple[bool, ...]:
    if keys.number("context_length") < _SHARED_FROM_CONTEXT:
        return (True,) * layers.all
    return tuple(n < _SHARED_LAYERS and (n < 2 or (n - 2) % 4 == 0) for n in range(layers.all))
