"""Whether a path the user gave is a llama-server that runs here."""

from __future__ import annotations

import asyncio
import os
import re
from typing import TYPE_CHECKING

from slotgate.backends.helper import run_lines
from slotgate.capacity.devices import Device, DeviceKind
from slotgate.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

# `  CUDA0: NVIDIA GeForce RTX 4090 (24210 MiB, 23871 MiB free)`
_DEVICE = re.compile(r"^\s+(\w+): .*\((\d+) MiB, (\d+) MiB free\)$")
_MiB = 1 << 20
# A driver may be slow to wake up.
_LIST_SECONDS = 30.0
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


async def list_gpus(path: Path) -> tuple[Device, ...]:
    """The GPUs that this llama-server can use, with their memory as it sees it; none if it cannot.

    Builds that cannot list their devices are taken for ones without GPUs.
    """
    check_executable(path)
    try:
        async with asyncio.timeout(_LIST_SECONDS):
            _, lines = await run_lines([program(path), "--list-devices"], lambda _: None)
    except (OSError, TimeoutError):
        return ()
    found = [match for line in lines if (match := _DEVICE.match(line))]
    return tuple(_device(match[1], int(match[2]), int(match[3])) for match in found)


def _device(name: str, total_mib: int, free_mib: int) -> Device:
    return Device(
        name=name,
        kind=DeviceKind.UNIFIED if name.startswith("MTL") else DeviceKind.GPU,
        total_bytes=total_mib * _MiB,
        free_bytes=min(free_mib, total_mib) * _MiB,
    )
