"""What the operator says of a server, for what cannot be asked: its flags, its host, its load."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from slotgate.doctor.flags import Flags, flags_of
from slotgate.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """`context`: tokens that the longest request needs.  `host_bytes`: memory of its machine."""

    flags: Flags | None = None
    context: int | None = None
    host_bytes: int | None = None


def parse_flags(text: str) -> Flags:
    """Read a llama-server's command line, or a part of it, as `flags_of` does."""
    try:
        return flags_of(shlex.split(text), "the flags you gave")
    except ConfigError as error:
        raise ConfigError(f"--flags: {error}") from error
    except ValueError as error:
        raise ConfigError(f"--flags cannot be read: {error}") from error
