"""What the user asks of a plan, by llama-server's own names; None leaves it to the planner."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from slotgate.capacity.settings import Settings, padded
from slotgate.errors import PlanRefused

if TYPE_CHECKING:
    from slotgate.capacity.placement import Override

# llama-server's own number of slots.
DEFAULT_SLOTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What was asked.

    `slots`: how many (`--parallel`).
    `ctx_per_slot`: tokens of one slot (`--context`; with `unified`, `--kv-unified-per-slot`).
    `ctx_size`: tokens of all slots together (`--ctx-size`), divided among them, or with `unified`
    open to each: then the slots may promise more than there is.
    `n_gpu_layers`: layers on the GPUs, the output counted as one; None is all that fit.
    `tensor_split`: the GPUs' shares of the layers; else they are as their free memory.
    `cache_ram_mib`, `ctx_checkpoints`: what the host keeps of prompts; None is what it can afford.
    """

    slots: int | None = None
    ctx_per_slot: int | None = None
    ctx_size: int | None = None
    unified: bool = False
    type_k: str = "f16"
    type_v: str = "f16"
    n_batch: int = 2048
    n_ubatch: int = 512
    swa_full: bool = False
    flash_attn: str = "auto"
    n_rs_seq: int = 0
    n_gpu_layers: int | None = None
    tensor_split: tuple[float, ...] = ()
    overrides: tuple[Override, ...] = ()
    cache_ram_mib: int | None = None
    ctx_checkpoints: int | None = None

    def __post_init__(self) -> None:
        if self.ctx_size is not None and self.ctx_per_slot is not None:
            raise PlanRefused("--ctx-size and --context both say how long the context is; give one")
        for name in ("slots", "ctx_per_slot", "ctx_size"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise PlanRefused(f"{name}: {value}; it must be positive")

    def with_types(self, kind: str) -> Wish:
        """The same with both cache types changed."""
        return replace(self, type_k=kind, type_v=kind)

    def settings(self, slots: int, ctx_per_slot: int) -> Settings:
        """Settings in which each of so many slots has so many tokens of its own."""
        return self._settings(slots, slots * padded(ctx_per_slot))

    def settings_as_asked(self, slots: int, ctx_size: int) -> Settings:
        """Settings with so many tokens for all slots together."""
        return self._settings(slots, ctx_size)

    def _settings(self, slots: int, n_ctx: int) -> Settings:
        return Settings(
            n_ctx=n_ctx,
            n_seq=slots,
            unified=self.unified,
            type_k=self.type_k,
            type_v=self.type_v,
            n_batch=self.n_batch,
            n_ubatch=self.n_ubatch,
            swa_full=self.swa_full,
            flash_attn=self.flash_attn,
            n_rs_seq=self.n_rs_seq,
        )
