"""Those of llama-server's flags that tell what its routes do not, and what they come to.

Rule: of words and variables nothing is kept but numbers and whether a flag is there.  What else
      they hold, keys above all, goes no further, and is in no message.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from slotgate.capacity.settings import padded
from slotgate.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class _Option:
    """A flag: the field of `Flags` that it sets, its words, and the variable that stands for it."""

    field: str
    words: tuple[str, ...]
    variable: str = ""
    negative: tuple[str, ...] = ()

    @property
    def names(self) -> Iterable[str]:
        """What it is called in the environment and in a configuration file."""
        return filter(None, (*(word.lstrip("-") for word in self.words), self.variable))


_NUMBERS = (
    _Option("ctx_size", ("-c", "--ctx-size"), "LLAMA_ARG_CTX_SIZE"),
    _Option("parallel", ("-np", "--parallel"), "LLAMA_ARG_N_PARALLEL"),
    _Option("batch", ("-b", "--batch-size"), "LLAMA_ARG_BATCH"),
    _Option("cache_ram_mib", ("-cram", "--cache-ram"), "LLAMA_ARG_CACHE_RAM"),
    _Option("per_slot", ("--kv-unified-per-slot",), "LLAMA_ARG_KV_UNIFIED_PER_SLOT"),
    _Option("sleep_idle_seconds", ("--sleep-idle-seconds",)),
)
_UNIFIED = _Option(
    "kv_unified",
    ("-kvu", "--kv-unified"),
    "LLAMA_ARG_KV_UNIFIED",
    ("-no-kvu", "--no-kv-unified"),
)
# With one of these a slot may hold more than the model was trained for.
_STRETCHING = (
    _Option("stretches", ("--rope-scaling",), "LLAMA_ARG_ROPE_SCALING_TYPE"),
    _Option("stretches", ("--rope-scale",), "LLAMA_ARG_ROPE_SCALE"),
    _Option("stretches", ("--rope-freq-base",), "LLAMA_ARG_ROPE_FREQ_BASE"),
    _Option("stretches", ("--rope-freq-scale",), "LLAMA_ARG_ROPE_FREQ_SCALE"),
    _Option("stretches", ("--yarn-orig-ctx",), "LLAMA_ARG_YARN_ORIG_CTX"),
)
_KEY = "--api-key"

_NUMBER_OF_WORD = {word: option for option in _NUMBERS for word in option.words}
_STRETCHING_WORDS = {word for option in _STRETCHING for word in option.words}
_TRUE = {"on", "enabled", "true", "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """None: not given.  `source` says how they are known.

    `stretches`: positions are stretched on purpose.  `shows_key`: an API key is among the words.
    """

    source: str = ""
    ctx_size: int | None = None
    parallel: int | None = None
    batch: int | None = None
    cache_ram_mib: int | None = None
    per_slot: int | None = None
    sleep_idle_seconds: int | None = None
    kv_unified: bool | None = None
    stretches: bool = False
    shows_key: bool = False

    @property
    def is_unified(self) -> bool:
        """Whether the slots share one pool.

        They do on request, and always where nobody said how many there are: llama-server then
        takes four that share, whatever `--no-kv-unified` says.
        """
        if self.parallel is None or self.parallel < 0:
            return True
        return self.kv_unified or False

    def pool_tokens(self, slots: int, ctx_per_slot: int, trained: int | None) -> int | None:
        """How much all slots can hold together; None if the flags do not tell."""
        if not self.is_unified:
            return slots * ctx_per_slot
        if self.ctx_size:
            return padded(self.ctx_size)
        if self.per_slot is None:  # nothing but the pool bounds a slot of it
            return padded(ctx_per_slot)
        if self.ctx_size is None:
            return padded(slots * self.per_slot)
        return None if trained is None else padded(trained)


def flags_of(words: Sequence[str], source: str, over: Flags | None = None) -> Flags:
    """Read the words of a command line, which count more than what they are laid `over`.

    What is not known here is passed over.  Raises ConfigError where a number is missing or is
    none, and names the flag at fault alone.
    """
    found: dict[str, int | bool] = {}
    words = list(map(_usual, words))
    for at, word in enumerate(words):
        if (option := _NUMBER_OF_WORD.get(word)) is not None:
            found[option.field] = _number(word, words[at + 1] if at + 1 < len(words) else "")
        elif word in _UNIFIED.words or word in _UNIFIED.negative:
            found["kv_unified"] = word in _UNIFIED.words
        elif word in _STRETCHING_WORDS:
            found["stretches"] = True
        elif word == _KEY:
            found["shows_key"] = True
    return replace(over or Flags(), source=source, **found)  # type: ignore[arg-type]


def flags_of_names(values: Mapping[str, str], over: Flags | None = None) -> Flags:
    """The same of variables, or of the keys of a configuration file; ConfigError likewise."""
    found: dict[str, int | bool] = {}
    for option in _NUMBERS:
        for name in option.names:
            if name in values:
                found[option.field] = _number(name, values[name])
    for name in _UNIFIED.names:
        if name in values:
            found["kv_unified"] = values[name] in _TRUE
    if _UNIFIED.variable.replace("_ARG_", "_ARG_NO_") in values:
        found["kv_unified"] = False
    if any(name in values for option in _STRETCHING for name in option.names):
        found["stretches"] = True
    return replace(over or Flags(), **found)  # type: ignore[arg-type]


def _usual(word: str) -> str:
    """`--ctx_size` is `--ctx-size` to llama-server."""
    return word.replace("_", "-") if word.startswith("--") else word


def _number(flag: str, text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise ConfigError(f"{flag} is not followed by a number") from error
