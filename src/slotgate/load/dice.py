"""The chance that workloads are drawn with."""

from __future__ import annotations

from typing import Protocol

from slotgate.core import clock


class Dice(clock.Dice, Protocol):
    """What is used of `random.Random`; the caller seeds it, so that a workload can be repeated."""

    def expovariate(self, lambd: float, /) -> float: ...

    def gammavariate(self, alpha: float, beta: float) -> float: ...

    def lognormvariate(self, mu: float, sigma: float) -> float: ...
