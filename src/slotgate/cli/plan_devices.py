"""The memory that `slotgate plan` plans for."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from slotgate.capacity.devices import DeviceSet, by_hand, keeping_prompts, parse_memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from slotgate.capacity.placement import Override
    from slotgate.capacity.wish import Wish

# What llama.cpp calls its devices: the backend's name and a number.
_DEVICE = re.compile(r"([A-Za-z]+)(\d+)")


class Devices:
    """The memory to plan for: as given, or as it is measured meanwhile.

    Asking drivers takes as long as reading a model, so it is begun with the object.
    """

    def __init__(self, memory: str) -> None:
        self._sizes = parse_memory(memory)
        self._measured: Callable[[], DeviceSet] | None = None
        if self._sizes is None:
            self._measured = _begin_measuring()

    def of(self, wish: Wish) -> DeviceSet:
        """The devices for this wish: without layers on GPUs, the host alone."""
        on_cpu = wish.n_gpu_layers == 0
        if self._measured is not None:
            measured = self._measured()
            return keeping_prompts(replace(measured, gpus=()) if on_cpu else measured)
        sizes = self._sizes or ()
        if on_cpu:
            return by_hand((), host_bytes=sum(sizes))
        return _named(by_hand(sizes), wish.overrides)


def _begin_measuring() -> Callable[[], DeviceSet]:
    from threading import Thread

    from slotgate.backends.devices import measure_devices

    found: list[DeviceSet] = []
    # Not a pool: if the user gives up meanwhile, nobody waits for a driver.
    thread = Thread(target=lambda: found.append(measure_devices()), daemon=True)
    thread.start()

    def measured() -> DeviceSet:
        thread.join()
        return found[0]

    return measured


def _named(devices: DeviceSet, overrides: tuple[Override, ...]) -> DeviceSet:
    """Cards given by hand, called as the user's overrides call them: CUDA0, CUDA1."""
    for override in overrides:
        if found := _DEVICE.fullmatch(override.device):
            gpus = (replace(gpu, name=f"{found[1]}{n}") for n, gpu in enumerate(devices.gpus))
            return replace(devices, gpus=tuple(gpus))
    return devices
