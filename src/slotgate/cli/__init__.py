"""The command line: one module a command, imported when the command is used.

Starting is most of what a short command takes, so nothing is imported here that not all need.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any, cast

import typer
from typing_extensions import override

from slotgate import __version__
from slotgate.cli.as_typed import WordsGroup

# In the order of the help.  A module has an `app` of several commands, or a function of its name,
# and the class of its command if that is not typer's own.
COMMANDS = (
    "up", "serve", "plan", "doctor", "bench", "simulate", "stub", "config", "keys",
    "show", "pause", "resume", "drain", "disable", "enable", "kill", "reload",
)  # fmt: skip
# The operator's verbs are all of one kind, and so in one module.
_VERBS = frozenset(COMMANDS[COMMANDS.index("pause") :])


class _Commands(Mapping[str, Any]):
    """The commands by name, each imported when it is looked up."""

    @override
    def __getitem__(self, name: str) -> Any:
        if name not in COMMANDS:
            raise KeyError(name)
        module = import_module(f"slotgate.cli.{'verbs' if name in _VERBS else name}")
        commands = getattr(module, "app", None)
        if commands is None:
            commands = typer.Typer(add_completion=False)
            commands.command(name, cls=getattr(module, "COMMAND", None))(getattr(module, name))
        return typer.main.get_command(commands)

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    @override
    def __len__(self) -> int:
        return len(COMMANDS)


class _Group(WordsGroup):
    """`slotgate` itself."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = cast("Any", _Commands())


app = typer.Typer(
    name="slotgate",
    cls=_Group,
    help="Slot-aware admission control for llama.cpp.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(value: bool | None) -> None:  # noqa: FBT001 - typer's callback
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
