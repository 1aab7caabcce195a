"""The host's memory: by psutil where it is installed, else by what the system tells itself."""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from slotgate.backends.devices.cards import Memory
from slotgate.backends.devices.cgroups import container_memory
from slotgate.capacity.units import show_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_GUESSED = (
    "what of the host's memory is in use is not known, and all of it is counted as free: "
    "install slotgate[host]"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """`machine` is all there is, `allowed` what this process may have of it."""

    machine: Memory
    allowed: Memory
    notes: tuple[str, ...] = ()


def find_host(
    *,
    sources: tuple[Callable[[], Memory | None], ...] | None = None,
    total: Callable[[], Memory | None] | None = None,
    container: Callable[[], Memory | None] = container_memory,
) -> Host | None:
    """Return what the first source tells, and in a container no more than it may use."""
    known = _first(sources or (by_psutil, by_meminfo))
    machine = known or (total or by_sysconf)()
    if machine is None:
        return None
    limit = container()
    notes = () if known else (_GUESSED,)
    if limit is None or limit.total_bytes >= machine.total_bytes:
        allowed = machine if limit is None else _least(machine, limit)
        return Host(machine=machine, allowed=allowed, notes=notes)
    said = f"a control group allows {show_bytes(limit.total_bytes)} of the host's memory"
    return Host(machine=machine, allowed=_least(machine, limit), notes=(*notes, said))


def by_psutil(module: str = "psutil") -> Memory | None:
    try:
        memory = importlib.import_module(module).virtual_memory()
    except Exception:  # not installed, or not at home on this system
        return None
    return Memory(total_bytes=memory.total, free_bytes=min(memory.available, memory.total))


def by_meminfo(path: Path = Path("/proc/meminfo")) -> Memory | None:
    """Linux: `MemAvailable` is what can be had without swapping, cache taken back included."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return None
    pairs = (line.split() for line in lines)
    known = {pair[0]: int(pair[1]) << 10 for pair in pairs if len(pair) == 3 and pair[2] == "kB"}
    try:
        return Memory(total_bytes=known["MemTotal:"], free_bytes=known["MemAvailable:"])
    except KeyError:
        return None


def by_sysconf(
    sysconf: Callable[[str], int] = os.sysconf, names: Mapping[str, int] = os.sysconf_names
) -> Memory | None:
    """Anywhere else: the size alone, which is then taken to be free."""
    if not {"SC_PHYS_PAGES", "SC_PAGE_SIZE"} <= names.keys():
        return None
    size = sysconf("SC_PHYS_PAGES") * sysconf("SC_PAGE_SIZE")
    return Memory(total_bytes=size, free_bytes=size) if size > 0 else None


def _first(sources: tuple[Callable[[], Memory | None], ...]) -> Memory | None:
    return next((memory for source in sources if (memory := source()) is not None), None)


def _least(one: Memory, other: Memory) -> Memory:
    total = min(one.total_bytes, other.total_bytes)
    return Memory(total_bytes=total, free_bytes=min(one.free_bytes, other.free_bytes, total))
