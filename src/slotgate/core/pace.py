"""Whether a deployment writes as fast as it used to.

Tokens are counted over stretches in which nothing is read and the same number of sequences write;
each number has its own usual gap, as more of them are slower.  Two stretches in a row that are
slower by more than the factor count as slow, and two that are not end it.  What lasts becomes
usual in the end: the machine has other work now, or contexts are longer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slotgate.core.vitals import Signs

# How fast the usual gap follows.
_PART = 0.1
# Slow stretches in a row after which the gap is a new usual one.
_PATIENCE = 60
# A stretch says nothing with fewer tokens of each sequence.
_TELLING_TOKENS = 4


@dataclass(slots=True)
class _Stretch:
    seconds: float = 0.0
    tokens: int = 0


class PaceWatch:
    """Compares seconds a token with what is usual.  `stretch` is the length of one, in seconds."""

    def __init__(self, *, factor: float, stretch: float) -> None:
        self._factor = factor
        self._stretch = stretch
        # Sequences -> the stretch that is being counted; -> the usual gap.
        self._stretches: dict[int, _Stretch] = {}
        self._usual: dict[int, float] = {}
        # Slow stretches in a row, or while it is slow, those that are not.
        self._row = self._slow_for = 0
        self.is_slow = False
        # Lease id -> its tokens, as last seen.
        self._tokens: dict[str, int] = {}
        # The latest stretch's.
        self.gap = self.usual = 0.0

    def tick(self, signs: Signs, seconds: float) -> None:
        """Take what is seen now, `seconds` after the last time."""
        before, self._tokens = self._tokens, {s.lease: s.output_tokens for s in signs.streams}
        if signs.leaves_reading or before.keys() != self._tokens.keys():
            return
        # One that reads stalls the others; of one that is held, tokens come when its client wishes.
        if not before or any(s.is_held or not before[s.lease] for s in signs.streams):
            return
        written = sum(self._tokens.values()) - sum(before.values())
        self.saw(sum(s.width for s in signs.streams), written, seconds)

    def saw(self, sequences: int, tokens: int, seconds: float) -> None:
        """Note that so many sequences wrote so many tokens together."""
        stretch = self._stretches.setdefault(sequences, _Stretch())
        stretch.seconds += seconds
        stretch.tokens += tokens
        if stretch.seconds < self._stretch or stretch.tokens < _TELLING_TOKENS * sequences:
            return
        del self._stretches[sequences]
        self._judge(sequences, stretch.seconds * sequences / stretch.tokens)

    def _judge(self, sequences: int, gap: float) -> None:
        usual = self._usual.setdefault(sequences, gap)
        self.gap, self.usual = gap, usual
        is_slower = gap > self._factor * usual
        self._row = self._row + 1 if is_slower is not self.is_slow else 0
        if self._row == 2:
            self.is_slow, self._row, self._slow_for = is_slower, 0, 0
        if not is_slower:
            self._usual[sequences] = usual + _PART * (gap - usual)
        self._slow_for = self._slow_for + 1 if self.is_slow else 0
        if self._slow_for > _PATIENCE:
            self._usual[sequences] = gap
