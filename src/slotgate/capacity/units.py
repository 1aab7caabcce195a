"""Sizes in bytes as people write and read them: `24GiB`, `24 GB`, `512MiB`.

- GB is 10^9 bytes and GiB is 2^30; both are read, in any case, and each means what it says.
- There is one reader, `read_size`.  The configuration allows a bare number of bytes besides; the
  command line does not, because nobody means 24 bytes by `--memory 24`.
"""

from __future__ import annotations

import re
from decimal import Decimal

from slotgate.errors import ConfigError

MAX_BYTES = 1 << 50

_BYTES = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
}
_FACTORS = {unit.lower(): factor for unit, factor in _BYTES.items()}
# Bounded, so that no input makes the conversion slow.
_NUMBER = r"[0-9]{1,18}(?:\.[0-9]{1,15})?"
_SIZE = re.compile(rf"({_NUMBER}) ?([A-Za-z]{{1,3}})")
# What names no unit, or only half of one: 24, 24G, 24Gi.
_VAGUE = re.compile(rf"({_NUMBER}) ?(?:([KMGTkmgt])[Ii]?)?")


def read_size(text: str) -> Decimal | None:
    """Return the bytes, perhaps with a fraction; None if it is not a number with a unit."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or (factor := _FACTORS.get(match[2].lower())) is None:
        return None
    return Decimal(match[1]) * factor


def parse_bytes(text: str) -> int:
    """Return whole bytes, a part of a byte dropped; ConfigError says how it should look."""
    size = read_size(text)
    if size is None:
        raise ConfigError(_complaint(text))
    if size > MAX_BYTES:
        raise ConfigError(f"{_shown(text)} is more than 1024TiB, the most that is allowed")
    return int(size)


def show_bytes(size: int, unit: str = "GiB") -> str:
    """Write bytes for a reader, to one decimal: `23.4 GiB`."""
    return f"{size} B" if unit == "B" else f"{size / _BYTES[unit]:.1f} {unit}"


def show_size(size: int) -> str:
    """Write bytes for a reader in MiB, or in GiB from one of them on."""
    return show_bytes(size, "GiB" if abs(size) >= _BYTES["GiB"] else "MiB")


def format_size(size: int) -> str:
    """Write bytes in the largest unit that divides them, so that `read_size` reads them again."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size and size % _BYTES[unit] == 0:
            return f"{size // _BYTES[unit]}{unit}"
    return f"{size}B"


def _complaint(text: str) -> str:
    vague = _VAGUE.fullmatch(text.strip())
    if vague is None:
        return f"{_shown(text)} is not a size; write it like 24GiB or 24GB"
    if vague[2] is None and Decimal(vague[1]) >= _BYTES["MB"]:
        return f"{_shown(text)} has no unit; write {vague[1]}B if it is bytes"
    number, prefix = vague[1], (vague[2] or "G").upper()
    decimal, binary = ("kB" if prefix == "K" else f"{prefix}B"), f"{prefix}iB"
    return (
        f"{_shown(text)} could mean {number}{decimal} ({_power(decimal)} bytes each) "
        f"or {number}{binary} ({_power(binary)} bytes each); write which"
    )


def _power(unit: str) -> str:
    factor = _BYTES[unit]
    return f"2^{factor.bit_length() - 1}" if "i" in unit else f"10^{len(str(factor)) - 1}"


def _shown(text: str) -> str:
    shown = repr(text)
    return shown if len(shown) <= 60 else shown[:57] + "..."
