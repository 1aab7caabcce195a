"""Whether a path the user gave is a llama-server that runs here."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from slotgate.backends.helper import run_lines
from slotgate.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

_VERSION = re.compile(r"^version:\s*(.+)$")


def check_executable(path: Path) -> None:
    """Raise ConfigError unless this is a file that we may run."""
    if not path.exists():
        raise ConfigError(f"llama_server: {path}: no such file")
    if path.is_dir():
        raise ConfigError(f"llama_server: {path}: a directory; give the llama-server in it")
    if not os.access(path, os.X_OK):
        raise ConfigError(f"llama_server: {path}: not executable; run `chmod +x {path}`")


def program(path: Path) -> str:
    """What to execute: never looked up in PATH."""
    return str(path.absolute())


async def read_version(path: Path) -> str:
    """What `--version` says; ConfigError if this is not a llama-server, or does not run here."""
    check_executable(path)
    try:
        status, lines = await run_lines([program(path), "--version"], lambda _: None)
    except OSError as error:
        raise ConfigError(f"llama_server: {path}: cannot be run: {error.strerror}") from error
    for line in lines:
        if found := _VERSION.match(line):
            return found[1]
    said = lines[-1] if lines else "nothing"
    raise ConfigError(
        f"llama_server: {path}: not a llama-server: `--version` said {said!r} (status {status})"
    )
