"""Turns the progress of a download into a few lines for the user."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# What pip prints with `--progress-bar raw`; our own helpers print the same.
_PROGRESS = re.compile(r"^Progress (\d+) of (\d+)$")


class Tenths:
    """Takes the lines of a helper process; says one line for each tenth of what it downloads."""

    def __init__(self, what: str, progress: Callable[[str], None]) -> None:
        self._what = what
        self._progress = progress
        self._tenths = 0

    def __call__(self, line: str) -> None:
        match = _PROGRESS.match(line)
        if not match:
            return
        done, total = int(match[1]), int(match[2])
        tenths = 10 * done // max(total, 1)
        if tenths < self._tenths:  # the next file
            self._tenths = 0
        if tenths > self._tenths:
            self._tenths = tenths
            megabytes = f"{done / 1e6:.0f} of {total / 1e6:.0f} MB"
            self._progress(f"downloading {self._what}: {megabytes} ({10 * tenths} %)")
