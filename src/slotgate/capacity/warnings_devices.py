"""What to know of a plan's devices: each check returns a message, or None."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.capacity.compute import MARGIN_PERCENT
from slotgate.capacity.host_costs import DEFAULT_CHECKPOINTS
from slotgate.capacity.metadata import Keys
from slotgate.capacity.outcomes import size_in_words
from slotgate.capacity.placement import HOST
from slotgate.capacity.units import show_size

if TYPE_CHECKING:
    from slotgate.capacity.replan import Replan


def does_not_fit(what: Replan) -> str | None:
    """What lacks, and the most that would fit."""
    short = [use for use in what.usage.devices if use.left is not None and use.left < 0]
    if not short:
        return None
    lacking = ", ".join(f"{use.name} lacks {show_size(-(use.left or 0))}" for use in short)
    return f"This does not fit: {lacking}. {_largest(what)}"


def partial_offload(what: Replan) -> str | None:
    """Layers that the GPUs have no room for."""
    placement = what.usage.placement
    layers = what.shape.layers.trunk or what.shape.layers.all
    on_host = sum(placement.device_of_layer(layer) == HOST for layer in range(layers))
    if not what.usage.on_gpus or on_host == 0:
        return None
    return (
        f"{on_host} of {layers} layers stay on the host, with {_host_part(what)}: every token "
        f"waits for them. {_instead(what)}"
    )


def host_memory(what: Replan) -> str | None:
    """Checkpoints, which nobody asked for."""
    host = what.plan.host
    if host.all_checkpoints == 0:
        return None
    text = (
        f"Beside the model the host keeps up to {_counted(host.checkpoints, 'checkpoint')} of "
        f"{show_size(host.checkpoint)} for each of {_counted(host.slots, 'slot')}, "
        f"{show_size(host.all_checkpoints)}, and {show_size(host.cache_ram)} of prompts "
        "(--ctx-checkpoints, --cache-ram)."
    )
    if host.checkpoints < DEFAULT_CHECKPOINTS:
        most = DEFAULT_CHECKPOINTS * host.checkpoint * host.slots
        text += f" llama-server's own {DEFAULT_CHECKPOINTS} would come to {show_size(most)}."
    return text


def host_memory_short(what: Replan) -> str | None:
    """A host that cannot hold what it is told to keep."""
    host = what.plan.host
    if host.free is None or host.total <= host.free:
        return None
    return (
        f"The host has {show_size(max(host.free, 0))} beside the model, and prompts and "
        f"checkpoints may come to {show_size(host.total)}: lower --cache-ram "
        f"({host.cache_ram_mib} MiB) or --ctx-checkpoints ({host.checkpoints})."
    )


def prompt_not_kept(what: Replan) -> str | None:
    """A prompt larger than the whole cache for prompts is thrown away."""
    host = what.plan.host
    one = host.prompt + host.checkpoints * host.checkpoint
    if host.cache_ram_mib <= 0 or one <= host.cache_ram:
        return None
    checkpoints = " with its checkpoints" if host.checkpoints else ""
    return (
        f"A prompt that fills a slot takes {show_size(one)}{checkpoints}, more than all of "
        f"--cache-ram ({show_size(host.cache_ram)}): llama-server does not keep it, and reads it "
        "again from its beginning once the slot has served another."
    )


def f16_copy(what: Replan) -> str | None:
    """On CUDA a quantised layer is copied to f16 before attention reads it."""
    copy = what.usage.compute.parts.get("f16_copy", 0)
    if copy == 0:
        return None
    cache = sum(what.memory.parts.values()) - what.memory.parts.get("state", 0)
    return (
        f"On NVIDIA and AMD cards llama.cpp keeps an f16 copy of one quantised layer: "
        f"{show_size(copy)} of scratch, planned with its margin of {MARGIN_PERCENT} %, beside a "
        f"cache of {show_size(cache)}. Quantising saves that much less."
    )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _largest(what: Replan) -> str:
    slots, tokens = what.settings.n_seq, what.own_tokens
    context = what.largest_context(what.plan.wish, slots)
    most = what.most_slots(what.plan.wish, tokens)
    fitting = []
    if most:
        fitting.append(size_in_words(most, tokens))
    if context:
        fitting.append(size_in_words(slots, context))
    if fitting:
        return f"There is room for {', or '.join(fitting)}."
    return (
        f"Nor would fewer slots or less context: the weights alone take "
        f"{show_size(what.usage.weights.total)}. Take a smaller quantisation of the model, or put "
        "fewer layers on the GPU (--n-gpu-layers)."
    )


def _instead(what: Replan) -> str:
    text = "A smaller quantisation of the model, or a larger card, is faster"
    if Keys(what.model.meta).number("expert_count", 0) == 0:
        return f"{text}."
    return f"{text}; so are the experts alone on the host, --n-cpu-moe N without -ngl."


def _host_part(what: Replan) -> str:
    host = what.usage.devices[-1]
    return f"{show_size(host.weights)} of weights and {show_size(host.context)} of context"
