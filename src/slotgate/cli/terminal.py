"""Writes for people: as wide as their terminal, with colour only where that is wanted.

A report needs no more than this of a terminal, and a library that can do more takes longer to
import than the report takes.
"""

from __future__ import annotations

import os
import shutil
import sys
from textwrap import fill
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_CODES = {"bold": 1, "red": 31, "green": 32, "yellow": 33}
_NARROWEST = 20


class Terminal:
    """The standard output, so many columns wide."""

    def __init__(self, *, width: int, has_colour: bool) -> None:
        self._width = max(width, _NARROWEST)
        self._has_colour = has_colour

    @property
    def has_colour(self) -> bool:
        """Whether it is a terminal that understands more than text."""
        return self._has_colour

    def write(self, line: str = "") -> None:
        """Write a line as it is; what the output cannot show, such as odd file names, escaped."""
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        shown = line.encode(encoding, "backslashreplace").decode(encoding)
        # It knows what to do if nobody reads.
        typer.echo(shown, color=self._has_colour)

    def title(self, text: str) -> None:
        self.write()
        self.write(self.styled(text, "bold"))

    def styled(self, text: str, *styles: str) -> str:
        """The text in these styles, or plain."""
        if not self._has_colour:
            return text
        return f"\x1b[{';'.join(str(_CODES[style]) for style in styles)}m{text}\x1b[0m"

    def wrap(self, text: str, first: str = "", others: str | None = None) -> None:
        """Write a text below itself; long words, such as paths, stay whole."""
        wrapped = fill(
            text,
            self._width,
            initial_indent=first,
            subsequent_indent=first if others is None else others,
            break_long_words=False,
            break_on_hyphens=False,
        )
        self.write(wrapped)

    def items(self, lines: Iterable[str], *, indent: str = "") -> None:
        """Write a list."""
        for line in lines:
            self.wrap(line, f"{indent}- ", f"{indent}  ")

    def table(self, rows: Sequence[Sequence[str]], *, left: int = 0) -> None:
        """Write rows of cells below each other, all but the first `left` columns to the right."""
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = (
                cell.ljust(width) if at < left else cell.rjust(width)
                for at, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            self.write("  ".join(cells).rstrip())


def standard_output(environ: Mapping[str, str] = os.environ) -> Terminal:
    """What the standard output goes to, which may be no terminal, or nothing at all."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    # COLUMNS decides first.
    width = shutil.get_terminal_size().columns
    return Terminal(width=width, has_colour=wants_colour(environ, is_terminal=is_terminal))


def wants_colour(environ: Mapping[str, str], *, is_terminal: bool) -> bool:
    """NO_COLOR is stronger than FORCE_COLOR; else a terminal that is not dumb."""
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return True
    return is_terminal and environ.get("TERM") != "dumb"
