"""The command line: one file a command."""

from __future__ import annotations

from typing import Annotated

import typer

from slotgate import __version__
from slotgate.cli import config, keys
from slotgate.cli.serve import serve
from slotgate.cli.stub import stub
from slotgate.cli.up import up

app = typer.Typer(
    name="slotgate",
    help="Slot-aware admission control for llama.cpp.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(up)
app.command()(serve)
app.command()(stub)
app.add_typer(config.app, name="config")
app.add_typer(keys.app, name="keys")


def _show_version(value: bool) -> None:  # noqa: FBT001 - typer's callback
    if value:
        typer.echo(f"slotgate {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool | None, typer.Option("--version", callback=_show_version, is_eager=True)
    ] = None,
) -> None:
    """Slot-aware admission control for llama.cpp."""


def main() -> None:
    """Run the command line."""
    app()
