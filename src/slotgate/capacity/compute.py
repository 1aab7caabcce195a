"""How much scratch llama.cpp takes to compute one batch: an estimate, and a bound for it.

total = inputs + rows + the widest phase (+ a copy of one layer's cache, on CUDA)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slotgate.capacity.context import ContextMemory, memory_of
from slotgate.capacity.metadata import Keys
from slotgate.capacity.shapes import Shape, shape_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slotgate.capacity.metadata import Meta
    from slotgate.capacity.settings import Settings

_MARGIN_PERCENT = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeEstimate:
    """The scratch of one context, in bytes.

    `parts`: by what it is for; `phase_name` is the phase that `parts["phase"]` is about.
    `host_outputs`: what the host keeps of the answers besides: a row of the vocabulary for each
    slot.
    """

    parts: Mapping[str, int]
    phase_name: str
    host_outputs: int
    bound: str

    @property
    def total(self) -> int:
        """The estimate."""
        return sum(self.parts.values())

    @property
    def planned(self) -> int:
        """What to plan with: not less than llama.cpp takes."""
        return -(-self.total * (100 + _MARGIN_PERCENT) // 100)

    @property
    def inputs(self) -> int:
        """The part that the host gives to the device for each batch."""
        return self.parts["mask"] + self.parts["inputs"]


def compute_bytes(
    meta: Meta,
    settings: Settings,
    *,
    n_outputs: int | None = None,
    backend: str = "cpu",
    copies: int = 1,
) -> ComputeEstimate:
    """Estimate the scratch of a context."""
    keys, shape = Keys(meta), shape_of(meta)
    memory = memory_of(shape, settings)
    n_seq = settings.n_seq
    tokens = -(-min(memory.size.n_ctx, memory.size.n_ubatch) // n_seq) * n_seq
    outputs = n_outputs if n_outputs is not None else n_seq * (1 + settings.n_rs_seq)
    phases = _phases(keys, shape, settings, memory, tokens)
    vocabulary = keys.number("vocab_size", 0) or keys.vocabulary()
    phases["logits"] = 4 * outputs * vocabulary
    widest = max(phases, key=phases.__getitem__)
    element = 4 if settings.flash_attn == "off" else 2
    cells = {cache.part: cache.cells for cache in memory.caches}
    mask = element * tokens * sum(cells.values()) * copies
    parts = {
        "mask": mask,
        "inputs": 4 * shape.n_embd * tokens,
        "rows": 4 * 4 * shape.n_embd * tokens,
        "phase": phases[widest],
    }
    return ComputeEstimate(
        parts=parts,
        phase_name=widest,
        host_outputs=4 * n_seq * vocabulary,
        bound="within 20 %",
    )


def _phases(
    keys: Keys, shape: Shape, settings: Settings, memory: ContextMemory, tokens: int
) -> dict[str, int]:
    heads = max(shape.layers.query_heads, default=0)
    layers = range(shape.layers.all)
    queries = heads * max(map(shape.heads.key_size, layers))
    attention = 3 * queries + 2 * max(map(shape.heads.key_row, layers))
    if settings.flash_attn == "off":
        attention += heads * memory.size.n_ctx_seq
    ff = max(shape.layers.feed_forward)
    used = keys.number("expert_used_count", 0)
    expert = keys.number("expert_feed_forward_length", 0) or ff
    moe = 3 * used * max(expert, shape.n_embd)
    phases = {"attention": attention, "feed-forward": 3 * ff, "experts": moe}
    return {name: 4 * elements * tokens for name, elements in phases.items()}
