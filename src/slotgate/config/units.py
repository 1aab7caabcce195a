"""Durations and sizes as people write them: `10s`, `250ms`, `5m`; `256MiB`, `1GB`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from slotgate.capacity.units import MAX_BYTES, read_size

MAX_SECONDS = 30 * 86_400.0

_SECONDS = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600)}
# Bounded, so that no input makes the conversion slow.
_DURATION = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?) ?(ms|s|m|h)")


@dataclass(frozen=True, slots=True)
class Unit:
    """What a number of the configuration counts; shown in the reference page and in messages."""

    name: str


def parse_duration(value: object) -> float:
    """Return seconds; a bare number is seconds.  ValueError says how it should look."""
    seconds = _number(value) if not isinstance(value, str) else _duration(value)
    if seconds is None:
        raise ValueError(f"{_shown(value)} is not a duration; write it like 10s, 250ms or 5m")
    if seconds > MAX_SECONDS:
        raise ValueError(f"{_shown(value)} is longer than 30 days, the longest that is allowed")
    return seconds


def parse_size(value: object) -> int:
    """Return bytes; a bare number is bytes.  ValueError says how it should look."""
    size = _number(value) if not isinstance(value, str) else read_size(value)
    if size is None or size != int(size):
        raise ValueError(
            f"{_shown(value)} is not a size in whole bytes; write it like 256MiB or 1GB"
        )
    if size > MAX_BYTES:
        raise ValueError(f"{_shown(value)} is more than 1024TiB, the most that is allowed")
    return int(size)


def format_duration(seconds: float) -> str:
    """Write seconds so that `parse_duration` reads the same number again."""
    text = format(Decimal(repr(seconds)), "f")
    return (text.rstrip("0").rstrip(".") if "." in text else text) + "s"


def refuse_bool(value: object) -> object:
    """Python counts True as 1; a person who writes `max_waiting: true` means something else."""
    if isinstance(value, bool):
        raise ValueError("is true or false, where a number is wanted")  # noqa: TRY004 pydantic's way
    return value


Seconds = Annotated[
    float,
    BeforeValidator(parse_duration),
    Unit("seconds"),
    WithJsonSchema({"type": ["string", "number"], "pattern": r"^[0-9]+(\.[0-9]+)? ?(ms|s|m|h)$"}),
]
Bytes = Annotated[
    int,
    BeforeValidator(parse_size),
    Unit("bytes"),
    WithJsonSchema({"type": ["string", "integer"], "pattern": r"^[0-9]+(\.[0-9]+)? ?[A-Za-z]+$"}),
]


def _duration(text: str) -> float | None:
    match = _DURATION.fullmatch(text.strip())
    return float(Decimal(match[1]) * _SECONDS[match[2]]) if match else None


def _number(value: object) -> float | int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
