"""The report of `slotgate plan`, for people: what fits first, then why, then what to do.

It must be legible on 60 columns and without colour.  Sizes carry their unit, or their table does.
"""

from __future__ import annotations

import shlex
from textwrap import fill
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from slotgate.capacity.devices import describe
from slotgate.capacity.outcomes import Remedy, Verdict, size_in_words
from slotgate.capacity.table import SLOTS
from slotgate.capacity.units import show_size
from slotgate.cli import plan_memory as memory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import Console

    from slotgate.capacity.plan import Plan
    from slotgate.cli.plan_answer import Answer, Request

_COLOURS = {
    Verdict.HELPS: "green",
    Verdict.DOES_NOT_HELP: "yellow",
    Verdict.NOT_POSSIBLE: "red",
}
_NARROWEST = 20
_CONCURRENCY = "maximum concurrency for"


class Report:
    """Prints an answer, in the order in which its parts are needed."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def print(self, answer: Answer) -> None:
        plan = answer.plan
        self._console.print(_model(plan))
        self._items([*describe(plan.devices), *answer.notes])
        self._title("Plan")
        self._console.print(_verdict(plan))
        self._items(_around_the_plan(answer))
        self._title("Largest context of a slot, in tokens")
        self._console.print(_contexts(plan))
        self._title(f"Memory, in {memory.unit_of(plan)}")
        self._console.print(memory.table(plan))
        self._items(memory.lines(plan))
        self._title("Command")
        # On one line however long it is, so that it can be copied.
        self._console.print(Text(shlex.join(answer.command)), soft_wrap=True)
        self._advice(answer)

    def _advice(self, answer: Answer) -> None:
        if answer.warnings:
            self._title("Warnings")
            self._items(warning.message for warning in answer.warnings)
        self._title("When slots are unavailable")
        # They all start from the same.
        self._items(str(before) for before in {remedy.before: None for remedy in answer.remedies})
        for remedy in answer.remedies:
            self._remedy(remedy)
        if answer.arithmetic:
            self._title("How it is computed")
            for line in answer.arithmetic:
                indent = line[: len(line) - len(line.lstrip())]
                self._fill(line.lstrip(), indent, f"{indent}    ")

    def _remedy(self, remedy: Remedy) -> None:
        verdict = (str(remedy.verdict), _COLOURS[remedy.verdict])
        self._console.print(Text.assemble(f"{remedy.question} ", verdict))
        self._items(map(str, remedy.after), indent="  ")
        self._fill(remedy.answer, "  ", "  ")

    def _title(self, text: str) -> None:
        self._console.print(Text(f"\n{text}", style="bold"))

    def _items(self, lines: Iterable[str], *, indent: str = "") -> None:
        for line in lines:
            self._fill(line, f"{indent}- ", f"{indent}  ")

    def _fill(self, line: str, first: str, others: str) -> None:
        """Wrap a line below itself; long words, such as paths, stay whole."""
        width = max(self._console.width, _NARROWEST)
        text = fill(
            line,
            width,
            initial_indent=first,
            subsequent_indent=others,
            break_long_words=False,
            break_on_hyphens=False,
        )
        self._console.print(Text(text), soft_wrap=True)


def _model(plan: Plan) -> Text:
    shape = plan.model.shape
    about = (
        f": {shape.row.name}, {shape.layers.all} layers, trained for {shape.n_ctx_train:,} tokens"
    )
    return Text.assemble((plan.model.name, "bold"), about)


def _verdict(plan: Plan) -> Text:
    settings = plan.usage.settings
    types = {settings.type_k, settings.type_v}
    kind = types.pop() if len(types) == 1 else f"{settings.type_k}/{settings.type_v}"
    pool = f", one pool of {plan.usage.memory.n_ctx:,}" if settings.unified else ""
    word = Text("fits: ", "bold green") if plan.fits else Text("DOES NOT FIT: ", "bold red")
    size = size_in_words(plan.slots, plan.ctx_per_slot)
    return Text.assemble(word, (size, "bold"), f"{pool}, cache {kind}")


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


def _contexts(plan: Plan) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="")
    table.add_column("slots", justify="right")
    for row in plan.table:
        table.add_column(row.cache_type, justify="right")
    for index, slots in enumerate(SLOTS):
        cells = (
            "refused" if row.refusal else f"{row.tokens[index]:,}" if row.tokens[index] else "-"
            for row in plan.table
        )
        table.add_row(str(slots), *cells)
    return table
