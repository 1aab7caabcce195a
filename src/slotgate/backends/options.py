"""What a started llama.cpp is told, and the two languages in which it is told.

One list names, for each option, llama-server's arguments and the embedded engine's attribute, so
that the command line we show is the truth about both.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slotgate.backends.threads import pick_threads
from slotgate.capacity.ggml_types import CACHE_TYPES
from slotgate.capacity.settings import padded
from slotgate.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

Value = str | int | float | bool | list[str]

# Tokens that the engine reads at once; plans count on it.
BATCH_TOKENS = 512
# Numbers that llama.cpp would take badly, or not notice.
LIMITS = {
    "parallel": (1, 256),
    "threads": (1, 512),
    "batch": (1, 1 << 20),
    "ubatch": (1, 1 << 20),
    "port": (0, 65535),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """One llama.cpp server to start.

    `ctx_size` is in tokens and divided evenly among `parallel` slots, or shared by them all if
    `kv_unified`, each then limited to `kv_unified_per_slot`.
    None leaves a choice to llama.cpp, except that `threads` None means `pick_threads`, and `port`
    None a private unix socket (0: any free port of `host`).
    With `llama_server` that binary runs, else the engine in our own wheel.
    `log_file` gets all that llama.cpp prints, appended.
    """

    model: Path
    alias: str
    parallel: int
    ctx_size: int
    threads: int | None = None
    batch: int = BATCH_TOKENS
    ubatch: int | None = None
    metrics: bool = True
    slots: bool = True
    kv_unified: bool = False
    kv_unified_per_slot: int | None = None
    embeddings: bool = False
    reranking: bool = False
    gpu_layers: int | None = None
    cache_ram_mib: int | None = None
    ctx_checkpoints: int | None = None
    cache_type_k: str | None = None
    cache_type_v: str | None = None
    sleep_idle_seconds: int | None = None
    slot_save_path: Path | None = None
    api_key: str | None = None
    api_prefix: str = ""
    llama_server: Path | None = None
    extra_args: tuple[str, ...] = ()
    host: str = "127.0.0.1"
    port: int | None = None
    log_file: Path | None = None

    @property
    def kv_pool_tokens(self) -> int | None:
        """The tokens that the slots share and could overflow; None where none can."""
        if not self.kv_unified:
            return None
        pool, each = padded(self.ctx_size), self.kv_unified_per_slot or self.ctx_size
        return pool if padded(each) * self.parallel > pool else None

    def __post_init__(self) -> None:
        if self.ctx_size < self.parallel:
            raise ConfigError(
                f"ctx_size: {self.ctx_size} tokens are too few for {self.parallel} slots"
            )
        for name, (least, most) in LIMITS.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise ConfigError(f"{name}: {value}; llama.cpp takes {least} to {most}")
        for name in ("cache_type_k", "cache_type_v"):
            if getattr(self, name) not in {None, *CACHE_TYPES}:
                raise ConfigError(
                    f"{name}: {getattr(self, name)!r}; llama.cpp has {', '.join(CACHE_TYPES)}"
                )
        if self.extra_args and self.llama_server is None:
            raise ConfigError(
                f"extra arguments ({shlex.join(self.extra_args)}) are llama-server's own; "
                "name the binary with --llama-server PATH"
            )


@dataclass(frozen=True, slots=True)
class Setting:
    """One option in both languages: llama-server's arguments, and attribute = value."""

    arguments: tuple[str, ...]
    attribute: str
    value: Value


def settings(options: EngineOptions, *, host: str, port: int | None) -> list[Setting]:
    """All options, in the order of the command line.  `host` ending in .sock is a unix socket."""
    threads = options.threads or pick_threads()
    return [
        Setting(("--model", str(options.model)), "model.path", str(options.model)),
        Setting(("--alias", options.alias), "model_alias", [options.alias]),
        Setting(("--host", host), "hostnames", [host]),
        *_given("--port", "port", port),
        *_given("--parallel", "n_parallel", options.parallel),
        *_given("--ctx-size", "n_ctx", options.ctx_size),
        *_given("--threads", "cpuparams.n_threads", threads),
        *_given("--threads-batch", "cpuparams_batch.n_threads", threads),
        *_given("--batch-size", "n_batch", options.batch),
        # A micro-batch larger than the batch is refused by some builds and useless in all.
        *_given("--ubatch-size", "n_ubatch", options.ubatch or min(options.batch, 512)),
        *_given("--n-gpu-layers", "n_gpu_layers", options.gpu_layers),
        *_given("--cache-ram", "cache_ram_mib", options.cache_ram_mib),
        *_given("--ctx-checkpoints", "n_ctx_checkpoints", options.ctx_checkpoints),
        *_given("--cache-type-k", "cache_type_k", options.cache_type_k),
        *_given("--cache-type-v", "cache_type_v", options.cache_type_v),
        *_given("--sleep-idle-seconds", "sleep_idle_seconds", options.sleep_idle_seconds),
        *_given("--slot-save-path", "slot_save_path", _directory(options.slot_save_path)),
        *_given("--api-prefix", "api_prefix", options.api_prefix or None),
        *_switches(options),
        *_given("--kv-unified-per-slot", "kv_unified_per_slot", options.kv_unified_per_slot),
        *_secret(options),
    ]


def _given(flag: str, attribute: str, value: str | int | None) -> list[Setting]:
    return [] if value is None else [Setting((flag, str(value)), attribute, value)]


def _directory(path: Path | None) -> str | None:
    # llama.cpp appends file names to this string without a separator.
    return None if path is None else f"{path}/"


def _switches(options: EngineOptions) -> list[Setting]:
    # An explicit --parallel already means separate KV per slot; the attribute is set either way.
    kv = ("--kv-unified",) if options.kv_unified else ()
    rows = [
        Setting(kv, "kv_unified", options.kv_unified),
        Setting(("--metrics",) if options.metrics else (), "endpoint_metrics", options.metrics),
        Setting(("--slots" if options.slots else "--no-slots",), "endpoint_slots", options.slots),
        Setting(("--no-ui",), "ui", value=False),
    ]
    if options.embeddings:
        rows.append(Setting(("--embeddings",), "embedding", value=True))
    if options.reranking:
        rows.append(Setting(("--reranking",), "embedding", value=True))
        rows.append(Setting((), "pooling_type", "rank"))
    return rows


def _secret(options: EngineOptions) -> list[Setting]:
    # No argument: `ps` shows those to everybody.  The binary finds the key in its environment.
    return [] if options.api_key is None else [Setting((), "api_keys", [options.api_key])]


def command_line(options: EngineOptions, *, host: str, port: int | None) -> tuple[str, ...]:
    """The llama-server command that runs these options, without any secret in it."""
    program = str(options.llama_server or "llama-server")
    told = settings(options, host=host, port=port)
    return (program, *(word for row in told for word in row.arguments), *options.extra_args)


def engine_document(options: EngineOptions, *, host: str, port: int | None) -> dict[str, Value]:
    """What the embedded engine is told: attribute -> value."""
    return {row.attribute: row.value for row in settings(options, host=host, port=port)}
