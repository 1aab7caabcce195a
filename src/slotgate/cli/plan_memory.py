"""What a plan takes, by device and by part, for the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.capacity.compute import MARGIN_PERCENT
from slotgate.capacity.units import show_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slotgate.capacity.plan import Plan
    from slotgate.capacity.usage import DeviceUse

_MiB, _GiB = 1 << 20, 1 << 30
_NAME_LENGTH = 16
# What a context's parts are called in the report.
_PARTS = {
    "full": "full layers",
    "window": "window layers",
    "latent": "latent rows",
    "indexer": "indexers",
    "compressed": "compressed rows",
    "state": "recurrent states",
}


def unit_of(plan: Plan) -> str:
    """GiB, or MiB where all would be small numbers of GiB."""
    return "GiB" if max(use.used for use in plan.usage.devices) >= _GiB else "MiB"


def table(plan: Plan) -> list[list[str]]:
    """A row for each device that is used, or that has a size to keep."""
    unit = unit_of(plan)
    shown = [use for use in plan.usage.devices if use.used or use.device is not None]
    return [
        ["device", "weights", "context", "compute", "overhead", "free"],
        *([_short(use.name), *_cells(use, unit)] for use in shown),
    ]


def lines(plan: Plan) -> Iterator[str]:
    """What the numbers are and how sure they are, and what one more of something takes."""
    yield _weights(plan)
    yield _context(plan)
    compute = plan.usage.compute
    yield (
        f"compute: {show_size(compute.total)} and {MARGIN_PERCENT} % on top, for each device. "
        f"{compute.bound}"
    )
    yield "overhead: assumed for driver and context; on a host, kept free for prompts"
    yield _host(plan)
    yield f"one token more in a slot: {plan.bytes_per_token:,} bytes"
    if plan.bytes_per_slot:
        yield f"one slot more: {show_size(plan.bytes_per_slot)} ({plan.bytes_per_slot:,} bytes)"


def _short(name: str) -> str:
    """Names are above in full, in the same order."""
    return name if len(name) <= _NAME_LENGTH else f"{name[: _NAME_LENGTH - 3]}..."


def _cells(use: DeviceUse, unit: str) -> tuple[str, ...]:
    device = use.device
    kept = None if device is None else device.overhead_bytes + device.reserved_bytes
    sizes = (use.weights, use.context, use.compute, kept, use.left)
    return tuple("unknown" if size is None else _number(size, unit) for size in sizes)


def _number(size: int, unit: str) -> str:
    return f"{size / _GiB:,.2f}" if unit == "GiB" else f"{size / _MiB:,.1f}"


def _weights(plan: Plan) -> str:
    total = show_size(plan.usage.weights.total)
    if plan.model.header is None:
        return f"weights: {total}, as given, spread evenly over the layers"
    return f"weights: {total}, exact, by the tensors of the file"


def _context(plan: Plan) -> str:
    parts = plan.usage.memory.parts
    shown = " + ".join(f"{_PARTS.get(name, name)} {show_size(n)}" for name, n in parts.items())
    sure = "exact" if plan.model.is_verified else "NOT VERIFIED for this architecture"
    return f"context: {show_size(plan.usage.context_bytes)}, {sure}" + (
        f": {shown}" if shown else ""
    )


def _host(plan: Plan) -> str:
    host = plan.host
    text = f"host memory besides, at most: {show_size(host.cache_ram)} of prompts (--cache-ram)"
    if host.all_checkpoints:
        text += (
            f" + {host.slots} slots x {host.checkpoints} checkpoints x "
            f"{show_size(host.checkpoint)} = {show_size(host.total)}"
        )
    return text + ("" if host.free is None else f", of {show_size(host.free)} free")
