"""One micro-batch's way through a model: the sizes that its scratch is computed from.

llama.cpp lays tensors out one behind the other, and puts a new one into the smallest gap that
holds it.  Three rows of n_embd are always there: the batch's embeddings, if it has any, twice, and
a copy.  Two more hold what a layer got and its norm.  What a phase needs comes behind them, but for
what finds room in the gap that one of the rows has left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slotgate.capacity.architectures import Memory
from slotgate.capacity.compute_facts import FACTS, Fact

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slotgate.capacity.caches import Cache
    from slotgate.capacity.context import ContextMemory
    from slotgate.capacity.metadata import Keys
    from slotgate.capacity.settings import Settings
    from slotgate.capacity.shapes import Shape

ELEMENT_BYTES = 4
# Parts of a context's memory that queries are compared with.
_ATTENDED = {"full", "latent", "window"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The sizes of a micro-batch and of what it meets.

    `tokens`: of a micro-batch, a multiple of the sequences; `outputs`: tokens that get an answer.
    `sees_batch_alone`: attention reads no cache, even if there is one.
    `caches`: those that are read, each through a mask.
    `cells`: the most that a query is compared with; 0 without attention.
    `heads`, `queries`, `mixed`, `key_row`, `value_row`: of the widest layer: query heads, elements
    of all queries, of all heads' results, of a cell's keys and values.
    """

    keys: Keys
    shape: Shape
    settings: Settings
    tokens: int
    outputs: int
    streams: int
    sees_batch_alone: bool
    caches: tuple[Cache, ...]
    cells: int
    heads: int
    queries: int
    mixed: int
    key_row: int
    value_row: int

    def is_(self, fact: Fact) -> bool:
        """Whether the fact is true of the architecture."""
        return self.shape.row.name in FACTS[fact]

    def rows(self, elements: int) -> int:
        """Bytes of so many elements for each token."""
        return ELEMENT_BYTES * elements * self.tokens

    @property
    def row(self) -> int:
        """Bytes of one row of the model's width for each token."""
        return self.rows(self.shape.n_embd)

    @property
    def without_flash(self) -> bool:
        return self.settings.flash_attn == "off" or self.shape.row.name == "grok"

    @property
    def sequences_apart(self) -> bool:
        """Whether a stream of cells holds one sequence only."""
        return self.settings.n_seq == 1 or self.streams > 1


def work_of(
    keys: Keys,
    shape: Shape,
    settings: Settings,
    memory: ContextMemory,
    n_outputs: int | None = None,
) -> Work:
    """Gather the sizes; without `n_outputs`, as many tokens get an answer as llama-server asks."""
    n_seq, size = settings.n_seq, memory.size
    if n_outputs is None:
        n_outputs = n_seq * (1 + settings.n_rs_seq)
    batch = min(size.n_ctx, size.n_ubatch)
    tokens = -(-batch // n_seq) * n_seq
    alone = shape.row.memory is Memory.NONE or shape.row.name in FACTS[Fact.NO_CACHE]
    caches = () if alone else tuple(cache for cache in memory.caches if cache.layers)
    read = [cache.cells for cache in caches if cache.part in _ATTENDED]
    layers = range(shape.layers.all)
    heads = shape.layers.query_heads
    everything = shape.row.name in FACTS[Fact.ALL_OUTPUTS]
    return Work(
        keys=keys,
        shape=shape,
        settings=settings,
        tokens=tokens,
        outputs=tokens if everything else min(n_outputs, batch),
        streams=size.streams,
        sees_batch_alone=alone,
        caches=caches,
        cells=tokens if alone else max(read, default=0),
        heads=max(heads),
        queries=max(heads[n] * shape.heads.key_size(n) for n in layers),
        mixed=max(heads[n] * shape.heads.value_size(n) for n in layers),
        key_row=max(map(shape.heads.key_row, layers)),
        value_row=max(map(shape.heads.value_row, layers)),
    )


def spilled(sizes: Iterable[int], gaps: Iterable[int]) -> int:
    """How much of the sizes finds no gap, each in turn taking the smallest that holds it."""
    left, rest = list(gaps), 0
    for size in sizes:
        gap = min((gap for gap in left if gap >= size), default=None)
        if gap is None:
            rest += size
        else:
            left.remove(gap)
            left.append(gap - size)
    return rest
