"""The vendors' libraries: how each is called, and who reads it."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slotgate.backends.devices.cards import Found
from slotgate.backends.devices.nvml import read_nvml
from slotgate.backends.devices.rocm import read_amdsmi

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """A package, the module in it, and what reads that module."""

    package: str
    module: str
    reader: Callable[[Any, Mapping[str, str]], Found]

    def read(self, environ: Mapping[str, str]) -> Found:
        """Import and read it, here and now; whatever it raises becomes a hint."""
        try:
            module = importlib.import_module(self.module)
        except Exception as error:  # amdsmi raises a KeyError where there is no ROCm
            return Found(hints=(f"{self.package} finds no driver library: {_said(error)}",))
        try:
            return self.reader(module, environ)
        except Exception as error:  # a library of another version may raise anything
            return Found(hints=(f"{self.package} cannot be used here: {_said(error)}",))


NVML = Library(package="nvidia-ml-py", module="pynvml", reader=read_nvml)
AMDSMI = Library(package="amdsmi", module="amdsmi", reader=read_amdsmi)
BY_MODULE = {library.module: library for library in (NVML, AMDSMI)}


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
