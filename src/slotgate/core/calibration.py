"""How waits compare with what was foretold, so that three of four are within what is told."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque

_SAMPLES = 200
# A little above the 75 % that are promised: what was learned is a step behind what comes.
_PART_WITHIN = 0.77
_LEAST_FACTOR, _MOST_FACTOR = 0.25, 4.0


class Recent:
    """The last values of something, and their quantiles."""

    def __init__(self) -> None:
        # As they came, and sorted.
        self._values: deque[float] = deque()
        self._sorted: list[float] = []

    def add(self, value: float) -> None:
        """Note a value, and forget the oldest of many."""
        self._values.append(value)
        insort(self._sorted, value)
        if len(self._values) > _SAMPLES:
            del self._sorted[bisect_right(self._sorted, self._values.popleft()) - 1]

    def quantile(self, part: float) -> float | None:
        """Return what this part does not exceed; None until enough has been seen."""
        count = len(self._sorted)
        return None if count < _SAMPLES // 10 else self._sorted[int(part * count)]


class WaitCalibration:
    """How waits compare with what was foretold: what makes 75 % of them shorter.

    told = (predicted + c) factor - c, where c is the mean time from one free slot to the next: an
    error by half a second means much for a wait of a second and nothing for one of a minute.
    """

    def __init__(self) -> None:
        # (actual + c) / (predicted + c)
        self._ratios = Recent()

    def observe(self, predicted: float, actual: float, turnover: float) -> None:
        """Note a wait that has ended by a grant."""
        self._ratios.add((actual + turnover) / (predicted + turnover))

    def told(self, predicted: float, turnover: float) -> float:
        """Return the wait that three of four will not exceed."""
        return max(0.0, (predicted + turnover) * self.factor(_PART_WITHIN) - turnover)

    def factor(self, part: float) -> float:
        """Return what this part of the waits needed at most; 1 until enough have been seen."""
        ratio = self._ratios.quantile(part)
        return 1.0 if ratio is None else min(_MOST_FACTOR, max(_LEAST_FACTOR, ratio))
