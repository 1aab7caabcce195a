"""Asks AMD's driver through amdsmi, which needs the library of an installed ROCm.

- HIP numbers the cards by itself; where the library tells the number, they are put in that order.
- An APU has two pools: VRAM, which the firmware cut out of the host's memory, and GTT, which it
  borrows from the host.  Linux gives it the second whenever that is the larger one, and never both
  (`apu_prefer_gtt`), so the sum that some tools show cannot be had (ROCm#6004).
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from slotgate.backends.devices.cards import Card, Found
from slotgate.backends.devices.visible import CUDA, HIP, ROCR, hidden, seen_by_rocm

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Versions of the driver's table of measurements that only APUs have.
_APU_FORMATS = (2, 3)


class AmdSmi(Protocol):
    """The part of the module `amdsmi` that is used; handles are its own and opaque."""

    AmdSmiException: type[Exception]
    AmdSmiMemoryType: Any

    def amdsmi_init(self) -> None: ...
    def amdsmi_shut_down(self) -> None: ...
    def amdsmi_get_processor_handles(self) -> Sequence[Any]: ...
    def amdsmi_get_gpu_memory_total(self, handle: Any, mem_type: Any) -> int: ...
    def amdsmi_get_gpu_memory_usage(self, handle: Any, mem_type: Any) -> int: ...
    def amdsmi_get_gpu_asic_info(self, handle: Any) -> Mapping[str, Any]: ...
    def amdsmi_get_gpu_enumeration_info(self, handle: Any) -> Mapping[str, Any]: ...
    def amdsmi_get_gpu_metrics_header_info(self, handle: Any) -> Mapping[str, int]: ...


def read_amdsmi(smi: AmdSmi, environ: Mapping[str, str]) -> Found:
    """Return the cards that HIP would show a program with this environment."""
    try:
        smi.amdsmi_init()
    except smi.AmdSmiException as error:
        return Found(hints=(f"amdsmi finds no AMD driver: {_said(error)}",))
    try:
        return _read(smi, environ)
    finally:
        with contextlib.suppress(smi.AmdSmiException):
            smi.amdsmi_shut_down()


def larger_pool(card: Card, *, vram: tuple[int, int], gtt: tuple[int, int]) -> Card:
    """Return an APU's card with the pool that Linux gives it; each is (total, used) bytes."""
    if gtt[0] > vram[0]:
        return replace(with_sizes(card, gtt), shares_host=True)
    return with_sizes(card, vram)


def with_sizes(card: Card, pool: tuple[int, int]) -> Card:
    total, used = pool
    return replace(card, total_bytes=total, free_bytes=max(0, total - used))


def _read(smi: AmdSmi, environ: Mapping[str, str]) -> Found:
    notes: list[str] = []
    # (HIP's number, the card); a card that cannot be read keeps its number.
    cards: list[tuple[int, Card | None]] = []
    for index, handle in enumerate(smi.amdsmi_get_processor_handles()):
        number, uuid = _identity(smi, handle, index)
        try:
            cards.append((number, _card(smi, handle, uuid)))
        except smi.AmdSmiException as error:
            notes.append(f"AMD card {index} cannot be read: {_said(error)}")
            cards.append((number, None))
    ordered = [card for _, card in sorted(cards, key=lambda entry: entry[0])]
    seen = seen_by_rocm(ordered, [card.uuid if card else "" for card in ordered], environ)
    notes += hidden(seen, ordered, environ, ROCR, HIP, CUDA)
    return Found(cards=tuple(card for card in seen if card), notes=tuple(notes))


def _identity(smi: AmdSmi, handle: Any, index: int) -> tuple[int, str]:
    """Return HIP's number and UUID of a card; older libraries do not tell them."""
    with contextlib.suppress(smi.AmdSmiException, AttributeError, KeyError):
        info = smi.amdsmi_get_gpu_enumeration_info(handle)
        number = info["hip_id"]
        return number if isinstance(number, int) else index, info["hip_uuid"]
    return index, ""


def _card(smi: AmdSmi, handle: Any, uuid: str) -> Card:
    kinds = smi.AmdSmiMemoryType
    card = Card(name=_name(smi, handle), uuid=uuid)
    vram = _pool(smi, handle, kinds.VRAM)
    if not _is_apu(smi, handle):
        return with_sizes(card, vram)
    return larger_pool(card, vram=vram, gtt=_pool(smi, handle, kinds.GTT))


def _pool(smi: AmdSmi, handle: Any, kind: Any) -> tuple[int, int]:
    total = smi.amdsmi_get_gpu_memory_total(handle, kind)
    return total, smi.amdsmi_get_gpu_memory_usage(handle, kind)


def _name(smi: AmdSmi, handle: Any) -> str:
    with contextlib.suppress(smi.AmdSmiException):
        name = str(smi.amdsmi_get_gpu_asic_info(handle)["market_name"])
        if name not in {"", "N/A"}:
            return name
    return "AMD card"


def _is_apu(smi: AmdSmi, handle: Any) -> bool:
    with contextlib.suppress(smi.AmdSmiException, AttributeError):
        return smi.amdsmi_get_gpu_metrics_header_info(handle)["format_revision"] in _APU_FORMATS
    return False


def _said(error: Exception) -> str:
    """Return the library's words in one line."""
    info = getattr(error, "err_info", None)
    return str(info or error).strip()
