"""What a plan needs of a build of llama.cpp that it lacks, or may lack.

A change matters to a plan if its figures or the words of its command rest on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.capacity.builds import (
    COMPARED_BUILDS,
    Change,
    features_in_doubt,
    features_missing,
    is_newer,
)
from slotgate.capacity.compute import EVERY_TOKEN, compute_bytes
from slotgate.capacity.units import show_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from slotgate.capacity.replan import Replan


def of_build(what: Replan, build: int) -> Iterator[tuple[str, str]]:
    """Yield a code and a message for each change that matters, oldest first."""
    if is_newer(build):
        compared = " and ".join(map(str, COMPARED_BUILDS))
        yield (
            "build-newer",
            f"Build {build} is newer than those that these figures were compared with "
            f"({compared}): they may have changed since.",
        )
    for missing, certainly in ((features_missing(build), True), (features_in_doubt(build), False)):
        for change in missing:
            matters = _MATTERS[change.feature](what)
            if matters and not (certainly and change.feature in _OF_A_DAY):
                yield f"build-{change.feature}", _message(build, change, matters, certainly)


def _message(build: int, change: Change, matters: str, certainly: bool) -> str:  # noqa: FBT001
    pull = "" if change.pull is None else f" (#{change.pull})"
    lacks = "lacks" if certainly else "may lack"
    return f"Build {build} {lacks} what came {change.since}{pull}, {change.what}: {matters}."


def _window_caches(what: Replan) -> str:
    more = what.more_context(swa_full=True)
    return f"the window layers then take {show_size(more)} more" if more > 0 else ""


def _window_cells(what: Replan) -> str:
    has_windows = "window" in what.memory.parts and not what.settings.swa_full
    return "its window caches are larger than planned" if has_windows else ""


def _separate_slots(what: Replan) -> str:
    if what.settings.unified:
        return "leave --kv-unified out of the command, it has one pool anyway"
    if what.settings.n_seq == 1:
        return ""
    return "it keeps all slots in one pool, and fails all of them when it is full"


def _checkpoints(what: Replan, part: str) -> str:
    if not what.plan.host.checkpoint or part not in what.memory.parts:
        return ""
    return "it makes none, reads more prompts again, and does not know --ctx-checkpoints"


def _prompt_cache(what: Replan) -> str:
    if "--cache-ram" in what.plan.command:
        return "leave --cache-ram out of the command"
    return "the host needs no memory for them"


def _never(_what: Replan) -> str:
    return ""


def _fit(what: Replan) -> str:
    return "leave --fit out of the command" if "--fit" in what.plan.command else ""


def _window_types(what: Replan) -> str:
    kinds = {what.settings.type_k, what.settings.type_v}
    if kinds <= {"f16", "f32"} or "window" not in what.memory.parts:
        return ""
    return "a build of that day keeps the window layers in f16, whatever was asked"


def _prediction(what: Replan) -> str:
    return "it has no such speculation" if what.settings.n_rs_seq else ""


def _output_rows(what: Replan) -> str:
    then = compute_bytes(what.model.meta, what.settings, n_outputs=EVERY_TOKEN).total
    more = then - compute_bytes(what.model.meta, what.settings).total
    if more <= 0:
        return ""
    return f"its scratch is {show_size(more)} larger, micro-batch x vocabulary x 4 bytes"


def _checkpoint_cells(what: Replan) -> str:
    has_some = what.plan.host.checkpoint and "window" in what.memory.parts
    return "its checkpoints are larger than planned" if has_some else ""


def _cuda_copy(what: Replan) -> str:
    copy = what.usage.compute.parts.get("f16_copy", 0)
    return f"it takes those {show_size(copy)} while it runs, and may fail then" if copy else ""


def _slot_limit(what: Replan) -> str:
    if "--kv-unified-per-slot" not in what.plan.command:
        return ""
    return "it does not know the flag; give each slot a cache of its own, without --kv-unified"


# What was otherwise for a day only: certainly older builds are as they are now.
_OF_A_DAY = {"window-types"}

# Feature -> why a plan needs it, "" if it does not.
_MATTERS: dict[str, Callable[[Replan], str]] = {
    "window-caches": _window_caches,
    "window-cells": _window_cells,
    "separate-slots": _separate_slots,
    "window-checkpoints": lambda what: _checkpoints(what, "window"),
    "state-checkpoints": lambda what: _checkpoints(what, "state"),
    "prompt-cache": _prompt_cache,
    "automatic-slots": _never,  # the command says how many, and in how many pools
    "fit": _fit,
    "window-types": _window_types,
    "fit-print": _never,
    "multi-token-prediction": _prediction,
    "output-rows": _output_rows,
    "checkpoint-cells": _checkpoint_cells,
    "cuda-copy": _cuda_copy,
    "slot-limit": _slot_limit,
}
