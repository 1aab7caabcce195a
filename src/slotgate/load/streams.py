"""The arrivals of one tenant: renewals with a rate that may change over time."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from slotgate.load.arrival import Arrival
from slotgate.load.lengths import LengthClass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from slotgate.load.dice import Dice

# Looked at this often while a rate is 0.
_STEP = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Requests of one tenant and kind, from `start` to `end`.

    `rate` gives requests a second at a time.  `variation` is the coefficient of variation of the
    time between two arrivals: 1 for a Poisson process, more for bursts.
    """

    tenant: str
    kind: LengthClass
    rate: Callable[[float], float]
    start: float = 0.0
    end: float
    variation: float = 1.0
    patience: float = inf
    max_tokens: int | None = None
    priority_class: str = "standard"

    def arrivals(self, dice: Dice) -> Iterator[Arrival]:
        for at in self._times(dice):
            yield Arrival(
                at=at,
                tenant=self.tenant,
                priority_class=self.priority_class,
                input_tokens=self.kind.input.draw(dice),
                output_tokens=self.kind.output.draw(dice),
                max_tokens=self.max_tokens,
                patience=self.patience,
            )

    def _times(self, dice: Dice) -> Iterator[float]:
        """Renewals in a time that runs as fast as the rate: exact while the rate is steady."""
        shape = 1 / self.variation**2
        # As though it had run for ever: the start is somewhere in a gap, more likely a long one.
        gap = dice.gammavariate(shape + 1, 1 / shape) * dice.random()
        now = self._after(self.start, gap)
        while now < self.end:
            yield now
            now = self._after(now, dice.gammavariate(shape, 1 / shape))

    def _after(self, now: float, gap: float) -> float:
        """When `gap` mean gaps have passed, in steps short enough to see the rate change."""
        while now < self.end:
            rate = self.rate(now)
            step = min(_STEP, gap / rate) if rate > 0 else _STEP
            now += step
            gap -= step * rate
            if gap <= 1e-12:
                break
        return now
