"""The feed-forward network of a layer, its experts, and the answer's logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.capacity.compute_facts import Fact
from slotgate.capacity.compute_work import ELEMENT_BYTES, Work, spilled

if TYPE_CHECKING:
    from collections.abc import Mapping

# gemma3n's inputs of a layer are so wide, whatever the file says.
_GEMMA3N_INPUT = 256


def network_phases(work: Work) -> Mapping[str, int]:
    """The phases of a layer beside attention, in bytes."""
    wide = max(work.shape.layers.feed_forward)
    if work.is_(Fact.HALF_WIDE):
        wide //= 2
    kept = work.queries if work.is_(Fact.BESIDE_ATTENTION) else 0
    phases = {}
    experts = work.keys.number("expert_count", 0) > 0
    if not experts or _has_dense_layers(work):
        phases["feed-forward"] = work.rows(_dense(work, wide) + kept)
    if experts:
        phases["experts"] = work.rows(_experts(work, wide) + kept)
    inputs = layer_inputs(work)
    if inputs:
        phases["per-layer inputs"] = work.rows(_with_layer_inputs(work, wide, inputs))
    return phases


def logits_bytes(work: Work, inputs: int) -> int:
    """The logits, if they do not find room where the masks and other inputs were."""
    if work.is_(Fact.NO_LOGITS):
        return 0
    logits = ELEMENT_BYTES * work.outputs * work.keys.vocabulary()
    norm = ELEMENT_BYTES * work.outputs * work.shape.n_embd
    copy = logits if work.is_(Fact.LOGITS_COPIED) else 0
    # The norm, which they are made of, may lie in the midst of that room.
    return logits + copy if logits > inputs - norm else copy


def _has_dense_layers(work: Work) -> bool:
    return work.keys.number("leading_dense_block_count", 0) > 0 or work.is_(Fact.DENSE_TOO)


def _dense(work: Work, wide: int) -> int:
    if work.is_(Fact.NO_GATE):
        return wide
    return _gated(wide, work.shape.n_embd)


def _gated(wide: int, gap: int) -> int:
    """Two products and what is made of them; the norm's row is a gap by then."""
    return spilled([wide, wide], [gap]) + spilled([wide], [gap])


def _experts(work: Work, wide: int) -> int:
    """The same for all experts of a token, and then a row of the model's width from each."""
    used = work.keys.number("expert_used_count", 0)
    if not work.is_(Fact.FFN_EXPERTS):
        wide = work.keys.number("expert_feed_forward_length", 0) or wide
    n_embd = work.shape.n_embd
    weighted = used * n_embd if work.is_(Fact.WEIGHTED_INPUT) else 0
    results = spilled([used * n_embd], [2 * used * wide, n_embd])
    if work.is_(Fact.NO_GATE):
        return used * wide + spilled([used * n_embd], [n_embd])
    # Which experts were chosen is noted in the gap.
    gap = n_embd - work.keys.number("expert_count") - used
    return _gated(used * wide, gap) + results + weighted


def layer_inputs(work: Work) -> int:
    """Elements of the inputs that each layer gets besides, of all layers."""
    width = work.keys.number("embedding_length_per_layer_input", 0)
    if work.shape.row.name == "gemma3n":
        width = _GEMMA3N_INPUT
    return width * work.shape.layers.all


def kept_for_layers(work: Work) -> int:
    """Bytes that are there besides while a layer attends."""
    streams = 8 * work.row if work.shape.row.name == "gemma3n" else 0
    return work.rows(layer_inputs(work)) + streams


def _with_layer_inputs(work: Work, wide: int, inputs: int) -> int:
    """They are made in four steps of their size; two of them stay there all along."""
    if work.shape.row.name != "gemma3n":
        return max(4 * inputs, 2 * inputs + 3 * wide - (wide if wide <= inputs else 0))
    n_embd = work.shape.n_embd
    predicted = 3 * wide + spilled([4 * n_embd, n_embd], [inputs])
    return max(4 * inputs, 2 * inputs + predicted, 2 * inputs + 15 * n_embd)
