"""How many layers a model has, and what each has of heads and of a feed-forward network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slotgate.errors import PlanRefused

if TYPE_CHECKING:
    from slotgate.capacity.metadata import Keys

# More layers than this llama.cpp does not load.
MAX_LAYERS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """A model's layers; `trunk` leaves out the extra ones of multi-token prediction.

    `router`: the one extra layer is a router, which the trunk attends (graniteswitch).
    """

    all: int
    trunk: int
    query_heads: tuple[int, ...]
    kv_heads: tuple[int, ...]
    feed_forward: tuple[int, ...]
    router: bool = False


def layers_of(keys: Keys) -> Layers:
    """Count and describe the layers, those included that the model runs through several times."""
    blocks = keys.number("block_count")
    extra = keys.number("nextn_predict_layers", 0)
    if not 0 < blocks <= MAX_LAYERS or not 0 <= extra <= blocks:
        raise PlanRefused(f"{blocks} layers, {extra} of them extra: llama.cpp would not load it")
    none = (0,) * blocks
    query_heads = keys.per_layer("attention.head_count", blocks, none)
    layers = Layers(
        all=blocks,
        trunk=blocks - extra,
        query_heads=query_heads,
        kv_heads=keys.per_layer("attention.head_count_kv", blocks, query_heads),
        feed_forward=keys.per_layer("feed_forward_length", blocks, none),
    )
    return _SPECIAL.get(keys.architecture, _as_they_are)(keys, layers)


def _as_they_are(_keys: Keys, layers: Layers) -> Layers:
    return layers


def _looped(keys: Keys, layers: Layers) -> Layers:
    """Nanbeige runs through its layers several times, each time with a cache of its own."""
    loops = keys.number("num_loops", 1)
    if loops < 1 or loops * layers.trunk > MAX_LAYERS:
        raise PlanRefused(f"{loops} loops of {layers.trunk} layers: llama.cpp would not load it")
    if loops == 1:
        return layers
    extra = layers.all - layers.trunk
    physical = layers.trunk
    return Layers(
        all=loops * physical,
        trunk=loops * physical - extra,
        query_heads=layers.query_heads[:physical] * loops,
        kv_heads=layers.kv_heads[:physical] * loops,
        feed_forward=layers.feed_forward[:physical] * loops,
    )


def _with_router(_keys: Keys, layers: Layers) -> Layers:
    """Graniteswitch has one layer more, of one head, that chooses the adapter of each token."""
    count = layers.trunk
    return Layers(
        all=count + 1,
        trunk=count,
        query_heads=(*layers.query_heads[:count], 1),
        kv_heads=(*layers.kv_heads[:count], 1),
        feed_forward=(*layers.feed_forward[:count], 0),
        router=True,
    )


def _stacked(keys: Keys, layers: Layers) -> Layers:
    """hrm_text counts a block for each pass already; the passes must come to that number."""
    passes = keys.number("hrm.h_cycles") * (keys.number("hrm.l_cycles") + 1)
    if keys.number("hrm.layers_per_stack") * passes != layers.trunk:
        raise PlanRefused("block_count is not what the cycles of hrm_text come to")
    return layers


_SPECIAL = {"nanbeige": _looped, "graniteswitch": _with_router, "hrm_text": _stacked}
