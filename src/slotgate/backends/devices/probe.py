"""Runs a vendor's library in a process of its own, and takes its answer as data.

Such a library may crash, print, or hang inside its driver (`amdsmi_init` and `nvmlInit` both have);
here that costs a sentence, not the program.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING

import msgspec

from slotgate.backends.devices.bounded import NoAnswerError, ask
from slotgate.backends.devices.cards import Found

if TYPE_CHECKING:
    from collections.abc import Callable

    from slotgate.backends.devices.libraries import Library

# Named, not imported: Python complains of a main module that its package has imported before.
_CHILD = "slotgate.backends.devices.child"


def probe(library: Library, *, run: Callable[[list[str]], str] = ask) -> Found | None:
    """Return what the library finds; None if it is not installed."""
    if not _is_installed(library.module):
        return None
    try:
        answer = run([sys.executable, "-P", "-m", _CHILD, library.module])
        return msgspec.json.decode(answer, type=Found)
    except NoAnswerError as error:
        return Found(hints=(f"{library.package} {error}",))
    except msgspec.MsgspecError:
        return Found(hints=(f"{library.package} gave an answer that is not understood",))


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False
