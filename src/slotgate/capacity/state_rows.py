"""The recurrent states of a context, layer by layer: f32, for each slot, whatever the context."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from slotgate.capacity.architectures import Memory
from slotgate.capacity.caches import HEAVY_RATIO, SPARSE_RATIO, holds_extra_layers_alone

if TYPE_CHECKING:
    from slotgate.capacity.settings import Settings
    from slotgate.capacity.shapes import Shape

ELEMENT_BYTES = 4
# llama.cpp begins each tensor at a multiple of this.
ALIGNMENT_BYTES = 32


class StateRow(NamedTuple):
    """The state of one layer: elements of one slot, and bytes of all slots with their rollbacks."""

    layer: int
    elements: int
    n_bytes: int


def state_rows(shape: Shape, settings: Settings) -> tuple[StateRow, ...]:
    """The states of all recurrent layers, or of deepseek4's compressors."""
    copies = settings.n_seq * (1 + rollbacks(shape, settings))
    if shape.row.memory is Memory.COMPRESSED:
        return () if settings.mtp else _compressors(shape, copies)
    if shape.row.memory not in {Memory.RECURRENT, Memory.HYBRID} or _mtp_has_none(shape, settings):
        return ()
    state = shape.state
    rows = []
    for layer in (n for n in range(shape.layers.trunk) if state.layers[n]):
        tensors = [state.shifted, state.state]
        if layer in state.history_layers:
            tensors.append(state.history)
        rows.append(_row(layer, tensors, copies))
    return tuple(rows)


def rollbacks(shape: Shape, settings: Settings) -> int:
    """How many earlier states are kept: none where the architecture cannot go back."""
    return settings.n_rs_seq if shape.row.rollback else 0


def _mtp_has_none(shape: Shape, settings: Settings) -> bool:
    is_hybrid = shape.row.memory is Memory.HYBRID
    return is_hybrid and settings.mtp and holds_extra_layers_alone(shape)


def _compressors(shape: Shape, copies: int) -> tuple[StateRow, ...]:
    head, index = shape.heads.key_size(0), shape.index_size
    sparse, heavy = 2 * SPARSE_RATIO, HEAVY_RATIO
    tensors = {
        SPARSE_RATIO: [2 * head * sparse] * 2 + [2 * index * sparse] * 2,
        HEAVY_RATIO: [head * heavy] * 2,
    }
    layers = (n for n in range(shape.layers.trunk) if shape.compress_ratios[n] in tensors)
    return tuple(_row(n, tensors[shape.compress_ratios[n]], copies) for n in layers)


def _row(layer: int, tensors: list[int], copies: int) -> StateRow:
    sizes = (ELEMENT_BYTES * elements * copies for elements in tensors)
    n_bytes = sum(-(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES for size in sizes)
    return StateRow(layer, sum(tensors), n_bytes)
