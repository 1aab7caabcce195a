"""Which caches a context has: of which layers, how many cells each, in how many streams."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from slotgate.capacity.architectures import Indexer, Memory, Recurrent
from slotgate.capacity.settings import ContextSize, Settings, padded

if TYPE_CHECKING:
    from slotgate.capacity.heads import Heads
    from slotgate.capacity.shapes import Shape

# deepseek4 keeps a row for each of so many tokens, on the layers that say so.
SPARSE_RATIO, HEAVY_RATIO = 4, 128
# Their multi-token head attends densely, with a plain cache.
_DENSE_HEADS = {"bailingmoe3", "nemotron_h_moe", "qwen35", "qwen35moe", "qwen3next"}

# With these indexers all layers have a cache, the extra ones too.
_NEVER_FILTERED = {Indexer.AFTER_DENSE, Indexer.LISTED_IF_USED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """One cache of keys and values: `cells` tokens in each of `streams`, on `layers`.

    `transposed`: values are stored by element, each layer as wide as the widest.
    """

    part: str
    layers: tuple[int, ...]
    cells: int
    streams: int
    heads: Heads
    transposed: bool

    def key_elements(self, layer: int) -> int:
        """Elements of a cell's keys."""
        return self.heads.key_row(layer)

    def value_elements(self, layer: int) -> int:
        """Elements of a cell's values, as allocated."""
        return self.heads.widest_value_row() if self.transposed else self.heads.value_row(layer)


def caches_of(shape: Shape, settings: Settings, size: ContextSize) -> tuple[Cache, ...]:
    """All caches of a context; none for a model without memory or with states alone."""
    if shape.row.memory in {Memory.NONE, Memory.RECURRENT}:
        return ()
    builder = _Builder(shape, settings, size)
    if shape.row.memory is Memory.COMPRESSED and not settings.mtp:
        return builder.compressed()
    return builder.attention() + builder.indexers()


def holds_extra_layers_alone(shape: Shape) -> bool:
    """Whether the context of multi-token prediction leaves the trunk out, its states included."""
    if shape.row.memory is not Memory.HYBRID:
        return shape.row.indexer not in _NEVER_FILTERED
    return shape.row.name in _DENSE_HEADS or shape.row.indexer is not Indexer.NO


class _Builder:
    def __init__(self, shape: Shape, settings: Settings, size: ContextSize) -> None:
        self.shape = shape
        self.settings = settings
        self.size = size
        # Flash attention is what lets values lie beside keys; grok cannot use it.
        self.transposed = settings.flash_attn == "off" or shape.row.name == "grok"

    def attention(self) -> tuple[Cache, ...]:
        layers = [n for n in self._attended() if n < self.shape.own_cache_layers]
        windowed = self.shape.heads.windowed
        part = "latent" if self.shape.heads.latent else "full"
        full = self._cache(part, [n for n in layers if not windowed[n]], self.size.n_ctx_seq)
        if self.shape.window_tokens is None:
            return (full,)
        window = [n for n in layers if windowed[n]]
        return (full, self._cache("window", window, self.window_cells(self.settings.unified)))

    def indexers(self) -> tuple[Cache, ...]:
        if self.shape.row.indexer is Indexer.NO or not self.shape.index_size:
            return ()
        layers = [n for n in range(self.shape.layers.all) if self.shape.indexed[n]]
        heads = self.shape.heads.of_one_head(self.shape.index_size)
        if self.shape.row.memory is Memory.HYBRID:
            heads = replace(heads, latent=True)
            layers = self._extra() if self.settings.mtp else layers
        elif self.settings.mtp and holds_extra_layers_alone(self.shape):
            return ()
        return (self._cache("indexer", layers, self.size.n_ctx_seq, heads),)

    def compressed(self) -> tuple[Cache, ...]:
        """deepseek4: a window for all layers, and rows that stand for several tokens each.

        Each slot has a stream of its own, whatever was asked.
        """
        heads = replace(self.shape.heads, latent=True)
        index = heads.of_one_head(self.shape.index_size, everywhere=True)
        sparse, heavy = (self._with_ratio(ratio) for ratio in (SPARSE_RATIO, HEAVY_RATIO))
        everything = list(range(self.shape.layers.all))
        caches = (
            self._cache("full", [], self.size.n_ctx_seq, heads),
            self._cache("window", everything, self.window_cells(unified=False), heads),
            self._cache("compressed", sparse, self._compressed_cells(SPARSE_RATIO), heads),
            self._cache("compressed", heavy, self._compressed_cells(HEAVY_RATIO), heads),
            self._cache("indexer", sparse, self._compressed_cells(SPARSE_RATIO), index),
        )
        return tuple(replace(cache, streams=self.settings.n_seq) for cache in caches)

    def window_cells(self, unified: bool) -> int:  # noqa: FBT001 - it is the setting's own name
        if self.settings.swa_full:
            return self.size.n_ctx_seq
        windows = self.settings.n_seq if unified else 1
        needed = (self.shape.window_tokens or 0) * windows + self.size.n_ubatch
        return padded(min(self.size.n_ctx_seq, needed))

    def _cache(self, part: str, layers: list[int], cells: int, heads: Heads | None = None) -> Cache:
        return Cache(
            part=part,
            layers=tuple(layers),
            cells=cells,
            streams=self.size.streams,
            heads=heads or self.shape.heads,
            transposed=self.transposed,
        )

    def _attended(self) -> list[int]:
        """The layers that have keys and values."""
        everything = range(self.shape.layers.all)
        if self.settings.mtp and holds_extra_layers_alone(self.shape):
            return self._extra()
        if self.shape.row.memory is Memory.HYBRID:
            return [n for n in everything if self._attends_in_hybrid(n)]
        if self._leaves_extra_layers_out():
            return list(range(self.shape.layers.trunk))
        return list(everything)

    def _attends_in_hybrid(self, layer: int) -> bool:
        kind = self.shape.row.recurrent
        if kind is Recurrent.BESIDE_ATTENTION:
            return True
        attends = not self.shape.state.layers[layer]
        if kind is Recurrent.NO_KV_HEADS_NO_FFN:
            return attends and self.shape.layers.feed_forward[layer] == 0
        if kind is Recurrent.INTERVAL or self.shape.row.indexer is not Indexer.NO:
            return attends and layer < self.shape.layers.trunk
        return attends

    def _leaves_extra_layers_out(self) -> bool:
        if self.shape.row.indexer in _NEVER_FILTERED:
            return False
        layers, heads = self.shape.layers, self.shape.heads
        if self.shape.row.name == "dflash" and all(heads.windowed):
            return False
        return layers.all > layers.trunk > 0 and not layers.router

    def _extra(self) -> list[int]:
        return list(range(self.shape.layers.trunk, self.shape.layers.all))

    def _with_ratio(self, ratio: int) -> list[int]:
        return [n for n, own in enumerate(self.shape.compress_ratios) if own == ratio]

    def _compressed_cells(self, ratio: int) -> int:
        return padded(max(1, -(-self.size.n_ctx_seq // ratio)))
