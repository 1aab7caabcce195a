"""How fast a simulated server reads prompts and writes answers."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Pace:
    """The duration of one pass of the model over its batch.

        pass = steps[b] + chunk / prefill

    where `b` slots decode one token each and `chunk` prompt tokens are read besides.  `steps` is
    in seconds, by the number of decoding slots; `prefill` in tokens a second.
    """

    steps: tuple[float, ...]
    prefill: float = inf

    @classmethod
    def instant(cls, slots: int) -> Pace:
        """Everything at once."""
        return cls((0.0,) * (slots + 1))

    @classmethod
    def constant(cls, rate: float, *, slots: int, prefill: float = inf) -> Pace:
        """Each slot decodes `rate` tokens a second, however many others do."""
        return cls((0.0, *(1 / rate for _ in range(slots))), prefill)

    @classmethod
    def linear(cls, fixed: float, each: float, *, slots: int, prefill: float = inf) -> Pace:
        """Let `steps[b] = fixed + each * b` seconds: memory bandwidth, then computation."""
        return cls(tuple(fixed + each * busy for busy in range(slots + 1)), prefill)

    @classmethod
    def curve(cls, rates: Mapping[int, float], *, slots: int, prefill: float = inf) -> Pace:
        """Take tokens a second and slot from a table by busy slots; linear between its points.

        Before the first and after the last point the rate stays what it is there.
        """
        points = sorted(rates.items())
        return cls(
            (0.0, *(1 / _interpolate(points, busy) for busy in range(1, slots + 1))), prefill
        )

    def seconds(self, decoding: int, chunk: int) -> float:
        return self.steps[decoding] + chunk / self.prefill


def _interpolate(points: list[tuple[int, float]], at: int) -> float:
    right = bisect_left(points, (at, -inf))
    if right == 0:
        return points[0][1]
    if right == len(points):
        return points[-1][1]
    (x0, y0), (x1, y1) = points[right - 1], points[right]
    return y0 + (y1 - y0) * (at - x0) / (x1 - x0)
