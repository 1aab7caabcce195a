"""`slotgate show`: what a running gateway holds, as tables."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import Annotated, Any

import typer
import yaml

from slotgate.cli.operator import (
    DEFAULT_GATEWAY,
    GatewayOption,
    JsonOption,
    KeyOption,
    connect,
    show_json,
)
from slotgate.cli.terminal import Terminal, standard_output
from slotgate.wire.tables import TABLES

# Clears a terminal, and puts the cursor in its corner.
_CLEAR = "\x1b[2J\x1b[H"


class Subject(StrEnum):
    """What can be shown."""

    POOLS = "pools"
    BACKENDS = "backends"
    TICKETS = "tickets"
    LEASES = "leases"
    TENANTS = "tenants"
    CONFIG = "config"


def show(
    subject: Annotated[Subject, typer.Argument(help="What to show.", show_default=False)],
    *,
    watch: Annotated[
        float | None, typer.Option(min=0.1, help="Show it again every so many seconds.")
    ] = None,
    gateway: GatewayOption = DEFAULT_GATEWAY,
    admin_key_env: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show pools, backends, tickets, leases, tenants or the settings in force."""
    client = connect(gateway, admin_key_env)
    terminal = standard_output()
    try:
        while True:
            answer = client.ask("GET", subject.value)
            if watch is not None and terminal.has_colour:
                typer.echo(_CLEAR, nl=False)
            if as_json:
                show_json(answer)
            else:
                write(terminal, subject.value, answer[subject.value])
            if watch is None:
                return
            time.sleep(watch)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def write(terminal: Terminal, subject: str, content: Any) -> None:
    """Write one table, or the settings as YAML."""
    if subject not in TABLES:
        terminal.write(yaml.safe_dump(content, sort_keys=False, allow_unicode=True).rstrip())
        return
    columns = [column for column in TABLES[subject] if column.title]
    rows = [[_cell(column.name, row[column.name]) for column in columns] for row in content]
    titles = [column.title for column in columns]
    terminal.table([titles, *rows], left=len(columns))


def _cell(name: str, value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("_seconds"):
        return f"{value:.1f}s"
    return f"{value:g}" if isinstance(value, float) else str(value)
