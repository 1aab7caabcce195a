"""What a server can do, so that a load can be said as a multiple of it.

A request costs seconds of the whole server; a load of 1 is one second of cost a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from slotgate.load.lengths import LengthClass


class Capacity(Protocol):
    """How much of the server a request of a class takes on average."""

    def cost(self, kind: LengthClass) -> float:
        """Seconds of the whole server."""


@dataclass(frozen=True, slots=True)
class Rate:
    """So many requests a second, of whatever class: what a measurement gives."""

    requests_per_second: float

    def cost(self, kind: LengthClass) -> float:
        del kind
        return 1 / self.requests_per_second


@dataclass(frozen=True, slots=True)
class Machine:
    """A server that takes `fixed + each * b` seconds for a token of each of `b` busy slots.

    It reads `prefill` prompt tokens a second, which all others wait for.  All times are divided
    by `speed`.
    """

    slots: int
    fixed: float
    each: float
    prefill: float
    speed: float = 1.0

    def cost(self, kind: LengthClass) -> float:
        step = self.fixed + self.each * self.slots
        reading = kind.input.mean / self.prefill
        return (reading + kind.output.mean * step / self.slots) / self.speed


def gpu_like(slots: int) -> Machine:
    """A small model on a graphics card."""
    return Machine(slots, 0.015, 0.0012, 8000)


def cpu_like(slots: int) -> Machine:
    """A small model on a processor."""
    return Machine(slots, 0.060, 0.030, 250)


MACHINES: Final = {"gpu": gpu_like, "cpu": cpu_like}
