"""What the operator says of a server, for what cannot be asked: its flags, its host, its load."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from slotgate.capacity.settings import padded
from slotgate.errors import ConfigError

_NUMBERS = {
    "-c": "ctx_size",
    "--ctx-size": "ctx_size",
    "-np": "parallel",
    "--parallel": "parallel",
    "-b": "batch",
    "--batch-size": "batch",
    "-cram": "cache_ram_mib",
    "--cache-ram": "cache_ram_mib",
    "--kv-unified-per-slot": "per_slot",
    "--sleep-idle-seconds": "sleep_idle_seconds",
}
_SWITCHES = {
    "-kvu": True,
    "--kv-unified": True,
    "-no-kvu": False,
    "--no-kv-unified": False,
}
# With one of these a slot may hold more than the model was trained for.
_STRETCHING = {"--rope-scaling", "--rope-scale", "--yarn-orig-ctx", "--rope-freq-base"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """Those of llama-server's flags that tell what its routes do not; None: not given."""

    ctx_size: int | None = None
    parallel: int | None = None
    batch: int | None = None
    cache_ram_mib: int | None = None
    per_slot: int | None = None
    sleep_idle_seconds: int | None = None
    kv_unified: bool | None = None
    stretches: bool = False

    @property
    def is_unified(self) -> bool:
        """Whether the slots share one pool: on request, or as nobody said how many there are."""
        if self.kv_unified is not None:
            return self.kv_unified
        return self.parallel is None or self.parallel < 0

    def pool_tokens(self, slots: int, ctx_per_slot: int, trained: int | None) -> int | None:
        """How much all slots can hold together; None if the flags do not tell."""
        if not self.is_unified:
            return slots * ctx_per_slot
        if self.ctx_size:
            return padded(self.ctx_size)
        if self.per_slot:
            return padded(slots * self.per_slot)
        return None if trained is None else padded(trained)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """`context`: tokens that the longest request needs.  `host_bytes`: memory of its machine."""

    flags: Flags | None = None
    context: int | None = None
    host_bytes: int | None = None


def parse_flags(text: str) -> Flags:
    """Read a llama-server's command line, or a part of it; what is not known here is passed over.

    Raises ConfigError where a number is missing or is none.  Nothing of the text is echoed but the
    flag at fault: it may hold a key.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"--flags cannot be read: {error}") from error
    return flags_of(words)


def flags_of(words: list[str]) -> Flags:
    """The same of words, as a router tells them of its children."""
    values: dict[str, int] = {}
    is_unified: bool | None = None
    for at, word in enumerate(words):
        if (name := _NUMBERS.get(word)) is not None:
            values[name] = _number(word, words[at + 1 : at + 2])
        is_unified = _SWITCHES.get(word, is_unified)
    stretches = not _STRETCHING.isdisjoint(words)
    return Flags(**values, kv_unified=is_unified, stretches=stretches)


def _number(flag: str, following: list[str]) -> int:
    try:
        return int(following[0])
    except (IndexError, ValueError) as error:
        raise ConfigError(f"--flags: {flag} is not followed by a number") from error
