"""Settings as plain data, as they would stand in the file, with everything secret left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slotgate.config import describe

HIDDEN = "(hidden)"


def plain(group: Any) -> dict[str, Any]:
    """Return a group of settings by their keys; what is not set is left out.

    Keys never stand in the configuration, but their digests may: those are hidden.
    """
    model: describe.Model = type(group)
    values = zip(describe.settings_of(model), model.model_fields, strict=True)
    return {
        setting.key: _value(setting.key, getattr(group, name), setting.unit)
        for setting, name in values
        if getattr(group, name) is not None
    }


def dotted(group: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return plain settings by their paths, `queue.max_waiting`; lists are kept whole."""
    flat: dict[str, Any] = {}
    for key, value in group.items():
        if isinstance(value, Mapping):
            flat |= dotted(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def _value(key: str, value: Any, unit: str) -> Any:
    if key.endswith("_sha256"):
        return HIDDEN
    if isinstance(value, tuple):
        return [item if isinstance(item, str) else plain(item) for item in value]
    if hasattr(value, "model_fields_set"):
        return plain(value)
    return value if unit not in {"seconds", "bytes"} else describe.show(value, unit)
