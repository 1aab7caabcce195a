"""What an engine of ours is started with: slots and context that the memory at hand affords.

| memory is | slots or context are | then |
|---|---|---|
| not said | not said | 4 slots of 4,096 tokens, or less where they do not fit |
| not said | said | as said, with a warning where they do not fit |
| said, or auto | not said | 4 slots as long as fits, fewer if they would be shorter than 4,096 |
| said, or auto | only the context is said | as many slots of it as fit |
| said, or auto | said | as said; refused where they do not fit |

Each slot's context is its own: no two can together want more than there is.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from slotgate.backends.binary import list_gpus
from slotgate.backends.devices import measure_devices
from slotgate.backends.options import BATCH_TOKENS, EngineOptions
from slotgate.capacity.devices import DeviceKind, DeviceSet, by_hand, keeping_prompts, parse_memory
from slotgate.capacity.header import read_header
from slotgate.capacity.host_costs import DEFAULT_CACHE_RAM_MIB, DEFAULT_CHECKPOINTS
from slotgate.capacity.model import Model, model_of_file
from slotgate.capacity.placement import HOST
from slotgate.capacity.plan import Plan, make_plan
from slotgate.capacity.settings import padded
from slotgate.capacity.units import show_size
from slotgate.capacity.warnings import warnings_of
from slotgate.capacity.wish import DEFAULT_SLOTS, Wish
from slotgate.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from slotgate.backends.models import ResolvedModel

# Of all that a plan warns of, what makes an engine slow or fail; `slotgate plan` says the rest.
_SAID = frozenset(
    {"partial-offload", "host-memory-short", "old-latent-file", "unified-saves", "unverified"}
)
# Room for a conversation of some length.
DEFAULT_SLOT_TOKENS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineWish:
    """What the user asked of an engine; None leaves it to the plan.

    `memory` is as `--memory` says it: sizes of GPUs (or of the host, without any), or `auto`.
    """

    parallel: int | None = None
    ctx_per_slot: int | None = None
    memory: str | None = None
    cache_type: str | None = None
    kv_unified: bool = False
    threads: int | None = None
    llama_server: Path | None = None
    args: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """What to start, and what to tell the user about it."""

    options: EngineOptions
    sentences: tuple[str, ...]


async def plan_engine(model: ResolvedModel, alias: str, wish: EngineWish) -> EnginePlan:
    """Read the model's header, look at the memory, and choose.

    Raises HeaderError, PlanRefused, or ConfigError if what is asked does not fit into the memory
    that was given.
    """
    header = await asyncio.to_thread(read_header, model.path)
    planned = model_of_file(header, name=model.name, source=str(model.path))
    devices = await _devices(wish)
    plan = await asyncio.to_thread(_choose, planned, devices, wish)
    return EnginePlan(_options(plan, model, alias, wish), _sentences(plan, wish))


# Memory.


async def _devices(wish: EngineWish) -> DeviceSet:
    sizes = parse_memory(wish.memory) if wish.memory is not None else None
    if sizes is None:
        return await _measured(wish)
    if wish.llama_server is None and sys.platform != "darwin":
        return by_hand((), host_bytes=sum(sizes))
    if wish.llama_server is not None and not await list_gpus(wish.llama_server):
        return by_hand((), host_bytes=sum(sizes))
    return by_hand(sizes)


async def _measured(wish: EngineWish) -> DeviceSet:
    """The memory that the engine itself would use: only a binary built for GPUs uses those."""
    devices = await asyncio.to_thread(measure_devices)
    if wish.llama_server is not None:
        gpus = await list_gpus(wish.llama_server)
        return keeping_prompts(replace(devices, gpus=gpus))
    unified = tuple(gpu for gpu in devices.gpus if gpu.kind is DeviceKind.UNIFIED)
    # The engine in our wheel computes on Metal where there is one, and on the CPU elsewhere.
    return keeping_prompts(replace(devices, gpus=unified if sys.platform == "darwin" else ()))


# The choice.


def _choose(model: Model, devices: DeviceSet, asked: EngineWish) -> Plan:
    wish = Wish(
        slots=asked.parallel,
        ctx_per_slot=asked.ctx_per_slot,
        unified=asked.kv_unified,
        type_k=asked.cache_type or "f16",
        type_v=asked.cache_type or "f16",
        n_batch=BATCH_TOKENS,
        n_ubatch=BATCH_TOKENS,
    )
    if asked.memory is not None:
        return _within(make_plan(model, devices, wish))
    return _modest(model, devices, wish)


def _within(plan: Plan) -> Plan:
    if plan.fits:
        return plan
    most = make_plan(plan.model, plan.devices, replace(plan.wish, slots=None, ctx_per_slot=None))
    instead = f"; {_slots(most)} would fit" if most.fits else ""
    raise ConfigError(f"{_slots(plan)} do not fit: {_bytes(plan)}{instead}")


def _modest(model: Model, devices: DeviceSet, wish: Wish) -> Plan:
    """Not all the memory of a machine that has other things to do."""
    tokens = min(DEFAULT_SLOT_TOKENS, padded(model.shape.n_ctx_train))
    modest = replace(
        wish, slots=wish.slots or DEFAULT_SLOTS, ctx_per_slot=wish.ctx_per_slot or tokens
    )
    plan = make_plan(model, devices, modest)
    if plan.fits or (wish.slots and wish.ctx_per_slot):
        return plan
    smaller = make_plan(model, devices, wish)
    return smaller if smaller.fits else plan


# What is made of it.


def _options(plan: Plan, model: ResolvedModel, alias: str, wish: EngineWish) -> EngineOptions:
    usage, host = plan.usage, plan.host
    all_layers = plan.model.shape.layers.all + 1
    placed = usage.placement.n_gpu_layers
    kept = host.cache_ram_mib != DEFAULT_CACHE_RAM_MIB
    checks = host.checkpoint and host.checkpoints != DEFAULT_CHECKPOINTS
    return EngineOptions(
        model=model.path,
        alias=alias,
        parallel=plan.slots,
        ctx_size=usage.memory.n_ctx,
        threads=wish.threads,
        kv_unified=wish.kv_unified,
        kv_unified_per_slot=plan.ctx_per_slot if wish.kv_unified else None,
        cache_type_k=wish.cache_type,
        cache_type_v=wish.cache_type,
        gpu_layers=(all_layers if placed is None else placed) if usage.on_gpus else None,
        cache_ram_mib=host.cache_ram_mib if kept else None,
        ctx_checkpoints=host.checkpoints if checks else None,
        llama_server=wish.llama_server,
        extra_args=wish.args,
    )


def _sentences(plan: Plan, wish: EngineWish) -> tuple[str, ...]:
    change = "change it with --parallel, --ctx-size or --memory"
    notes = (warning.message for warning in warnings_of(plan) if warning.code in _SAID)
    return (
        f"planned {_slots(plan)} ({_why(plan, wish)}); {change}",
        f"memory: {_bytes(plan)}",
        *(f"note: {note}" for note in notes),
    )


def _slots(plan: Plan) -> str:
    if plan.slots == 1:
        return f"1 slot of {plan.ctx_per_slot:,} tokens"
    return f"{plan.slots} slots of {plan.ctx_per_slot:,} tokens each"


def _why(plan: Plan, wish: EngineWish) -> str:
    trained = plan.model.shape.n_ctx_train
    if not plan.fits:
        return "as asked, but more than is free: it may fail or be slow"
    if wish.ctx_per_slot:
        if wish.ctx_per_slot > trained:
            return f"more was asked, but the model was trained for {trained:,}"
        return "as many as fit" if wish.memory and not wish.parallel else "as asked"
    if plan.ctx_per_slot >= trained:
        return "all that the model was trained for"
    if wish.memory or plan.ctx_per_slot < DEFAULT_SLOT_TOKENS:
        return "as long as fits"
    return f"the model was trained for {trained:,}"


def _bytes(plan: Plan) -> str:
    """What is taken of which memory."""
    parts = []
    for use in plan.usage.devices:
        if use.device is None or not use.used:
            continue
        what = (("weights", use.weights), ("context", use.context), ("scratch", use.compute))
        sizes = " + ".join(f"{name} {show_size(size)}" for name, size in what if size)
        parts.append(f"{sizes} of {show_size(use.device.budget_bytes)} on {_place(use.name)}")
    return ", ".join(parts)


def _place(name: str) -> str:
    return "the host" if name == HOST else name
