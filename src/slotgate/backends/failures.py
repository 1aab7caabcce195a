"""Why a llama.cpp did not start, in words that say what to do."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slotgate.backends.options import EngineOptions

SHOWN_LINES = 8

# What llama.cpp or the loader prints -> what it means.  The first that is found is the reason; the
# order is from particular to general.  Filled in are {model}, {port}, {ctx_size}, and the
# pattern's groups as {1} and {2}.
_REASONS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), words)
    for pattern, words in (
        (
            r"failed to open GGUF file .*\(No such file",
            "the model file {model} does not exist",
        ),
        (
            r"failed to open GGUF file .*\(Permission denied",
            "the model file {model} may not be read; check its permissions",
        ),
        (
            r"invalid magic characters|bad magic|failed to read magic",
            "{model} is not a GGUF model",
        ),
        (
            r"not within the file bounds|model is corrupted or incomplete|failed to read tensor|"
            r"unexpectedly reached end of file",
            "the model file {model} is cut short or damaged; fetch it again",
        ),
        (
            r"unknown model architecture: '([^']*)'",
            "this llama.cpp does not know the architecture {1}; use a newer one "
            "(--llama-server PATH, or a newer xllamacpp)",
        ),
        (
            r"failed to allocate|unable to allocate|out of memory|cannot allocate|bad_alloc|"
            r"ggml_backend_\w+_alloc_buffer.*failed|cudaMalloc failed",
            "there is not enough memory; take fewer slots or a shorter context "
            "(--parallel, --ctx-size {ctx_size}), or a smaller model",
        ),
        (
            r"couldn't bind|bind.*failed|address already in use",
            "its address is already in use; choose another port than {port}",
        ),
        (
            r"error: invalid argument: (\S+)",
            "this llama-server does not know the argument {1}; it may be older or newer than it",
        ),
        (
            r"error while handling argument \"([^\"]+)\": (.*)",
            "llama-server refuses the argument {1}: {2}",
        ),
        (
            r"n_seq_max must be <= (\d+)",
            "too many slots; this llama.cpp takes at most {1}",
        ),
        (
            r"error while loading shared libraries: ([^:]+)",
            "llama-server lacks the shared library {1}; build it with it, or set LD_LIBRARY_PATH",
        ),
        (
            r"xllamacpp cannot be loaded: (.*)",
            "the embedded engine does not run on this machine ({1}); "
            "name a binary with --llama-server PATH",
        ),
        (r"cannot be run: (.*)", "llama-server cannot be run: {1}"),
    )
)

_SIGNALS = {
    -signal.SIGKILL: "it was killed, most likely because the machine ran out of memory; take fewer "
    "slots or a shorter context (--parallel, --ctx-size {ctx_size}), or a smaller model",
    -signal.SIGILL: "it uses instructions that this processor lacks; build llama-server with "
    "GGML_NATIVE=OFF and name it with --llama-server PATH",
    -signal.SIGSEGV: "it crashed; the model may be damaged, or its build broken",
    -signal.SIGABRT: "it aborted",
}


def explain(lines: Sequence[str], returncode: int, options: EngineOptions) -> str:
    """Say why llama.cpp ended while loading; its last lines follow, for those who read them."""
    reason = _reason(lines, returncode)
    words = {"model": options.model, "port": options.port, "ctx_size": options.ctx_size}
    shown = "\n".join(f"  | {line}" for line in list(lines)[-SHOWN_LINES:])
    return f"llama.cpp did not start: {reason.format_map(_Words(words))}" + (
        f"\nits last lines:\n{shown}" if shown else ""
    )


class _Words(dict[str, object]):
    def __missing__(self, key: str) -> str:
        return f"{{{key}}}"


def _with_groups(words: str, found: re.Match[str]) -> str:
    for number, group in enumerate(found.groups(default=""), start=1):
        plain = group.strip().replace("{", "(").replace("}", ")")
        words = words.replace(f"{{{number}}}", plain)
    return words


def _reason(lines: Sequence[str], returncode: int) -> str:
    text = "\n".join(lines)
    for pattern, words in _REASONS:
        if found := pattern.search(text):
            return _with_groups(words, found)
    return _SIGNALS.get(returncode, f"it ended with status {returncode}")
