"""What the words of `slotgate bench` and `slotgate simulate` mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slotgate.errors import ConfigError
from slotgate.load.lengths import CLASSES, LengthClass
from slotgate.load.traces import TraceOptions, read_trace
from slotgate.load.workloads import TENANTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from slotgate.load.arrival import Arrival

_ROLES: Final = ("arrival", "prompt", "output", "tenant")
# Files that are open besides the connections.
_OTHER_FILES: Final = 64


def kinds_of(lengths: str) -> dict[str, LengthClass]:
    """`chat` is what all tenants ask for, `A=chat,B=code` what each does."""
    if "=" not in lengths:
        kind = _kind(lengths)
        return dict.fromkeys(TENANTS, kind)
    return {tenant: _kind(name) for tenant, name in _pairs("--lengths", lengths.split(","))}


def _kind(name: str) -> LengthClass:
    try:
        return CLASSES[name]
    except KeyError:
        raise ConfigError(f"--lengths {name}: expected one of {', '.join(CLASSES)}") from None


def trace_of(
    path: Path | None, columns: str | None, *, speed: float, seconds: float, patience: float
) -> tuple[Arrival, ...] | None:
    """Read the trace, if there is one."""
    if path is None:
        return None
    named = dict(_pairs("--columns", columns.split(","))) if columns else {}
    if unknown := sorted(set(named) - set(_ROLES)):
        raise ConfigError(f"--columns {unknown[0]}: expected {', '.join(_ROLES)}")
    return read_trace(
        path, TraceOptions(columns=named, speed=speed, seconds=seconds, patience=patience)
    )


def keys_of(words: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """API keys by tenant, "" for all others; the words name where each key is, never the key."""
    keys = {}
    for word in words:
        tenant, _, variable = word.rpartition("=")
        if not environment.get(variable):
            # Not echoed: who gives the key itself by mistake should not find it in a log.
            raise ConfigError(
                "--key: expected TENANT=ENV or ENV, where ENV is an environment variable that is "
                "set" + (f"; see the one of {tenant!r}" if tenant else "")
            )
        keys[tenant] = environment[variable]
    return keys


def number_of_files(wanted: int) -> int:
    """So many connections, or as many as this process may have, raising its soft limit."""
    try:
        import resource
    except ImportError:  # not on Windows
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY else min(wanted, soft - _OTHER_FILES)


def _pairs(option: str, words: Iterable[str]) -> Iterable[tuple[str, str]]:
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name or not value:
            raise ConfigError(f"{option} {word}: expected NAME=VALUE")
        yield name.strip(), value.strip()
