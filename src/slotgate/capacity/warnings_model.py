"""What to know of a plan's model: each check returns a message, or None."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from slotgate.capacity import catalog
from slotgate.capacity.architectures import ARCHITECTURES, LLAMA_CPP_BUILD, Latent, Memory
from slotgate.capacity.context import memory_of
from slotgate.capacity.metadata import Keys
from slotgate.capacity.shapes import shape_of
from slotgate.capacity.units import show_size
from slotgate.errors import PlanRefused

if TYPE_CHECKING:
    from slotgate.capacity.replan import Replan


def unverified(what: Replan) -> str | None:
    """Nobody compared this architecture's formula with llama.cpp."""
    name = what.shape.row.name
    if what.model.is_verified:
        return None
    if name in ARCHITECTURES:
        return (
            f"{name} was read in llama.cpp but never compared with what it allocates: take the "
            "context's size for unverified, and leave room."
        )
    text = (
        f"{name} is not known to build {LLAMA_CPP_BUILD}, whose formulas these are: it is planned "
        "as keys and values of every layer for the whole context, unverified."
    )
    arrays = _arrays(what)
    if arrays:
        text += (
            f" Its header says more of single layers ({', '.join(arrays)}), so it may well take "
            "less or more."
        )
    return text


def of_the_catalog(what: Replan) -> str | None:
    """Planned without a file."""
    if what.model.header is not None:
        return None
    text = (
        f"Planned from keys alone, not from a file: the {show_size(what.model.weights_bytes)} of "
        "weights are what was given, spread evenly over the layers. With the file it is exact."
    )
    entry = catalog.lookup(what.model.name)
    if entry is not None and entry.note:
        text += f" Of this model's shape: {entry.note}."
    return text


def unchecked_shape(what: Replan) -> str | None:
    """Values of the catalog that were compared with nothing."""
    entry = None if what.model.header is not None else catalog.lookup(what.model.name)
    if entry is None or not entry.unchecked:
        return None
    return (
        f"The catalog's shape of {entry.name} was not checked against a file: {entry.unchecked}. "
        "Plan with the file itself before you rely on it."
    )


def refused_types(what: Replan) -> str | None:
    """Cache types that a block's size or flash attention rules out."""
    refused = [row for row in what.plan.table if row.refusal]
    if not refused:
        return None
    kinds = " and ".join(row.cache_type for row in refused)
    return f"llama.cpp cannot use {kinds} for this model's cache: {refused[0].refusal}."


def equal_types(what: Replan) -> str | None:
    """One row for keys and values has one type."""
    if not (what.shape.heads.latent or what.shape.row.memory is Memory.COMPRESSED):
        return None
    return (
        f"{what.shape.row.name} keeps one row for keys and values together: --cache-type-k and "
        "--cache-type-v must be the same, or llama.cpp refuses to start."
    )


def old_latent_file(what: Replan) -> str | None:
    """A DeepSeek file from before latent rows: full keys and values of all its heads."""
    converted = _converted(what)
    if converted is None:
        return None
    times = what.memory.total / converted
    return (
        "The file lacks attention.key_length_mla and attention.value_length_mla, so llama.cpp "
        f"keeps keys and values of every head: {show_size(what.memory.total)} instead of "
        f"{show_size(converted)}, {times:.0f} times as much. Convert the model again."
    )


def t5_slots(what: Replan) -> str | None:
    """llama.cpp aborts on T5 with several streams."""
    if what.shape.row.name != "t5":
        return None
    return (
        "llama.cpp aborts on t5 with several slots of their own: use one slot, or --kv-unified. "
        "What it read of the input is in the scratch, not in the context."
    )


def mtp_context(what: Replan) -> str | None:
    """The second context of speculation by the model's own extra layers."""
    layers, settings = what.shape.layers, what.settings
    extra = layers.all - layers.trunk
    if settings.n_rs_seq == 0 or extra == 0 or layers.router:
        return None
    second = replace(settings, mtp=True, type_k="f16", type_v="f16", n_rs_seq=0)
    try:
        memory = memory_of(what.shape, second)
    except PlanRefused:
        return None
    whole = what.model.weights(replace(what.usage.placement, loaded_layers=None))
    weights = whole.total - what.usage.weights.total
    with_weights = f", and {show_size(weights)} of weights" if weights > 0 else ""
    return (
        f"Speculation by the model's own {extra} extra layers (--spec-type draft-mtp) opens a "
        f"second context: {show_size(memory.total)}{with_weights}, with scratch of its own. "
        "They are not in this plan: leave room for them."
    )


def _arrays(what: Replan) -> list[str]:
    """The keys that give a number for each layer."""
    keys = Keys(what.model.meta)
    prefix, layers = f"{keys.architecture}.", what.shape.layers.all
    mine = (key.removeprefix(prefix) for key in what.model.meta if key.startswith(prefix))
    return [key for key in mine if len(keys.array(key) or ()) == layers]


def _converted(what: Replan) -> int | None:
    """Bytes of the context if the file had latent rows; None if it has, or could not have."""
    row, meta = what.shape.row, what.model.meta
    rank = Keys(meta).number("attention.kv_lora_rank", 0)
    if row.latent is not Latent.IF_KEYS or what.shape.heads.latent or rank <= 0:
        return None
    key = rank + Keys(meta).number("rope.dimension_count", 0)
    latent = {
        "attention.head_count_kv": 1,
        "attention.key_length": key,
        "attention.value_length": rank,
        "attention.key_length_mla": what.shape.heads.key,
        "attention.value_length_mla": what.shape.heads.value,
    }
    newer = {**meta, **{f"{row.name}.{name}": value for name, value in latent.items()}}
    same = replace(what.settings, type_v=what.settings.type_k)
    return memory_of(shape_of(newer), same).total or None
