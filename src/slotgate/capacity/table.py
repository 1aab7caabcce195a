"""The table of a plan: for each cache type and number of slots, the largest context of a slot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slotgate.capacity.search import Search
from slotgate.capacity.usage import Uses
from slotgate.errors import PlanRefused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slotgate.capacity.devices import DeviceSet
    from slotgate.capacity.model import Model
    from slotgate.capacity.wish import Wish

CACHE_TYPES = ("f16", "q8_0", "q4_0")
SLOTS = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """One cache type; `tokens` are those of a slot, for each number of slots, 0 if none fit.

    `refusal` is why llama.cpp cannot use the type with this model, "" if it can.
    """

    cache_type: str
    tokens: tuple[int, ...]
    refusal: str = ""


def table_of(
    model: Model,
    devices: DeviceSet,
    wish: Wish,
    n_gpu_layers: int | None,
    slots: Sequence[int] = SLOTS,
) -> tuple[TableRow, ...]:
    """Fill the table, with the layers where the plan has them."""
    kinds = [*CACHE_TYPES]
    if wish.type_k == wish.type_v and wish.type_k not in kinds:
        kinds.append(wish.type_k)
    return tuple(_row(model, devices, wish.with_types(kind), n_gpu_layers, slots) for kind in kinds)


def _row(
    model: Model, devices: DeviceSet, wish: Wish, n_gpu_layers: int | None, slots: Sequence[int]
) -> TableRow:
    search = Search(model, Uses(model, devices, wish), wish)
    tokens = []
    for count in slots:
        try:
            tokens.append(search.largest_context(count, n_gpu_layers))
        except PlanRefused as refusal:
            if count == slots[0]:
                return TableRow(
                    cache_type=wish.type_k, tokens=(0,) * len(slots), refusal=str(refusal)
                )
            tokens.append(0)
    return TableRow(cache_type=wish.type_k, tokens=tuple(tokens))
