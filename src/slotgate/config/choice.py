"""A setting that names one of several rules, from a table that lives elsewhere."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import AfterValidator, WithJsonSchema


@dataclass(frozen=True, slots=True)
class Choices:
    """The names that a setting may have; shown in the reference page and in messages."""

    names: tuple[str, ...]

    def check(self, name: str) -> str:
        """Return a name that is known; ValueError names the others, and the one that was meant."""
        if name in self.names:
            return name
        close = difflib.get_close_matches(name.lower(), self.names, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise ValueError(f"must be {' or '.join(self.names)}{hint}")


def one_of(names: Iterable[str]) -> tuple[Any, ...]:
    """Return what makes text one of these names, for use in an Annotated type."""
    choices = Choices(tuple(names))
    return (
        AfterValidator(choices.check),
        choices,
        WithJsonSchema({"type": "string", "enum": list(choices.names)}),
    )
