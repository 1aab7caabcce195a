"""The llama-server command that does what was planned, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.capacity.host_costs import (
    DEFAULT_CACHE_RAM_MIB,
    DEFAULT_CHECKPOINTS,
    HostCosts,
)
from slotgate.capacity.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slotgate.capacity.model import Model
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
        return
    layers = usage.placement.n_gpu_layers
    # More than any model has: all of them, the output too.
    yield from ("-ngl", "999" if layers is None else str(layers))
    if wish.tensor_split:
        yield from ("-ts", ",".join(f"{share:g}" for share in wish.tensor_split))
    for override in wish.overrides:
        yield from ("-ot", f"{override.pattern}={override.device}")


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
