"""NVIDIA's cards, by nvidia-ml-py where it is installed, else by the driver's own nvidia-smi."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from slotgate.backends.devices.bounded import NoAnswerError, ask
from slotgate.backends.devices.cards import Card, Found
from slotgate.backends.devices.libraries import NVML
from slotgate.backends.devices.probe import probe
from slotgate.backends.devices.visible import CUDA, choose, hidden

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FIELDS = ("name", "uuid", "memory.total", "memory.reserved", "memory.free", "display_active",
          "mig.mode.current")  # fmt: skip
_MISSING = "nvidia-ml-py is not installed: install slotgate[nvidia] to measure NVIDIA cards"
_FOR_MIG = "install slotgate[nvidia] to measure it"
_MIB = 1 << 20


def ask_nvidia_smi(environ: Mapping[str, str]) -> Found | None:
    program = shutil.which("nvidia-smi", path=environ.get("PATH"))
    if program is None:
        return None
    try:
        text = ask([program, f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"])
    except NoAnswerError as error:
        return Found(hints=(f"nvidia-smi {error}",))
    return read_nvidia_smi(text, environ)


def read_nvidia_smi(text: str, environ: Mapping[str, str]) -> Found:
    """Return the cards in a table of FIELDS, sizes in MiB."""
    rows = [line.split(", ") for line in text.splitlines() if line.strip()]
    if any(len(row) != len(FIELDS) for row in rows):
        return Found(hints=("nvidia-smi answered in a form that is not understood",))
    wanted = environ.get(CUDA, ",".join(map(str, range(len(rows)))))
    if wanted.startswith("MIG-"):
        return Found(notes=(f"{CUDA} names a MIG device: {_FOR_MIG}",))
    seen = [rows[at] for at in choose(wanted, [row[1] for row in rows], numbered=len(rows))]
    split = tuple(f"{row[0]}: MIG is on: {_FOR_MIG}" for row in seen if row[6] == "Enabled")
    return Found(
        cards=tuple(_card(row) for row in seen if row[6] != "Enabled"),
        notes=split + hidden(seen, rows, environ),
    )


def find_nvidia(
    environ: Mapping[str, str],
    *,
    by_library: Callable[[], Found | None] = lambda: probe(NVML),
    by_program: Callable[[Mapping[str, str]], Found | None] = ask_nvidia_smi,
) -> Found:
    """Return what the first source that can tell says; None from a source: it is not installed."""
    library = by_library()
    if library is not None and not library.hints:
        return library
    program = by_program(environ)
    if program is not None and not program.hints:
        return program
    hints = library.hints if library else (_MISSING,)
    return Found(hints=hints + (program.hints if program else ()))


def _card(row: list[str]) -> Card:
    name, uuid, total, reserved, free, display, _ = row
    if not (total.isdecimal() and free.isdecimal()):
        # "[N/A]": it has no memory of its own.
        return Card(name=name, uuid=uuid, shares_host=True)
    kept = int(reserved) if reserved.isdecimal() else 0
    return Card(
        name=name,
        uuid=uuid,
        total_bytes=(int(total) - kept) * _MIB,
        free_bytes=int(free) * _MIB,
        has_display=display == "Enabled",
    )
