"""Apple's GPU, which uses the host's memory up to what Metal allows."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from slotgate.backends.devices.bounded import NoAnswerError, ask
from slotgate.backends.devices.cards import Card, Found
from slotgate.capacity.devices import working_set_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

_SYSCTL = "/usr/sbin/sysctl"
_TIMEOUT_SECONDS = 5.0
# The second is its name before macOS 14.
_LIMITS = ("iogpu.wired_limit_mb", "debug.iogpu.wired_limit")


def ask_sysctl(name: str) -> str:
    """Return the value of a system setting; NoAnswerError if there is no such setting."""
    return ask([_SYSCTL, "-n", name], timeout_seconds=_TIMEOUT_SECONDS).strip()


def find_apple(
    *, sysctl: Callable[[str], str] = ask_sysctl, machine: str = platform.machine()
) -> Found:
    """Return Apple's own GPU; an Intel machine has none that is worth planning for."""
    if machine != "arm64":
        return Found(notes=("the GPU of an Intel machine is not measured; give --memory",))
    try:
        ram_bytes = int(sysctl("hw.memsize"))
    except (NoAnswerError, ValueError) as error:
        return Found(notes=(f"the GPU's memory could not be measured: sysctl hw.memsize {error}",))
    size = working_set_bytes(ram_bytes, wired_limit_mib=_limit(sysctl))
    name = _name(sysctl)
    return Found(cards=(Card(name=name, total_bytes=size, free_bytes=size, shares_host=True),))


def _limit(sysctl: Callable[[str], str]) -> int:
    for setting in _LIMITS:
        try:
            return int(sysctl(setting))
        except (NoAnswerError, ValueError):
            continue
    return 0


def _name(sysctl: Callable[[str], str]) -> str:
    try:
        return sysctl("machdep.cpu.brand_string") or "Apple GPU"
    except NoAnswerError:
        return "Apple GPU"
