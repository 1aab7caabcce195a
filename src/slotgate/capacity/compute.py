"""How much scratch llama.cpp takes to compute one micro-batch: an estimate, and how far it errs.

    total   = mask + inputs + the widest phase
    mask    = for each cache: cells x tokens x 2 bytes with flash attention, 4 without
    inputs  = 5 rows of n_embd, 4 bytes each, and small ones
    phase   = the most of
              attention      2 x queries, and keys where they find no gap
              scores         the same + heads x cells                     (flash attention off)
              feed-forward   3 x n_ff, or n_ff without a gate
              experts        3 x used x n_ff_exp, + used x n_embd where that is more than two
              recurrent      products, convolution, scan and the states of all slots
              logits         outputs x vocabulary
    f16_copy = on CUDA, one layer of a quantised cache as f16, since PR #23907

Every number of a phase is one f32 for each token of the micro-batch.  What differs between
architectures is in `compute_facts`.

The graphs are those of llama.cpp build 11434, and so is the data that the estimate was held
against, on its CPU backend; builds before PR #23861 computed logits for every token
(`n_outputs=EVERY_TOKEN`).  Scratch is not exact: llama.cpp fills gaps in the order of its graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from slotgate.capacity.compute_attention import attention_phases
from slotgate.capacity.compute_inputs import index_bytes, mask_bytes, row_bytes_always
from slotgate.capacity.compute_networks import logits_bytes, network_phases
from slotgate.capacity.compute_recurrent import recurrent_phases
from slotgate.capacity.compute_work import ELEMENT_BYTES, Work, work_of
from slotgate.capacity.context import memory_of
from slotgate.capacity.metadata import Keys
from slotgate.capacity.shapes import shape_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slotgate.capacity.metadata import Meta
    from slotgate.capacity.settings import Settings

Backend = Literal["cpu", "cuda"]
# For `n_outputs`: embeddings, reranking, and builds before PR #23861.
EVERY_TOKEN = 1 << 31
# With two or more GPUs, all layers on them and split by layer, llama.cpp holds so many inputs.
PIPELINE_COPIES = 4
MARGIN_PERCENT = 20
_F16_BYTES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeEstimate:
    """The scratch of one context, in bytes.

    `parts`: by what it is for: mask, inputs, phase; on CUDA f16_copy, in a pipeline copies.
    `phase_name`: which phase is the widest, the one that `parts["phase"]` is about.
    `host_outputs`: what the host keeps of the answers besides: a row of the vocabulary a slot.
    """

    parts: Mapping[str, int]
    phase_name: str
    host_outputs: int

    @property
    def total(self) -> int:
        """The estimate."""
        return sum(self.parts.values())

    @property
    def planned(self) -> int:
        """What to plan with: the estimate and its margin."""
        return -(-self.total * (100 + MARGIN_PERCENT) // 100)

    @property
    def inputs(self) -> int:
        """The part that the host has, too, if it feeds a device."""
        return self.parts["mask"] + self.parts["inputs"]

    @property
    def bound(self) -> str:
        """How far it may be off, in a sentence."""
        if "f16_copy" in self.parts:
            return (
                "An estimate: measured on the CPU backend of llama.cpp, where it is within 15 % of "
                "nearly every size; on GPUs it rests on the same graphs and was not measured."
            )
        return (
            f"An estimate: within 15 % of nearly every size measured; {MARGIN_PERCENT} % are "
            "planned on top, which covered all but a few headers made at random."
        )


def compute_bytes(
    meta: Meta,
    settings: Settings,
    *,
    n_outputs: int | None = None,
    backend: Backend = "cpu",
    copies: int = 1,
) -> ComputeEstimate:
    """Estimate the scratch of a context with these settings, from a header's keys.

    `n_outputs`: tokens of a micro-batch that get an answer; None is what llama-server asks for,
    one a slot and one for each drafted token.  `copies`: how often inputs are there, which is
    PIPELINE_COPIES times in a pipeline of GPUs.
    Raises PlanRefused where llama.cpp would refuse the model or the settings.
    """
    keys, shape = Keys(meta), shape_of(meta)
    work = work_of(keys, shape, settings, memory_of(shape, settings), n_outputs)
    return compute_of(work, backend=backend, copies=copies)


def compute_of(work: Work, *, backend: Backend, copies: int) -> ComputeEstimate:
    """The same for sizes that have been gathered already."""
    mask, indices = mask_bytes(work), index_bytes(work)
    phases = {
        **network_phases(work),
        **attention_phases(work),
        **recurrent_phases(work),
        "logits": logits_bytes(work, mask + indices),
    }
    widest = max(phases, key=phases.__getitem__)
    parts = {"mask": mask, "inputs": indices + row_bytes_always(work), "phase": phases[widest]}
    if backend == "cuda":
        parts["f16_copy"] = _f16_copy(work)
    if copies > 1:
        parts["copies"] = (copies - 1) * (mask + indices + work.row)
    return ComputeEstimate(
        parts=MappingProxyType(parts),
        phase_name=widest,
        host_outputs=ELEMENT_BYTES * work.settings.n_seq * work.keys.vocabulary(),
    )


def _f16_copy(work: Work) -> int:
    """The layer that takes the most; f32 is copied by the graph itself, on every backend."""
    if work.without_flash:
        return 0
    as_it_is = {"f16", "f32"}
    widest = 0
    for cache in work.caches:
        for layer in cache.layers:
            elements = 0
            if work.settings.type_k not in as_it_is:
                elements += cache.key_elements(layer)
            if work.settings.type_v not in as_it_is and not cache.heads.latent:
                elements += cache.value_elements(layer)
            widest = max(widest, _F16_BYTES * elements * cache.cells * cache.streams)
    return widest
