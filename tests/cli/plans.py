"""What the tests of `slotgate plan` share: the command in this process, and a model to plan."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import typer
from typer.testing import CliRunner

from slotgate.cli import app
from slotgate.cli.plan_options import Asked, read

if TYPE_CHECKING:
    from typer.testing import Result

# Planned without a file, and without looking at this machine.
LLAMA = ("Llama-3.1-8B", "--weights", "4.7GB", "--memory", "24GiB")


def run(*arguments: str, **env: str) -> Result:
    """Run `slotgate plan` here."""
    result: Result = CliRunner().invoke(app, ["plan", *arguments], env=env)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def document(*arguments: str, exit_code: int = 0) -> dict[str, Any]:
    """Return what `slotgate plan --json` prints."""
    result = run(*arguments, "--json")
    assert result.exit_code == exit_code, result.stderr
    told: dict[str, Any] = json.loads(result.stdout)
    return told


def asked(*arguments: str) -> Asked:
    """Read arguments as the command does, and do nothing."""
    group: Any = typer.main.get_command(app)
    context = group.commands["plan"].make_context("plan", list(arguments))
    return read(context.params)
