"""Commands whose arguments are taken as they are typed: words, and flags that are on or off.

Newer typer builds a pydantic adapter for each argument of a command, and importing that takes
longer than the whole of a plan.  A command of words alone has nothing to adapt.
"""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup
from typing_extensions import override


class _AsTyped:
    """Stands where the adapter would."""

    def coerce(self, value: Any, **_: Any) -> Any:
        return value


def _without_adapters(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        # Where typer has no such place there is no adapter either, or one that costs time only.
        if hasattr(parameter, "_runtime_param"):
            parameter._runtime_param = _AsTyped()
    return parameters


class WordsCommand(TyperCommand):
    """Every parameter must be declared as str, list[str] or bool, or one of them and None.

    Its help is plain: long lists of options are cut off in typer's boxes.
    """

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **{**attributes, "rich_markup_mode": None})

    @override
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_adapters(super().get_params(ctx))


class WordsGroup(TyperGroup):
    """The same for the options before a command's name."""

    @override
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_adapters(super().get_params(ctx))
