"""AMD's cards, by amdsmi where it is installed and finds ROCm, else by what Linux tells itself."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from slotgate.backends.devices.kfd import read_kernel
from slotgate.backends.devices.libraries import AMDSMI
from slotgate.backends.devices.probe import probe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from slotgate.backends.devices.cards import Found


def find_amd(
    environ: Mapping[str, str],
    *,
    by_library: Callable[[], Found | None] = lambda: probe(AMDSMI),
    by_kernel: Callable[[Mapping[str, str]], Found] = read_kernel,
) -> Found:
    """Return what the first source that can tell says; None from a source: it is not installed."""
    library = by_library()
    if library is not None and not library.hints:
        return library
    kernel = by_kernel(environ)
    if kernel.cards or kernel.notes or library is None:
        return kernel
    return replace(kernel, hints=library.hints + kernel.hints)
