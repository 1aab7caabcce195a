"""Measures the memory that a model may be put into, for `--memory auto`.

- Nothing here fails: what is not installed, not loaded, not allowed, stuck or unknown costs a
  sentence in the answer's notes.
- Cards are those that a llama-server started from here would see, numbered as it numbers them.
- Drivers are asked in processes of their own, each with a bound; still, asking may take seconds,
  so a program with an event loop calls this in a thread.
"""

from __future__ import annotations

import os
import platform
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from slotgate.backends.devices.amd import find_amd
from slotgate.backends.devices.apple import find_apple
from slotgate.backends.devices.cards import Card, Found, Memory
from slotgate.backends.devices.host import Host, find_host
from slotgate.backends.devices.nvidia import find_nvidia
from slotgate.backends.devices.pci import AMD, NVIDIA, with_hints_told
from slotgate.capacity.devices import Device, DeviceKind, DeviceSet

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Card", "Found", "Host", "Memory", "assemble", "measure_devices"]

_NO_HOST = "the host's memory could not be measured"
_NO_GPU = "no GPU was found; to plan for one all the same, give its memory, like --memory 24GiB"


def measure_devices(*, system: str = platform.system()) -> DeviceSet:
    """Measure this machine's cards and host memory as they are now."""
    if system == "Darwin":
        return assemble([find_apple()], find_host())
    # Side by side: each waits for a process.
    with ThreadPoolExecutor(max_workers=2) as pool:
        nvidia = pool.submit(find_nvidia, os.environ)
        amd = pool.submit(find_amd, os.environ)
        host = find_host()
    found = [with_hints_told(nvidia.result(), NVIDIA), with_hints_told(amd.result(), AMD)]
    return assemble(found, host)


def assemble(found: Sequence[Found], host: Host | None) -> DeviceSet:
    """Make devices of what the sources found."""
    notes = [note for each in found for note in each.notes]
    cards = [_device(card, host) for each in found for card in each.cards]
    gpus, left_out = _as_llama_cpp_chooses([gpu for gpu in cards if gpu is not None])
    if not gpus:
        notes += [*(hint for each in found for hint in each.hints), _NO_GPU]
    notes += [*left_out, *(host.notes if host else (_NO_HOST,))]
    return DeviceSet(
        gpus=tuple(gpus),
        host=_to_device("host", DeviceKind.HOST, host.allowed) if host else None,
        notes=tuple(notes),
    )


def _as_llama_cpp_chooses(gpus: list[Device]) -> tuple[list[Device], list[str]]:
    """Return the GPUs it would use: an integrated one only where there is no other."""
    own = [gpu for gpu in gpus if gpu.kind is DeviceKind.GPU]
    if not own or len(own) == len(gpus):
        return gpus, []
    names = ", ".join(gpu.name for gpu in gpus if gpu.kind is DeviceKind.UNIFIED)
    return own, [f"{names}: left out, as llama.cpp does where there is another GPU"]


def _device(card: Card, host: Host | None) -> Device | None:
    if not card.shares_host:
        return _to_device(card.name, DeviceKind.GPU, _sizes(card), has_display=card.has_display)
    # Not `allowed`: what a driver takes of the host's memory is not charged to the control group.
    free = host.machine if host else None
    sizes = _sizes(card) or free
    if sizes is not None and free is not None:
        sizes = replace(sizes, free_bytes=min(sizes.free_bytes, free.free_bytes))
    return _to_device(card.name, DeviceKind.UNIFIED, sizes)


def _sizes(card: Card) -> Memory | None:
    if card.total_bytes is None or card.free_bytes is None:
        return None
    return Memory(total_bytes=card.total_bytes, free_bytes=card.free_bytes)


def _to_device(
    name: str, kind: DeviceKind, sizes: Memory | None, *, has_display: bool = False
) -> Device | None:
    if sizes is None:
        return None
    total = max(0, sizes.total_bytes)
    return Device(
        name=name,
        kind=kind,
        total_bytes=total,
        free_bytes=min(max(0, sizes.free_bytes), total),
        has_display=has_display,
    )
