"""The reference page of the command line, from the commands themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer


def reference() -> str:
    """Return the Markdown of every command, its arguments and its options."""
    from slotgate.cli import app

    return "\n".join(_command(typer.main.get_command(app), "slotgate"))


def _command(command: Any, name: str) -> Iterator[str]:
    yield f"## `{name}`\n"
    yield f"{(command.help or '').strip()}\n"
    rows = [row for parameter in command.params if (row := _row(parameter)) is not None]
    if rows:
        yield "| parameter | default | meaning |\n| --- | --- | --- |"
        yield from rows
        yield ""
    for child, inner in getattr(command, "commands", {}).items():
        yield from _command(inner, f"{name} {child}")


def _row(parameter: Any) -> str | None:
    if parameter.name == "help":
        return None
    names = ", ".join(f"`{name}`" for name in parameter.opts) or f"`{parameter.name}`"
    if parameter.param_type_name == "argument":
        names = f"`{parameter.name.upper()}`"
    default = parameter.default
    is_shown = default is not None and default is not False and not callable(default)
    shown = f"`{default}`" if is_shown else ""
    meaning = (getattr(parameter, "help", "") or "").replace("|", "\\|")
    return f"| {names} | {shown} | {meaning} |"
