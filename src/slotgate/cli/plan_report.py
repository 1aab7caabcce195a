"""The report of `slotgate plan`, for people: what fits first, then why, then what to do.

It must be legible on 60 columns and without colour.  Sizes carry their unit, or their table does.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from slotgate.capacity.devices import describe
from slotgate.capacity.outcomes import Remedy, Verdict, size_in_words
from slotgate.capacity.table import SLOTS
from slotgate.capacity.units import show_size
from slotgate.cli import plan_memory as memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slotgate.capacity.plan import Plan
    from slotgate.cli.plan_answer import Answer, Request
    from slotgate.cli.terminal import Terminal

_COLOURS = {
    Verdict.HELPS: "green",
    Verdict.DOES_NOT_HELP: "yellow",
    Verdict.NOT_POSSIBLE: "red",
}
_CONCURRENCY = "maximum concurrency for"


def print_report(answer: Answer, terminal: Terminal) -> None:
    """Print everything, in the order in which it is needed."""
    plan = answer.plan
    terminal.write(_model(plan, terminal))
    terminal.items([*describe(plan.devices), *answer.notes])
    terminal.title("Plan")
    terminal.write(_verdict(plan, terminal))
    terminal.items(_around_the_plan(answer))
    terminal.title("Largest context of a slot, in tokens")
    terminal.table(_contexts(plan))
    terminal.title(f"Memory, in {memory.unit_of(plan)}")
    terminal.table(memory.table(plan), left=1)
    terminal.items(memory.lines(plan))
    terminal.title("Command")
    # On one line however long it is, so that it can be copied.
    terminal.write(shlex.join(answer.command))
    _advise(answer, terminal)


def _advise(answer: Answer, terminal: Terminal) -> None:
    if answer.warnings:
        terminal.title("Warnings")
        terminal.items(warning.message for warning in answer.warnings)
    terminal.title("When slots are unavailable")
    # They all start from the same.
    terminal.items({str(remedy.before): None for remedy in answer.remedies})
    for remedy in answer.remedies:
        _show_remedy(remedy, terminal)
    if answer.arithmetic:
        terminal.title("How it is computed")
        for line in answer.arithmetic:
            indent = line[: len(line) - len(line.lstrip())]
            terminal.wrap(line.lstrip(), indent, f"{indent}    ")


def _show_remedy(remedy: Remedy, terminal: Terminal) -> None:
    verdict = terminal.styled(str(remedy.verdict), _COLOURS[remedy.verdict])
    terminal.write(f"{remedy.question} {verdict}")
    terminal.items(map(str, remedy.after), indent="  ")
    terminal.wrap(remedy.answer, "  ")


def _model(plan: Plan, terminal: Terminal) -> str:
    shape = plan.model.shape
    name = terminal.styled(plan.model.name, "bold")
    layers = f"{shape.layers.all} layers, trained for {shape.n_ctx_train:,} tokens"
    return f"{name}: {shape.row.name}, {layers}"


def _verdict(plan: Plan, terminal: Terminal) -> str:
    settings = plan.usage.settings
    types = {settings.type_k, settings.type_v}
    kind = types.pop() if len(types) == 1 else f"{settings.type_k}/{settings.type_v}"
    pool = f", one pool of {plan.usage.memory.n_ctx:,}" if settings.unified else ""
    word, colour = ("fits:", "green") if plan.fits else ("DOES NOT FIT:", "red")
    size = terminal.styled(size_in_words(plan.slots, plan.ctx_per_slot), "bold")
    return f"{terminal.styled(word, 'bold', colour)} {size}{pool}, cache {kind}"


def _around_the_plan(answer: Answer) -> Iterator[str]:
    plan, server, request = answer.plan, answer.server, answer.request
    yield from _not_known(plan)
    if answer.room:
        sizes = " or ".join(size_in_words(size.slots, size.tokens) for size in answer.room)
        yield f"room for {sizes}"
    if server:
        build = f", build {server.build}" if server.build else ""
        size = size_in_words(server.slots, server.ctx_per_slot)
        yield f"now at {server.url}: {size}{build}"
    if request:
        yield f"{_CONCURRENCY} {request.tokens:,} tokens per request: {_at_once(request)}"
    elif plan.fits:
        tokens = plan.ctx_per_slot
        yield f"{_CONCURRENCY} {tokens:,} tokens per request: {plan.concurrent_requests(tokens)}"


def _at_once(request: Request) -> str:
    if request.most <= request.at_once:
        return str(request.at_once)
    return f"{request.at_once} ({request.most} with --context {request.tokens})"


def _not_known(plan: Plan) -> Iterator[str]:
    """Where a part of the model goes that nobody said has room."""
    host = plan.usage.devices[-1]
    if host.device is None and host.context:
        yield f"if the host has {show_size(host.used)}: its memory is not known here"


def _contexts(plan: Plan) -> list[list[str]]:
    rows = [["slots", *(row.cache_type for row in plan.table)]]
    for index, slots in enumerate(SLOTS):
        cells = (
            "refused" if row.refusal else f"{row.tokens[index]:,}" if row.tokens[index] else "-"
            for row in plan.table
        )
        rows.append([str(slots), *cells])
    return rows
