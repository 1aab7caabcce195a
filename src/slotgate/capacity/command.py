"""The llama-server command that does what was planned, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.capacity.host_costs import (
    DEFAULT_CACHE_RAM_MIB,
    DEFAULT_CHECKPOINTS,
    HostCosts,
)
from slotgate.capacity.placement import HOST, experts_on_host
from slotgate.capacity.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slotgate.capacity.model import Model
    from slotgate.capacity.placement import Override
    from slotgate.capacity.usage import Usage
    from slotgate.capacity.wish import Wish

_DEFAULT = Settings()


def command_of(model: Model, usage: Usage, wish: Wish, host: HostCosts) -> tuple[str, ...]:
    """Return the words of the command; `--fit off` keeps llama.cpp from changing the plan."""
    settings = usage.settings
    flash = "off" if settings.flash_attn == "off" or model.shape.row.name == "grok" else "on"
    return (
        *("llama-server", "-m", model.source),
        *_placement(usage, wish),
        *("-c", str(usage.memory.n_ctx), "-np", str(settings.n_seq)),
        *_pool(settings, wish),
        *("-fa", flash, "-ctk", settings.type_k, "-ctv", settings.type_v),
        *_sizes(settings),
        *_host(host),
        *("--fit", "off"),
    )


def _placement(usage: Usage, wish: Wish) -> Iterator[str]:
    if not usage.on_gpus:
        if wish.n_gpu_layers == 0:  # there may be GPUs, which llama.cpp would use
            yield from ("-ngl", "0")
        return
    layers = usage.placement.n_gpu_layers
    # More than any model has: all of them, the output too.
    yield from ("-ngl", "999" if layers is None else str(layers))
    if wish.tensor_split:
        yield from ("-ts", ",".join(f"{share:g}" for share in wish.tensor_split))
    yield from _overrides(wish.overrides)


def _overrides(overrides: tuple[Override, ...]) -> Iterator[str]:
    """`--cpu-moe` and `--n-cpu-moe` for the overrides at the end that they stand for."""
    experts: tuple[str, ...] = ()
    for count in range(len(overrides), 0, -1):
        if overrides[-count:] == experts_on_host(count):
            experts = ("--n-cpu-moe", str(count))
            overrides = overrides[:-count]
            break
    if overrides[-1:] == experts_on_host():
        experts = ("--cpu-moe",)
        overrides = overrides[:-1]
    if overrides:
        # One option for all of them: llama.cpp warns of an option that is there twice.
        yield from ("-ot", ",".join(f"{one.pattern}={_buffer(one.device)}" for one in overrides))
    yield from experts


def _buffer(device: str) -> str:
    """What llama.cpp calls a device here."""
    return "CPU" if device == HOST else device


def _pool(settings: Settings, wish: Wish) -> Iterator[str]:
    if not settings.unified:
        return
    yield "--kv-unified"
    if wish.ctx_size is None:
        yield from ("--kv-unified-per-slot", str(settings.n_ctx // settings.n_seq))


def _sizes(settings: Settings) -> Iterator[str]:
    if settings.n_batch != _DEFAULT.n_batch:
        yield from ("-b", str(settings.n_batch))
    yield from ("-ub", str(settings.n_ubatch))
    if settings.swa_full:
        yield "--swa-full"


def _host(host: HostCosts) -> Iterator[str]:
    if host.checkpoint and host.checkpoints != DEFAULT_CHECKPOINTS:
        yield from ("--ctx-checkpoints", str(host.checkpoints))
    if host.cache_ram_mib != DEFAULT_CACHE_RAM_MIB:
        yield from ("--cache-ram", str(host.cache_ram_mib))
