"""What a llama-server is started with, as far as its memory depends on it, and what it makes of it.

n_ctx   = -c, or what the model was trained for; rounded up to a multiple of 256
unified:  every slot sees the whole pool        n_ctx_seq = n_ctx               1 stream
separate: the pool is divided by the slots      n_ctx_seq = up256(n_ctx / slots)
"""

from __future__ import annotations

from dataclasses import dataclass

from slotgate.errors import PlanRefused

# llama.cpp rounds contexts and window caches up to a multiple of this, in tokens.
PAD_TOKENS = 256
# More sequences than this llama.cpp does not hold.
MAX_SEQUENCES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a context, by llama.cpp's names, with llama-server's defaults.

    `n_ctx`: tokens of all slots together (`--ctx-size`); 0 is what the model was trained for.
    `n_seq`: slots (`--parallel`); llama-server's own default is 4 slots with `unified`.
    `unified`: one pool of cells for all slots (`--kv-unified`).
    `type_k`, `type_v`: the cache's types (`--cache-type-k`, `--cache-type-v`).
    `n_batch`, `n_ubatch`: tokens of a logical and of a physical batch.
    `swa_full`: windows as large as the context (`--swa-full`).
    `flash_attn`: "auto", "on" or "off".
    `n_rs_seq`: how many steps a recurrent state can be rolled back; 0 without speculation.
    `mtp`: the second context of multi-token prediction, which holds the model's extra layers.
    """

    n_ctx: int = 0
    n_seq: int = 4
    unified: bool = True
    type_k: str = "f16"
    type_v: str = "f16"
    n_batch: int = 2048
    n_ubatch: int = 512
    swa_full: bool = False
    flash_attn: str = "auto"
    n_rs_seq: int = 0
    mtp: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.n_seq <= MAX_SEQUENCES:
            raise PlanRefused(f"{self.n_seq} slots: llama.cpp holds from 1 to {MAX_SEQUENCES}")
        if self.n_ctx < 0 or self.n_batch < 0 or self.n_ubatch < 0 or self.n_rs_seq < 0:
            raise PlanRefused("a number of tokens cannot be negative")
        if self.n_batch == 0 and self.n_ubatch == 0:
            raise PlanRefused("--batch-size and --ubatch-size cannot both be 0")
        if self.flash_attn not in {"auto", "on", "off"}:
            raise PlanRefused(f"--flash-attn {self.flash_attn}: it is on, off or auto")


@dataclass(frozen=True, slots=True)
class ContextSize:
    """What llama.cpp makes of the settings; all in tokens but `streams`.

    `n_ctx_seq` is a slot's context, `streams` how many separate pools of so many cells there are.
    """

    n_ctx: int
    n_ctx_seq: int
    n_batch: int
    n_ubatch: int
    streams: int


def context_size(settings: Settings, n_ctx_train: int, *, causal: bool = True) -> ContextSize:
    """Round and divide as llama.cpp does.

    Raises PlanRefused if neither the settings nor the model say how long the context is.
    """
    asked = settings.n_ctx or n_ctx_train
    if asked <= 0:
        raise PlanRefused("neither --ctx-size nor the model says how long the context is")
    # Only causal models can do with a batch shorter than the context.
    n_batch = min(asked, settings.n_batch) if causal else settings.n_batch
    n_ubatch = min(n_batch, settings.n_ubatch or settings.n_batch)
    n_ctx = padded(asked)
    if settings.unified:
        return ContextSize(n_ctx, n_ctx, n_batch, n_ubatch, 1)
    n_ctx_seq = padded(n_ctx // settings.n_seq)
    return ContextSize(n_ctx_seq * settings.n_seq, n_ctx_seq, n_batch, n_ubatch, settings.n_seq)


def padded(tokens: int) -> int:
    """Round tokens up to a multiple of 256."""
    return -(-tokens // PAD_TOKENS) * PAD_TOKENS
