"""How much memory this container may use: the limits of its control group and of all above it.

- A group without a limit of its own is held by its parents', so every level counts, and each is
  compared with what that level uses.
- File cache that is not in use can be taken back at once and counts as free.
- `memory.high` counts as well as `memory.max`: past it the kernel stalls the group.
- Version 1 and version 2 may be mounted side by side, so both are read.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from slotgate.backends.devices.cards import Memory

if TYPE_CHECKING:
    from collections.abc import Iterator

# Per version: the files of limits, the file of use, and the line of idle file cache.
_FILES: dict[int, tuple[tuple[str, ...], str, str]] = {
    1: (("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file"),
    2: (("memory.max", "memory.high"), "memory.current", "inactive_file"),
}
# Version 1 writes "no limit" as the largest multiple of a page.
_NO_LIMIT = 1 << 62


def container_memory(proc: Path = Path("/proc/self")) -> Memory | None:
    """Return the least that any group around this process allows; None without a limit."""
    levels = [
        memory
        for version, mount, path in _groups(proc)
        for level in (path, *path.parents)
        if (memory := _level(mount / level, version)) is not None
    ]
    if not levels:
        return None
    return Memory(
        total_bytes=min(memory.total_bytes for memory in levels),
        free_bytes=min(memory.free_bytes for memory in levels),
    )


def _groups(proc: Path) -> Iterator[tuple[int, Path, PurePosixPath]]:
    """Yield a version, where its tree is mounted, and this process's place below that."""
    places = dict(_places(_text(proc / "cgroup")))
    for line in _text(proc / "mountinfo").splitlines():
        fields, _, about = line.partition(" - ")
        version = _version(about.split())
        if version in places and len(fields.split()) > 4:
            root, mount = (_unescaped(field) for field in fields.split()[3:5])
            yield version, Path(mount), _below(root, places[version])


def _places(text: str) -> Iterator[tuple[int, str]]:
    for line in text.splitlines():
        number, controllers, place = (*line.split(":", 2), "", "")[:3]
        if "memory" in controllers.split(","):
            yield 1, place
        elif number == "0":
            yield 2, place


def _version(about: list[str]) -> int:
    """Return the version of a mounted tree that may hold memory limits, else 0."""
    kind, options = (about[0], about[-1]) if about else ("", "")
    if kind == "cgroup" and "memory" in options.split(","):
        return 1
    return 2 if kind == "cgroup2" else 0


def _below(root: str, place: str) -> PurePosixPath:
    """Return the place below a mounted root; a place outside it is cut off at the root."""
    path = PurePosixPath(place)
    if ".." not in path.parts and path.is_relative_to(root):
        return PurePosixPath(path.relative_to(root))
    return PurePosixPath()


def _level(group: Path, version: int) -> Memory | None:
    limits, use, cache = _FILES[version]
    known = [size for name in limits if (size := _number(_text(group / name))) is not None]
    limit = min(known, default=_NO_LIMIT)
    if limit >= _NO_LIMIT:
        return None
    used = _number(_text(group / use)) or 0
    idle = _stat(_text(group / "memory.stat"), cache)
    return Memory(total_bytes=limit, free_bytes=max(0, limit - max(0, used - idle)))


def _stat(text: str, name: str) -> int:
    pairs = (line.split() for line in text.splitlines())
    return next((int(p[1]) for p in pairs if len(p) == 2 and p[0] == name and p[1].isdecimal()), 0)


def _number(text: str) -> int | None:
    return int(text) if text.strip().isdecimal() else None


def _unescaped(field: str) -> str:
    return field.replace("\\040", " ")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
