"""The memory that a model may be put into, as values; `backends.devices` does the measuring.

- A card's budget is what is free on it, less what its driver takes and llama.cpp does not report:
  CUDA's context, its modules and cuBLAS take 107 to 555 MiB (llama.cpp#23604), so 600 MiB is
  assumed, and 1 GiB where a display runs, whose needs come and go.
- Unified memory is the host's, seen by an integrated GPU: what is planned there is no longer free
  on the host.
- What nobody measured is not made up: a plan for a card elsewhere has no host.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from slotgate.capacity.units import parse_bytes, show_bytes
from slotgate.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

MiB = 1 << 20
GiB = 1 << 30
OVERHEAD_BYTES = 600 * MiB
DISPLAY_OVERHEAD_BYTES = 1 * GiB
# What llama-server keeps of prompts if it is not told otherwise.
MAX_RESERVED_BYTES = 8 * GiB
AUTO = "auto"
# As many as llama.cpp takes (llama_max_devices).
MAX_GPUS = 16


class DeviceKind(StrEnum):
    """Where a device's memory is."""

    GPU = "gpu"  # on a card of its own
    UNIFIED = "unified"  # the host's, used by an integrated GPU
    HOST = "host"


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device and its memory.

    `total_bytes` is what a program could have of it with nothing else running, and `free_bytes`
    what it could have now; `reserved_bytes` of these are kept for prompts that wait to be reused.
    """

    name: str
    kind: DeviceKind
    total_bytes: int
    free_bytes: int
    has_display: bool = False
    reserved_bytes: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.free_bytes <= self.total_bytes:
            raise ValueError(f"{self.name}: {self.free_bytes} of {self.total_bytes} bytes free")

    @property
    def overhead_bytes(self) -> int:
        """What the driver and the context are assumed to take of `free_bytes`."""
        if self.kind is DeviceKind.HOST:
            return 0
        return DISPLAY_OVERHEAD_BYTES if self.has_display else OVERHEAD_BYTES

    @property
    def budget_bytes(self) -> int:
        """What is left for weights, contexts and scratch."""
        return max(0, self.free_bytes - self.overhead_bytes - self.reserved_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSet:
    """The GPUs that llama.cpp would use, in its order, and the host's memory if it is known.

    `notes` are sentences for the user: what could not be measured, why, and what to do about it.
    """

    gpus: tuple[Device, ...] = ()
    host: Device | None = None
    notes: tuple[str, ...] = ()

    @property
    def shares_host(self) -> bool:
        """Whether a byte planned on a GPU is a byte less on the host."""
        return any(gpu.kind is DeviceKind.UNIFIED for gpu in self.gpus)


def parse_memory(text: str) -> tuple[int, ...] | None:
    """Read `--memory`: the bytes of each GPU, or None for `auto`."""
    if text.strip().lower() == AUTO:
        return None
    try:
        return tuple(parse_bytes(part) for part in text.split(","))
    except ConfigError as error:
        raise ConfigError(f"--memory: {error}") from error


def by_hand(memory_bytes: Sequence[int], *, host_bytes: int | None = None) -> DeviceSet:
    """Return what `--memory 24GiB,16GiB` means: that many empty cards, and no known host.

    Each is the size that its maker names; the driver's part is still taken off.  No card at all
    is a plan for the host alone.
    """
    if len(memory_bytes) > MAX_GPUS:
        raise ConfigError(f"--memory: {len(memory_bytes)} GPUs; llama.cpp takes {MAX_GPUS} at most")
    if min(memory_bytes, default=1) <= 0:
        raise ConfigError("--memory: a GPU without memory; leave it out, or give its size")
    gpus = tuple(
        Device(name=f"GPU {index}", kind=DeviceKind.GPU, total_bytes=size, free_bytes=size)
        for index, size in enumerate(memory_bytes)
    )
    return DeviceSet(gpus=gpus, host=None if host_bytes is None else _host(host_bytes))


def keeping_prompts(devices: DeviceSet) -> DeviceSet:
    """Reserve a quarter of a measured host, at most 8 GiB, where the model is to run on it.

    llama-server keeps prompts there (`--cache-ram`), and would find no room when slots fill all.
    A size given by hand is for the model and its slots alone.
    """
    if devices.gpus or devices.host is None:
        return devices
    reserved = min(devices.host.free_bytes // 4, MAX_RESERVED_BYTES)
    return replace(devices, host=replace(devices.host, reserved_bytes=reserved))


def working_set_bytes(ram_bytes: int, *, wired_limit_mib: int = 0) -> int:
    """Return how much of an Apple machine's memory Metal lets a program keep resident.

    That is `recommendedMaxWorkingSetSize`, which llama.cpp reports as the device's memory.  Only
    Metal itself tells it, so: the limit that the user set by `sysctl iogpu.wired_limit_mb`, else
    the smallest share seen in public logs, two thirds of a small machine (5461 MiB of 8 GiB, 10922
    of 16, 21845 of 32) and three quarters of a large one (49152 MiB of 64 GiB, 73728 of 96).  That
    the step is at 36 GiB is an assumption.  Recent systems allow more (107.5 of 128 GiB), so this
    errs to the safe side.
    """
    if wired_limit_mib > 0:
        return min(ram_bytes, wired_limit_mib * MiB)
    return ram_bytes * 2 // 3 if ram_bytes <= 36 * GiB else ram_bytes * 3 // 4


def describe(devices: DeviceSet) -> list[str]:
    """Write a line for each device, then the notes."""
    known = [*devices.gpus, *([devices.host] if devices.host else [])]
    return [*map(_line, known), *devices.notes]


def _line(device: Device) -> str:
    parts = [f"{show_bytes(device.free_bytes)} free of {show_bytes(device.total_bytes)}"]
    if device.kind is DeviceKind.UNIFIED:
        parts.append("shared with the host")
    if device.overhead_bytes:
        why = "driver, context and display" if device.has_display else "driver and context"
        parts.append(f"{show_bytes(device.overhead_bytes)} of it assumed for {why}")
    return f"{device.name}: {', '.join(parts)}"


def _host(size: int) -> Device:
    return Device(name="host", kind=DeviceKind.HOST, total_bytes=size, free_bytes=size)
