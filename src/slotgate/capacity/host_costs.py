"""What llama-server keeps in the host's memory besides the model: prompts, and checkpoints.

Both are limits, filled by use: `--cache-ram` holds prompts whose slot was given away, and each slot
keeps `--ctx-checkpoints` copies of what cannot be rolled back (windows, recurrent states).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slotgate.capacity.saved import checkpoint_bytes, saved_prompt_bytes

if TYPE_CHECKING:
    from slotgate.capacity.model import Model
    from slotgate.capacity.usage import Usage
    from slotgate.capacity.wish import Wish

MiB = 1 << 20
# llama-server's defaults.
DEFAULT_CACHE_RAM_MIB = 8192
DEFAULT_CHECKPOINTS = 32
# What may go to checkpoints on a host that nobody measured.
_UNMEASURED_BYTES = 8 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCosts:
    """Bytes of host memory that prompts and checkpoints may come to.

    `cache_ram_mib` and `checkpoints` are what the plan's command says, `checkpoint` is the bytes
    of one, `prompt` those of a prompt that fills a slot.  `free` is what the host has beside the
    model, None if that is not known.
    """

    cache_ram_mib: int
    checkpoints: int
    checkpoint: int
    prompt: int
    slots: int
    free: int | None

    @property
    def cache_ram(self) -> int:
        return self.cache_ram_mib * MiB

    @property
    def all_checkpoints(self) -> int:
        """Those of all slots, when each has as many as it may."""
        return self.checkpoint * self.checkpoints * self.slots

    @property
    def total(self) -> int:
        return self.cache_ram + self.all_checkpoints


def host_costs(model: Model, usage: Usage, wish: Wish) -> HostCosts:
    """Choose the limits that the wish leaves open, so that the host can afford them."""
    tokens = usage.memory.n_ctx_slot
    slots = usage.settings.n_seq
    checkpoint = checkpoint_bytes(model.meta, usage.settings, tokens)
    free = _free(usage)
    cache_ram_mib, checkpoints = wish.cache_ram_mib, wish.ctx_checkpoints
    if cache_ram_mib is None:
        cache_ram_mib = _cache_ram_mib(free)
    if checkpoints is None:
        room = _UNMEASURED_BYTES if free is None else max(free - cache_ram_mib * MiB, 0) // 2
        checkpoints = _checkpoints(checkpoint * slots, room)
    return HostCosts(
        cache_ram_mib=cache_ram_mib,
        checkpoints=checkpoints if checkpoint else 0,
        checkpoint=checkpoint,
        prompt=saved_prompt_bytes(model.meta, usage.settings, tokens),
        slots=slots,
        free=free,
    )


def _free(usage: Usage) -> int | None:
    """What the host has beside the model; None where its size was given for the model alone."""
    use = usage.devices[-1]
    if use.device is None or use.left is None:
        return None
    if not usage.on_gpus and not use.device.reserved_bytes:
        return None
    return use.left + use.device.reserved_bytes


def _cache_ram_mib(free: int | None) -> int:
    if free is None:
        return DEFAULT_CACHE_RAM_MIB
    # Half of what is there, and a round number.
    return min(DEFAULT_CACHE_RAM_MIB, max(free, 0) // 2 // (256 * MiB) * 256)


def _checkpoints(round_bytes: int, room: int) -> int:
    """The default, halved until as many of them have room; at least one."""
    count = DEFAULT_CHECKPOINTS
    while count > 1 and count * round_bytes > room:
        count //= 2
    return count
