"""Whether a vendor's card is on the bus, which Linux tells without the vendor's driver."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slotgate.backends.devices.cards import Found

NVIDIA = 0x10DE
AMD = 0x1002
# Base classes: display controllers, and processing accelerators.
_CLASSES = {0x03, 0x12}
_DEVICES = Path("/sys/bus/pci/devices")


def with_hints_told(found: Found, vendor: int, *, devices: Path = _DEVICES) -> Found:
    """Turn hints into notes where the vendor's card is on the bus, and yet none was found."""
    if found.cards or not is_on_bus(vendor, devices=devices):
        return found
    return replace(found, notes=found.notes + found.hints, hints=())


def is_on_bus(vendor: int, *, devices: Path = _DEVICES) -> bool:
    return any(
        _number(path / "vendor") == vendor and _number(path / "class") >> 16 in _CLASSES
        for path in devices.glob("*")
    )


def _number(path: Path) -> int:
    try:
        return int(path.read_text(encoding="ascii"), 16)
    except (OSError, ValueError):
        return 0
