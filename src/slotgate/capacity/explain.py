"""The arithmetic of a plan, line by line: what `--explain` shows.

Each line can be worked out again (`explain_lines`), and each sum has the results above it, so that
every figure of the plan is led back to keys of the header, settings, and sizes of devices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.capacity.compute import MARGIN_PERCENT
from slotgate.capacity.explain_context import context_lines, size_lines
from slotgate.capacity.explain_lines import equation, named, number, product, sum_of
from slotgate.capacity.host_costs import MiB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from slotgate.capacity.plan import Plan
    from slotgate.capacity.usage import DeviceUse


def explain(plan: Plan) -> list[str]:
    """All lines: headings, and below each the arithmetic, indented."""
    lines: list[str] = []
    for heading, section in _SECTIONS.items():
        lines += [heading, *section(plan)]
    return lines


def _context(plan: Plan) -> Iterator[str]:
    yield from context_lines(plan)
    if plan.bytes_per_token:
        yield f"  a token more in one slot: {number(plan.bytes_per_token)} bytes"
    if plan.bytes_per_slot:
        yield f"  a slot more of the same context: {number(plan.bytes_per_slot)} bytes"


def _weights(plan: Plan) -> Iterator[str]:
    weights = plan.usage.weights
    layers = len(weights.by_layer)
    parts = [
        (f"{layers} layers", sum(weights.by_layer)),
        ("input", weights.input_bytes),
        ("output", weights.output_bytes),
    ]
    text, words = named(parts)
    if plan.model.header is None:
        words = "as given, spread evenly over the layers"
    yield equation("weights", text, weights.total, "bytes", words)


def _scratch(plan: Plan) -> Iterator[str]:
    compute = plan.usage.compute
    names = {"phase": f"widest phase, {compute.phase_name}", "f16_copy": "f16 copy of a layer"}
    parts = [(names.get(name, name), n_bytes) for name, n_bytes in compute.parts.items()]
    text, words = named(parts)
    yield equation("scratch", text, compute.total, "bytes", words)
    margin = compute.planned - compute.total
    text = sum_of([compute.total, margin])
    words = f"with {MARGIN_PERCENT} % as a margin"
    yield equation("scratch, planned", text, compute.planned, "bytes", words)
    yield f"  {compute.bound}"


def _devices(plan: Plan) -> Iterator[str]:
    uses = plan.usage.devices
    for use in uses:
        yield from _host_scratch(plan, use)
        if use.used:
            parts = [("weights", use.weights), ("context", use.context), ("scratch", use.compute)]
            text, words = named(parts)
            yield equation(use.name, text, use.used, "bytes", words)
        yield from _left(use)
    context = [use.context for use in uses if use.context]
    if len(context) > 1:
        total = plan.usage.context_bytes
        yield equation("context on all devices", sum_of(context), total, "bytes")


def _host_scratch(plan: Plan, use: DeviceUse) -> Iterator[str]:
    """What a device holds of scratch besides the estimate: the inputs of others, the answers."""
    compute = plan.usage.compute
    planned = ("planned scratch", compute.planned)
    fed = [("mask", compute.parts["mask"]), ("inputs", compute.parts["inputs"])]
    answers = ("answers", compute.host_outputs)
    for parts in ([planned, answers], [*fed, answers], [planned, *fed, answers]):
        # The one that it is; the estimate alone needs no line.
        if sum(size for _, size in parts) == use.compute != compute.planned:
            text, words = named(parts)
            yield equation(f"{use.name}, scratch", text, use.compute, "bytes", words)
            return


def _left(use: DeviceUse) -> Iterator[str]:
    device, left = use.device, use.left
    if device is None or left is None:
        return
    taken = [device.free_bytes, -device.overhead_bytes, -device.reserved_bytes]
    parts = zip(("free", "driver", "kept for prompts"), taken, strict=True)
    text, words = named(list(parts))
    if sum(taken) < 0:
        text, words = "0", "the driver takes all that is free"
    words = words.replace("+", "-")
    yield equation(f"{use.name}, room", text, device.budget_bytes, "bytes", words)
    text = sum_of([device.budget_bytes, -use.used])
    words = "room - used" if left >= 0 else "room - used: it does not fit"
    yield equation(f"{use.name}, left", text, left, "bytes", words)


def _host(plan: Plan) -> Iterator[str]:
    host = plan.host
    text = product(host.cache_ram_mib, MiB)
    yield equation("prompts", text, host.cache_ram, "bytes", "--cache-ram in MiB")
    if host.all_checkpoints:
        text = product(host.checkpoints, host.slots, host.checkpoint)
        words = "checkpoints x slots x one"
        yield equation("checkpoints", text, host.all_checkpoints, "bytes", words)
    text, words = named([("prompts", host.cache_ram), ("checkpoints", host.all_checkpoints)])
    yield equation("host, at most", text, host.total, "bytes", words)
    yield f"  a prompt that fills a slot: {number(host.prompt)} bytes of them"


# Heading -> the lines below it.
_SECTIONS: dict[str, Callable[[Plan], Iterator[str]]] = {
    "Slots and context": size_lines,
    "Context memory": _context,
    "Weights": _weights,
    "Scratch": _scratch,
    "Devices": _devices,
    "Host memory besides, as it fills": _host,
}
