"""Asks NVIDIA's driver through nvidia-ml-py what its cards have free.

- Sizes come from the second version of the call, which tells the driver's own reserve apart; it
  makes no CUDA context, so asking takes nothing of the card.
- A card without memory of its own (GB10, Jetson) answers "not supported": it uses the host's.
- A card in MIG mode is seen as its MIG devices.  Drivers before R570 show a program only the first
  of them and then no whole card; later ones show one for each GPU instance.
"""

# ruff: noqa: N802  the names are NVIDIA's

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from slotgate.backends.devices.cards import Card, Found
from slotgate.backends.devices.visible import CUDA, choose, hidden

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_NOT_SUPPORTED = 3
_INIT_FAILURES = {
    4: "there is no permission to ask the NVIDIA driver",
    9: "no NVIDIA driver is loaded",
    12: "no NVIDIA driver is installed",
    18: "the NVIDIA driver was updated while the old one runs; restart the machine",
}
_FIRST_WITH_SEVERAL_MIG = 570


class Nvml(Protocol):
    """The part of the module `pynvml` that is used; handles are its own and opaque."""

    NVMLError: type[Exception]
    nvmlMemory_v2: int  # noqa: N815

    def nvmlInit(self) -> None: ...
    def nvmlShutdown(self) -> None: ...
    def nvmlSystemGetDriverVersion(self) -> str: ...
    def nvmlDeviceGetCount(self) -> int: ...
    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any: ...
    def nvmlDeviceGetName(self, handle: Any) -> str: ...
    def nvmlDeviceGetUUID(self, handle: Any) -> str: ...
    def nvmlDeviceGetMemoryInfo(self, handle: Any, version: int | None = None) -> Any: ...
    def nvmlDeviceGetDisplayActive(self, handle: Any) -> int: ...
    def nvmlDeviceGetMigMode(self, device: Any) -> Sequence[int]: ...
    def nvmlDeviceGetMaxMigDeviceCount(self, device: Any) -> int: ...
    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: Any, index: int) -> Any: ...
    def nvmlDeviceGetGpuInstanceId(self, device: Any) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unit:
    """A whole card, or a MIG device of one; without `card` a program cannot have it."""

    uuid: str = ""
    card: Card | None = None
    instance: tuple[str, int] | None = None  # of a MIG device: its card's UUID, its GPU instance


def read_nvml(nvml: Nvml, environ: Mapping[str, str]) -> Found:
    """Return the cards that CUDA would show a program with this environment."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        code = getattr(error, "value", None)
        told = f"the NVIDIA driver does not answer: {error}"
        return Found(hints=(_INIT_FAILURES.get(code, told) if isinstance(code, int) else told,))
    try:
        return _Reader(nvml).read(environ)
    finally:
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


class _Reader:
    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self._notes: list[str] = []

    def read(self, environ: Mapping[str, str]) -> Found:
        whole: list[_Unit] = []
        parts: list[_Unit] = []
        for index in range(self._nvml.nvmlDeviceGetCount()):
            try:
                handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
                unit, its_parts = self._unit(handle)
            except self._nvml.NVMLError as error:
                self._notes.append(f"NVIDIA card {index} cannot be read: {error}")
                unit, its_parts = _Unit(), []
            whole.append(unit)
            parts += its_parts
        cards = tuple(self._visible(whole, parts, environ))
        return Found(cards=cards, notes=(*self._notes, *hidden(cards, whole, environ)))

    def _unit(self, handle: Any) -> tuple[_Unit, list[_Unit]]:
        uuid = self._nvml.nvmlDeviceGetUUID(handle)
        if not self._has_mig(handle):
            return _Unit(uuid=uuid, card=self._card(handle, uuid)), []
        parts = list(self._parts(handle, uuid))
        if not parts:
            name = self._nvml.nvmlDeviceGetName(handle)
            self._notes.append(f"{name}: MIG is on, but there is no MIG device on it")
        return _Unit(uuid=uuid), parts

    def _has_mig(self, handle: Any) -> bool:
        with contextlib.suppress(self._nvml.NVMLError):
            return self._nvml.nvmlDeviceGetMigMode(handle)[0] == 1
        return False

    def _parts(self, handle: Any, parent: str) -> Iterator[_Unit]:
        for index in range(self._nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
            # They are numbered with gaps: a place without a device is "not found".
            with contextlib.suppress(self._nvml.NVMLError):
                part = self._nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
                uuid = self._nvml.nvmlDeviceGetUUID(part)
                instance = (parent, self._nvml.nvmlDeviceGetGpuInstanceId(part))
                yield _Unit(uuid=uuid, card=self._card(part, uuid), instance=instance)

    def _card(self, handle: Any, uuid: str) -> Card:
        name = self._nvml.nvmlDeviceGetName(handle)
        memory = self._memory(handle)
        if memory is None or memory.total == 0:
            return Card(name=name, uuid=uuid, shares_host=True)
        return Card(
            name=name,
            uuid=uuid,
            total_bytes=memory.total - getattr(memory, "reserved", 0),
            free_bytes=memory.free,
            has_display=self._has_display(handle),
        )

    def _memory(self, handle: Any) -> Any:
        """Return what the driver says, None if the card has no memory of its own."""
        try:
            return self._nvml.nvmlDeviceGetMemoryInfo(handle, version=self._nvml.nvmlMemory_v2)
        except self._nvml.NVMLError as error:
            if getattr(error, "value", None) == _NOT_SUPPORTED:
                return None
        # Drivers before R510 know only the first version.
        return self._nvml.nvmlDeviceGetMemoryInfo(handle)

    def _has_display(self, handle: Any) -> bool:
        with contextlib.suppress(self._nvml.NVMLError):
            return self._nvml.nvmlDeviceGetDisplayActive(handle) == 1
        return False

    def _visible(
        self, whole: list[_Unit], parts: list[_Unit], environ: Mapping[str, str]
    ) -> list[Card]:
        wanted = environ.get(CUDA)
        units = [*whole, *parts]
        chosen = list(range(len(whole)))
        if wanted is not None:
            chosen = choose(wanted, [unit.uuid for unit in units], numbered=len(whole))
            self._warn_of_order(wanted, units, environ)
        named = [part for at in chosen for part in _parts_of(units[at], parts)]
        return [unit.card for unit in self._enumerated(named) if unit.card is not None]

    def _enumerated(self, units: list[_Unit]) -> list[_Unit]:
        """Return those that CUDA shows of the ones that were named."""
        instances = {unit.instance: unit for unit in reversed(units) if unit.instance}
        if not instances:
            return units
        version = self._nvml.nvmlSystemGetDriverVersion()
        if int(version.split(".")[0]) >= _FIRST_WITH_SEVERAL_MIG:
            return [u for u in units if u.instance is None or instances[u.instance] is u]
        if len(units) > 1:
            self._notes.append(
                f"driver {version} shows a program one MIG device only; the other cards are left "
                f"out (R{_FIRST_WITH_SEVERAL_MIG} and later show one for each GPU instance)"
            )
        return [next(unit for unit in units if unit.instance)]

    def _warn_of_order(self, wanted: str, units: list[_Unit], environ: Mapping[str, str]) -> None:
        names = {unit.card.name for unit in units if unit.card is not None}
        by_bus = environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
        if (
            len(names) > 1
            and not by_bus
            and any(entry.strip().isdecimal() for entry in wanted.split(","))
        ):
            self._notes.append(
                "CUDA_VISIBLE_DEVICES has numbers, which CUDA counts from the fastest card and "
                "this plan from the first on the bus; set CUDA_DEVICE_ORDER=PCI_BUS_ID"
            )


def _parts_of(unit: _Unit, parts: list[_Unit]) -> list[_Unit]:
    its = [part for part in parts if part.instance and part.instance[0] == unit.uuid]
    return its or [unit]
