"""`slotgate config`: check a file, show what is in force, print the schema."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
import yaml

from slotgate.config import Settings, docs, load_settings
from slotgate.config.plain import plain
from slotgate.errors import ConfigError

app = typer.Typer(
    name="config",
    help="Check, show and describe the configuration.",
    no_args_is_help=True,
    add_completion=False,
)

FileArgument = Annotated[Path, typer.Argument(help="The configuration file.", show_default=False)]


@app.command()
def check(file: FileArgument) -> None:
    """Check a file and the keys it refers to; every fault is listed with its line."""
    settings = _load(file)
    for warning in settings.warnings:
        typer.echo(f"warning: {warning}", err=True)
    counts = f"{_count(settings.backends, 'backend')}, {_count(settings.tenants, 'tenant')}"
    typer.echo(f"{file}: good ({counts})")


@app.command()
def show(file: FileArgument) -> None:
    """Print the settings in force: file, environment and defaults together; keys are hidden."""
    typer.echo(render(_load(file)), nl=False)


@app.command()
def schema() -> None:
    """Print the JSON schema of the configuration file."""
    typer.echo(docs.schema(), nl=False)


def render(settings: Settings) -> str:
    """Write settings as YAML that `config check` takes again, except for what is hidden."""
    text: str = yaml.safe_dump(plain(settings), sort_keys=False, allow_unicode=True)
    return text


def _load(file: Path) -> Settings:
    try:
        return load_settings(file, env=os.environ)
    except ConfigError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None


def _count(things: tuple[object, ...], word: str) -> str:
    return f"{len(things)} {word}{'' if len(things) == 1 else 's'}"
