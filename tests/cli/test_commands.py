"""The commands as a whole: found by name, imported when used."""

from __future__ import annotations

import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from slotgate.cli import COMMANDS, app


def test_the_help_has_a_line_for_every_command() -> None:
    shown = CliRunner().invoke(app, ["--help"]).stdout
    for name in COMMANDS:
        assert f"│ {name} " in shown


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_its_own_help(name: str) -> None:
    result = CliRunner().invoke(app, [name, "--help"])
    assert result.exit_code == 0
    assert f"Usage: slotgate {name} " in result.stdout


def test_a_name_that_is_nearly_a_command_brings_the_command() -> None:
    result = CliRunner().invoke(app, ["plann"])
    assert result.exit_code == 2
    assert "Did you mean 'plan'" in result.stderr


def test_the_commands_can_be_counted_and_looked_up() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert len(commands) == len(list(commands)) == len(COMMANDS)
    assert "config" in commands
    assert "plann" not in commands


@pytest.mark.process
def test_no_command_is_imported_before_it_is_used() -> None:
    code = "import sys, slotgate.cli; sys.stdout.write(' '.join(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(shown.stdout.split())
    assert not {f"slotgate.cli.{name}" for name in COMMANDS} & loaded
    assert not {"slotgate.config", "slotgate.capacity", "asyncio", "pydantic"} & loaded
