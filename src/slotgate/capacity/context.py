"""The context's memory: what llama.cpp allocates for keys, values and states, to the byte.

    cache  = sum over its layers of (row(type_k, key elements) + row(type_v, value elements))
             x cells x streams
    window = the same with cells = up256(min(n_ctx_seq, window x windows + n_ubatch)),
             windows = slots if unified, else 1
    state  = sum over recurrent layers of 4 x (R + S) x slots x (1 + n_rs_seq), always f32

Every allocation of a model is named as a `Cache` (grows with the context) or belongs to the state.
Source: llama.cpp build 11434; the sums equal its own for every row of the tables in tests/capacity.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slotgate.capacity.caches import Cache, caches_of
from slotgate.capacity.ggml_types import row_bytes
from slotgate.capacity.refusals import check, check_states
from slotgate.capacity.settings import ContextSize, Settings, context_size
from slotgate.capacity.shapes import Shape, shape_of
from slotgate.capacity.state_rows import StateRow, state_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from slotgate.capacity.metadata import Meta


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextMemory:
    """The memory of one context, in bytes, and the sizes that llama.cpp gives it, in tokens.

    `parts`: bytes by what they are for: full, window, latent, indexer, compressed, state.
    `by_layer`: bytes by layer, in the model's order; a layer's memory is where the layer is.
    """

    size: ContextSize
    caches: tuple[Cache, ...]
    states: tuple[StateRow, ...]
    parts: Mapping[str, int]
    by_layer: tuple[int, ...]
    n_ctx_train: int

    @property
    def total(self) -> int:
        """Bytes in all."""
        return sum(self.by_layer)

    @property
    def n_ctx(self) -> int:
        """Tokens of all slots together."""
        return self.size.n_ctx

    @property
    def n_ctx_seq(self) -> int:
        """Tokens that memory is there for in one slot (all of them, in a unified pool)."""
        return self.size.n_ctx_seq

    @property
    def n_ctx_slot(self) -> int:
        """Tokens that a slot can use: not more than the model was trained for."""
        return min(self.n_ctx_seq, self.n_ctx_train)


def context_memory(meta: Meta, settings: Settings) -> ContextMemory:
    """What a context with these settings takes, from a header's keys (`read_header(path).meta`).

    Raises PlanRefused where llama.cpp would refuse the model or the settings, or abort on them.
    """
    return memory_of(shape_of(meta), settings)


def memory_of(shape: Shape, settings: Settings) -> ContextMemory:
    """The same for a shape that has been read already."""
    size = context_size(settings, shape.n_ctx_train, causal=shape.causal)
    caches = caches_of(shape, settings, size)
    check(shape, settings, size, caches)
    states = state_rows(shape, settings)
    check_states(states)
    by_layer = [0] * shape.layers.all
    parts: dict[str, int] = {}
    for cache in caches:
        for layer, n_bytes in _bytes_by_layer(cache, settings):
            by_layer[layer] += n_bytes
            parts[cache.part] = parts.get(cache.part, 0) + n_bytes
    for row in states:
        by_layer[row.layer] += row.n_bytes
        parts["state"] = parts.get("state", 0) + row.n_bytes
    return ContextMemory(
        size=size,
        caches=caches,
        states=states,
        parts=parts,
        by_layer=tuple(by_layer),
        n_ctx_train=shape.n_ctx_train,
    )


def _bytes_by_layer(cache: Cache, settings: Settings) -> Iterator[tuple[int, int]]:
    # Most layers are alike, and a plan asks hundreds of times.
    known: dict[tuple[int, int], int] = {}
    for layer in cache.layers:
        shape = cache.key_elements(layer), cache.value_elements(layer)
        if shape not in known:
            known[shape] = layer_bytes(cache, layer, settings)
        yield layer, known[shape]


def layer_bytes(cache: Cache, layer: int, settings: Settings) -> int:
    """Bytes of one layer of a cache."""
    row = row_bytes(settings.type_k, cache.key_elements(layer))
    if not cache.heads.latent:
        row += row_bytes(settings.type_v, cache.value_elements(layer))
    return row * cache.cells * cache.streams
