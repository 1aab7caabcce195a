"""What `slotgate plan` was asked, as its options say it, and what is meant by it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slotgate.capacity.ggml_types import CACHE_TYPES
from slotgate.capacity.placement import HOST, Override, experts_on_host
from slotgate.capacity.settings import MAX_SEQUENCES, PAD_TOKENS, padded
from slotgate.capacity.units import parse_bytes
from slotgate.capacity.wish import Wish
from slotgate.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

# llama-server's own number of drafted tokens.
DEFAULT_DRAFT_TOKENS = 3
# Those for which states are kept to go back to; the others draft without changing any memory here.
SPEC_ROLLBACK = ("draft-mtp", "draft-eagle3", "draft-dflash", "draft-dspark")
SPEC_TYPES = (
    *("none", "draft-simple", *SPEC_ROLLBACK),
    *("ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache"),
)
# More than any model has layers; the output is one of them.
ALL_LAYERS = 999
# llama.cpp's own limit for most.
_MOST = 2**31 - 1
# The options that are numbers, with the smallest and the largest that each may be.
_LIMITS = {
    "context": (1, _MOST),
    "request": (1, _MOST),
    "ctx_size": (0, _MOST),
    "parallel": (-1, MAX_SEQUENCES),
    "kv_unified_per_slot": (1, _MOST),
    "batch_size": (1, _MOST),
    "ubatch_size": (1, _MOST),
    "n_cpu_moe": (0, ALL_LAYERS),
    "cache_ram": (0, _MOST),
    "ctx_checkpoints": (0, _MOST),
    "spec_draft_n_max": (0, 1024),
    "build": (1, _MOST),
}
_WHOLE = re.compile(r"-?[0-9]{1,12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The command's arguments, as they were given; None is not given."""

    model: str | None
    from_url: str | None
    api_key_env: str | None
    weights: str | None
    memory: str
    context: int | None
    request: int | None
    ctx_size: int | None
    parallel: int | None
    kv_unified: bool | None
    kv_unified_per_slot: int | None
    cache_type: str | None
    cache_type_k: str | None
    cache_type_v: str | None
    batch_size: int
    ubatch_size: int
    swa_full: bool | None
    flash_attn: str
    n_gpu_layers: str | None
    tensor_split: str | None
    cpu_moe: bool | None
    n_cpu_moe: int | None
    override_tensor: list[str] | None
    cache_ram: int | None
    ctx_checkpoints: int | None
    spec_type: str | None
    spec_draft_n_max: int | None
    build: int | None
    as_json: bool | None
    explain: bool | None
    plot: str | None

    @property
    def gpu_layers(self) -> int | None:
        """Layers on the GPUs; None is as many as fit."""
        text = self.n_gpu_layers
        if text is None or text in {"auto", "-1"}:
            return None
        if text in {"all", "-2"}:
            return ALL_LAYERS
        if not _WHOLE.fullmatch(text) or int(text) < 0:
            raise ConfigError(f"--n-gpu-layers {text}: a number, auto or all")
        return int(text)

    @property
    def slots(self) -> int | None:
        if self.parallel == 0:
            raise ConfigError("--parallel 0: a positive number, or -1 for as many as fit")
        return None if self.parallel == -1 else self.parallel

    @property
    def weights_bytes(self) -> int | None:
        try:
            return None if self.weights is None else parse_bytes(self.weights)
        except ConfigError as error:
            raise ConfigError(f"--weights: {error}") from error

    @property
    def draft_tokens(self) -> int:
        """How many steps states are kept back for."""
        if not set((self.spec_type or "").split(",")) & set(SPEC_ROLLBACK):
            return 0
        given = self.spec_draft_n_max
        return DEFAULT_DRAFT_TOKENS if given is None else given

    @property
    def speculation(self) -> tuple[str, ...]:
        """The words of it for the command."""
        words = ["--spec-type", self.spec_type] if self.spec_type else []
        if self.spec_draft_n_max is not None:
            words += ["--spec-draft-n-max", str(self.spec_draft_n_max)]
        return tuple(words)


def read(words: Mapping[str, Any]) -> Asked:
    """Read the arguments, each by the name of its field.

    Raises ConfigError for what is wrong whatever the model is.
    """
    asked = Asked(**{**words, **{name: _number(name, words[name]) for name in _LIMITS}})
    _check(asked)
    # What a wish is made of is checked before a model is looked for.
    wish_of(asked, PAD_TOKENS)
    return asked


def _number(name: str, word: str | None) -> int | None:
    if word is None:
        return None
    least, most = _LIMITS[name]
    if not _WHOLE.fullmatch(word) or not least <= int(word) <= most:
        raise ConfigError(f"{_flag(name)} {word}: a whole number from {least} to {most}")
    return int(word)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _check(asked: Asked) -> None:
    if asked.model is None and asked.from_url is None:
        raise ConfigError("say which model: a file, hf:ORG/REPO, a name like Qwen3-8B, or --from")
    if asked.weights_bytes == 0:
        raise ConfigError(f"--weights {asked.weights}: no model is as small as that")
    for flag in ("cache_type", "cache_type_k", "cache_type_v"):
        _check_known(_flag(flag), getattr(asked, flag), CACHE_TYPES)
    _check_known("--flash-attn", asked.flash_attn, ("on", "off", "auto"))
    for kind in (asked.spec_type or "none").split(","):
        _check_known("--spec-type", kind, SPEC_TYPES)
    if asked.spec_draft_n_max is not None and asked.spec_type is None:
        raise ConfigError("--spec-draft-n-max: say what drafts, like --spec-type draft-mtp")
    lengths = (asked.context, asked.ctx_size, asked.kv_unified_per_slot)
    if sum(length is not None for length in lengths) > 1 and not _agree(asked):
        raise ConfigError(
            "--context, --ctx-size and --kv-unified-per-slot all say how long the context is; "
            "give one"
        )


def _check_known(flag: str, value: str | None, known: tuple[str, ...]) -> None:
    if value is not None and value not in known:
        raise ConfigError(f"{flag} {value}: it is one of {', '.join(known)}")


def _agree(asked: Asked) -> bool:
    """Whether a pool and its slots' limit are given, and say the same."""
    each, slots = asked.kv_unified_per_slot, asked.slots
    if asked.context is not None or each is None or slots is None:
        return False
    return padded(asked.ctx_size or 0) == padded(slots * each)


def wish_of(asked: Asked, n_ctx_train: int) -> Wish:
    """What is asked of a model that was trained for so many tokens.

    The options mean what they mean to llama-server, except that slots are separate unless a pool
    is asked for, and that what is not given is chosen.
    """
    per_slot = asked.context or asked.kv_unified_per_slot
    ctx_size = None if per_slot else asked.ctx_size
    unified = _is_unified(asked)
    if ctx_size == 0:  # as long as the training, in each slot or in the pool
        per_slot, ctx_size = (None, n_ctx_train) if unified else (n_ctx_train, None)
    return Wish(
        slots=asked.slots,
        ctx_per_slot=per_slot,
        ctx_size=ctx_size,
        unified=unified,
        type_k=asked.cache_type_k or asked.cache_type or "f16",
        type_v=asked.cache_type_v or asked.cache_type or "f16",
        n_batch=asked.batch_size,
        n_ubatch=asked.ubatch_size,
        swa_full=bool(asked.swa_full),
        flash_attn=asked.flash_attn,
        n_rs_seq=asked.draft_tokens,
        n_gpu_layers=asked.gpu_layers,
        tensor_split=_shares(asked.tensor_split),
        overrides=_overrides(asked),
        cache_ram_mib=asked.cache_ram,
        ctx_checkpoints=asked.ctx_checkpoints,
    )


def _is_unified(asked: Asked) -> bool:
    if asked.kv_unified is not None:
        return asked.kv_unified
    # llama-server's own rule: one pool where the number of slots is left to it.
    return asked.kv_unified_per_slot is not None and asked.slots is None


def _shares(text: str | None) -> tuple[float, ...]:
    try:
        return tuple(float(share) for share in re.split(r"[,/]+", text)) if text else ()
    except ValueError as error:
        raise ConfigError(f"--tensor-split {text}: numbers like 3,1") from error


def _overrides(asked: Asked) -> tuple[Override, ...]:
    """The first that fits a tensor holds, so single tensors come before all experts."""
    words = [word for text in asked.override_tensor or () for word in text.split(",")]
    found = [_override(word) for word in words]
    if asked.n_cpu_moe:
        found += experts_on_host(asked.n_cpu_moe)
    if asked.cpu_moe:
        found += experts_on_host()
    return tuple(found)


def _override(word: str) -> Override:
    pattern, equals, device = word.partition("=")
    if not (pattern and equals and device):
        raise ConfigError(f"--override-tensor {word}: PATTERN=DEVICE, like exps=CPU")
    return Override(pattern, HOST if device.upper().startswith("CPU") else device)
