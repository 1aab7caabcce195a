"""What differs between the settings in force and those of a file that was read anew.

Most settings can change while the gateway serves.  What is used only when it starts cannot: that
keeps its value until a restart, and is said to need one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from slotgate.config.plain import dotted, plain
from slotgate.config.settings import Settings
from slotgate.errors import ConfigError

# Used once, when the gateway starts.
_ON_START = ("listen", "insecure", "probe_interval", "health", "watchdog", "log")
_LIMITS_ON_START = ("idle_timeout",)
_NAMED = ("backends", "tenants")


@dataclass(frozen=True, slots=True, kw_only=True)
class NameChanges:
    """What was added, changed or removed in a list of things with names."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What is different: `settings` by their paths, and those of them that need a restart."""

    backends: NameChanges
    tenants: NameChanges
    settings: tuple[str, ...]
    needs_restart: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.backends or self.tenants or self.settings)


def adopt(old: Settings, new: Settings) -> Settings:
    """Return the new settings with those of the old ones that only a restart changes.

    Raises ConfigError where together they would let in everybody who can reach the gateway.
    """
    limits = new.limits.model_copy(
        update={name: getattr(old.limits, name) for name in _LIMITS_ON_START}
    )
    kept = {name: getattr(old, name) for name in _ON_START}
    adopted = new.model_copy(update={**kept, "limits": limits})
    if adopted.bind.is_public and not adopted.tenants and not adopted.insecure:
        raise ConfigError(
            f"listen: others can reach {adopted.listen} until a restart, and no tenant has a key"
        )
    return adopted


def compare(old: Settings, new: Settings) -> Changes:
    """Say what is different in the new settings, as they were read."""
    before, after = _flat(old), _flat(new)
    keys = list(dict.fromkeys([*before, *after]))
    different = [key for key in keys if before.get(key) != after.get(key)]
    if old.admin_digest != new.admin_digest:
        # The key itself: where it is found may have stayed the same.
        different = [key for key in different if not key.startswith("admin_key")] + ["admin_key"]
    return Changes(
        backends=_by_name(old.backends, new.backends),
        tenants=_by_name(old.tenants, new.tenants),
        settings=tuple(key for key in different if not _is_on_start(key)),
        needs_restart=tuple(key for key in different if _is_on_start(key)),
    )


def _flat(settings: Settings) -> Mapping[str, Any]:
    return dotted({key: value for key, value in plain(settings).items() if key not in _NAMED})


def _is_on_start(key: str) -> bool:
    group, _, name = key.partition(".")
    return group in _ON_START or (group == "limits" and name in _LIMITS_ON_START)


def _by_name(old: Iterable[Any], new: Iterable[Any]) -> NameChanges:
    # With their keys, which are no fields and yet are compared.
    before = {each.name: each for each in old}
    after = {each.name: each for each in new}
    return NameChanges(
        added=tuple(name for name in after if name not in before),
        changed=tuple(name for name in after if name in before and after[name] != before[name]),
        removed=tuple(name for name in before if name not in after),
    )
