"""A load's report on the terminal, and in files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from slotgate.cli.terminal import standard_output
from slotgate.errors import ConfigError
from slotgate.load.render_html import as_html, facts_of
from slotgate.load.render_json import as_json
from slotgate.load.render_table import groups, summary
from slotgate.load.workloads import RECIPES

if TYPE_CHECKING:
    from pathlib import Path

    from slotgate.load.report import Report


def list_workloads() -> None:
    """Name every workload and the load that it has."""
    terminal = standard_output()
    rows = [("workload", "load", "what it is")]
    rows += [(name, f"{recipe.load:g}", recipe.help) for name, recipe in RECIPES.items()]
    terminal.table(rows, left=3)


def show(report: Report) -> None:
    """Write the report as tables."""
    terminal = standard_output()
    terminal.title(report.title)
    terminal.wrap(facts_of(report))
    for note in report.notes:
        terminal.wrap(note, "note: ", "      ")
    terminal.write()
    terminal.table(summary(report), left=2)
    for name, found in (("By tenant", report.tenants), ("By class", report.classes)):
        if len(found) > 1:
            terminal.title(name)
            terminal.table(groups(found), left=1)


def write(report: Report, *, json: Path | None, html: Path | None) -> None:
    """Write the files that are wanted; ConfigError if one cannot be written."""
    if json is not None and str(json) == "-":
        typer.echo(as_json(report), nl=False)
    elif json is not None:
        _write("--json", json, as_json(report))
    if html is not None:
        _write("--html", html, as_html(report))


def _write(option: str, path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{option} {path}: cannot be written: {error.strerror}") from error
