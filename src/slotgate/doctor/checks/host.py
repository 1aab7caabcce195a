"""What the server keeps in the memory of its host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.capacity.builds import features_missing
from slotgate.capacity.units import show_size
from slotgate.doctor.check import check
from slotgate.doctor.evidence import MODELS, Evidence, Make
from slotgate.doctor.finding import ERROR, NOTE, OK, WARNING, error, fine, note, warning
from slotgate.doctor.flags import flags_of
from slotgate.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slotgate.doctor.finding import Finding
    from slotgate.doctor.flags import Flags
    from slotgate.wire.models import ListedModel

# --cache-ram where nobody says it, in MiB.
DEFAULT_CACHE_MIB = 8192
_GROWS = (
    "Prompts that were answered are kept there until it is full: the host runs out of memory and "
    "the server is killed (#22629, #20509, #23561)."
)


@check(
    "prompt-cache",
    asks="May the prompts that it keeps outgrow the memory of its host?",
    by="`--cache-ram` of its flags, or its default where the build has it; the memory of this "
    "machine where the server is here, else `--host-memory`.",
    severities=(ERROR, WARNING, NOTE, OK),
)
def prompt_cache(seen: Evidence) -> Iterator[Finding]:
    flags, host = seen.flags, _host_bytes(seen)
    if seen.make is not Make.LLAMA_SERVER or _has_no_cache(seen):
        return
    told = None if flags is None else flags.cache_ram_mib
    limit = DEFAULT_CACHE_MIB if told is None else told
    source = (
        f"llama-server's default, --cache-ram {limit}"
        if flags is None or told is None
        else f"--cache-ram {limit}, of {flags.source}"
    )
    if limit < 0:
        yield warning(
            "The prompts that it keeps in the host's memory have no bound.",
            source,
            _GROWS,
            *_smaller(host),
        )
    elif host is not None:
        yield _against(host, limit << 20, _weights(seen), f"{source}; {_host_known_by(seen)}")


@check(
    "prompt-caches",
    asks="Of a router: may the models that it has loaded keep more prompts than its host can hold?",
    by="`GET /v1/models`: how many are `loaded`, and `--cache-ram` of each `status.args`, else the "
    "default; memory as above.",
    severities=(WARNING,),
    of_models=False,
)
def prompt_caches(seen: Evidence) -> Iterator[Finding]:
    loaded = [model for model in seen.models if model.is_loaded]
    host = _host_bytes(seen)
    if seen.make is not Make.ROUTER or host is None or len(loaded) < 2 or _has_no_cache(seen):
        return
    limits = [_limit_of(model, seen.flags) for model in loaded]
    # One that has no bound, or is too large alone, is told of that model.
    total = sum(limits) << 20
    if min(limits) >= 0 and max(limits) << 20 <= host < total:
        yield warning(
            f"The {len(loaded)} models that it has loaded may keep {show_size(total)} of prompts "
            f"in memory together, and their host has {show_size(host)}.",
            f"GET {MODELS}: {', '.join(model.id for model in loaded)}, --cache-ram "
            f"{', '.join(map(str, limits))}; {_host_known_by(seen)}",
            _GROWS,
            f"--cache-ram {(host >> 20) // 4 // len(loaded)} of the router, for each of them",
            "--models-max N: fewer at a time",
        )


def _limit_of(model: ListedModel, of_router: Flags | None) -> int:
    try:
        told = flags_of(model.arguments, "", of_router).cache_ram_mib
    except ConfigError:
        told = None
    return DEFAULT_CACHE_MIB if told is None else told


def _against(host: int, cache: int, weights: int, known_by: str) -> Finding:
    sizes = f"{show_size(cache)} of prompts"
    if cache > host:
        return (warning if "default" in known_by else error)(
            f"It may keep {sizes} in memory, and its host has {show_size(host)}.",
            known_by,
            _GROWS,
            *_smaller(host),
        )
    if cache + weights > host:
        return note(
            f"It may keep {sizes} in memory, which leaves too little of the host's "
            f"{show_size(host)} for the {show_size(weights)} of the model.",
            known_by,
            "If the model, or a part of it, is in the host's memory, it is read from disk again "
            "and again, or the server is killed.",
            *_smaller(host),
        )
    return fine(f"{sizes[0].upper()}{sizes[1:]} fit into the host's {show_size(host)}.", known_by)


def _smaller(host: int | None) -> Iterator[str]:
    quarter = DEFAULT_CACHE_MIB if host is None else (host >> 20) // 4
    yield f"--cache-ram {min(DEFAULT_CACHE_MIB, quarter)}"
    yield "--cache-ram 0: keeps no prompts but those in the slots"


def _has_no_cache(seen: Evidence) -> bool:
    build = seen.build
    return build is not None and any(
        one.feature == "prompt-cache" for one in features_missing(build)
    )


def _host_bytes(seen: Evidence) -> int | None:
    return seen.local_bytes if seen.stated.host_bytes is None else seen.stated.host_bytes


def _host_known_by(seen: Evidence) -> str:
    if seen.stated.host_bytes is not None:
        return "the memory you gave with --host-memory"
    return "the memory of this machine, on which it was asked"


def _weights(seen: Evidence) -> int:
    return (seen.models[0].size_bytes or 0) if seen.models else 0
