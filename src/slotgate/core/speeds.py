"""How fast a deployment reads and writes, as it was observed.

Writing is measured as the gap between tokens *while exactly b sequences write*: that is what more
slots make worse, whereas the time of a whole request is mostly the length of its answer.  Gaps
during which a prompt was read are left out, as reading stalls all who write.
"""

from __future__ import annotations

from math import sqrt
from statistics import median
from typing import NamedTuple

# A gap is the mean of medians of so many samples: stalls do not move a median, and noise of a fifth
# moves the mean by a fiftieth.  `_PART` is the least weight of the latest median.
_SAMPLES = 9
_PART = 0.125
# A prompt shorter than this says more about the overhead than about the speed.
_TELLING_TOKENS = 32
_MEMORY_TOKENS = 20_000.0


class _Fading:
    """A mean that follows, and its standard error: from how much what comes deviates from it."""

    __slots__ = ("_count", "_share", "_variance", "mean")

    def __init__(self) -> None:
        self.mean = 0.0
        self._count = 0
        # Of one value; and of that, what the mean has: the sum of the squares of its weights.
        self._variance = 0.0
        self._share = 1.0

    def add(self, value: float) -> None:
        self._count += 1
        part = max(_PART, 1 / self._count)
        off = value - self.mean
        if self._count > 1:
            seen = off * off / (1 + self._share)
            self._variance += max(_PART, 1 / (self._count - 1)) * (seen - self._variance)
        self.mean += part * off
        self._share = (1 - part) ** 2 * self._share + part**2

    @property
    def error(self) -> float:
        """The standard error of the mean, as a part of it; 0 of one value."""
        return sqrt(self._share * self._variance) / self.mean if self.mean else 0.0


class Pace(NamedTuple):
    """Seconds for a prompt token, and from one token of a sequence to its next; None: unknown."""

    read: float | None
    gap: float | None


class GapTable:
    """Seconds from token to token of one sequence, by how many write at once."""

    def __init__(self) -> None:
        # Sequences -> gaps of which no median was taken yet; -> the mean of the medians so far;
        # -> the gap; -> tokens seen so far; -> when last.
        self._samples: dict[int, list[float]] = {}
        self._means: dict[int, _Fading] = {}
        self._gaps: dict[int, float] = {}
        self._tokens: dict[int, int] = {}
        self._seen_at: dict[int, float] = {}

    def observe(self, sequences: int, gap: float, *, tokens: int, now: float) -> None:
        """Note that one of so many sequences took `gap` seconds a token, for so many tokens."""
        samples = self._samples.setdefault(sequences, [])
        samples.append(gap)
        mean = self._means.get(sequences)
        if mean is None:
            self._gaps[sequences] = median(samples)
        if len(samples) == _SAMPLES:
            mean = self._means.setdefault(sequences, _Fading())
            mean.add(median(samples))
            self._gaps[sequences] = mean.mean
            samples.clear()
        self._tokens[sequences] = self._tokens.get(sequences, 0) + tokens
        self._seen_at[sequences] = now

    def forget(self, sequences: int) -> None:
        """Forget what was seen with so many sequences."""
        for table in (self._samples, self._means, self._gaps, self._tokens, self._seen_at):
            table.pop(sequences, None)

    @property
    def is_empty(self) -> bool:
        """Whether no gap was seen yet."""
        return not self._gaps

    def gap(self, sequences: int) -> float | None:
        """Return the gap with so many sequences, or with the next number that was seen."""
        gaps = self._gaps
        if sequences in gaps:
            return gaps[sequences]
        if not gaps:
            return None
        return gaps[min(gaps, key=lambda seen: (abs(seen - sequences), seen))]

    def known(self, *, tokens: int = 0) -> dict[int, float]:
        """Return the gaps of which at least so many tokens were seen, by sequences, ascending."""
        return {b: self._gaps[b] for b in sorted(self._gaps) if self._tokens[b] >= tokens}

    def error(self, sequences: int) -> float:
        """Return the standard error of a gap, as a part of it; 0 while nothing tells."""
        mean = self._means.get(sequences)
        return mean.error if mean is not None else 0.0

    def seen_at(self, sequences: int) -> float:
        """Return when a gap with so many sequences was last seen; KeyError if never."""
        return self._seen_at[sequences]


class Speeds:
    """One deployment's speeds."""

    def __init__(self) -> None:
        self.gaps = GapTable()
        # Prompt tokens and the seconds that they took, both fading.
        self._read_tokens = self._read_seconds = 0.0

    @property
    def prefill(self) -> float | None:
        """Prompt tokens a second; None while unknown."""
        return self._read_tokens / self._read_seconds if self._read_seconds else None

    def read(self, tokens: int, seconds: float) -> None:
        """Note how long a prompt took, without what the cache had of it."""
        if tokens < _TELLING_TOKENS or seconds <= 0:
            return
        keep = max(0.0, 1 - tokens / _MEMORY_TOKENS)
        self._read_tokens = self._read_tokens * keep + tokens
        self._read_seconds = self._read_seconds * keep + seconds

    def pace(self, sequences: int) -> Pace:
        """Return the speeds among so many sequences."""
        read = self._read_seconds / self._read_tokens if self._read_tokens else None
        return Pace(read, self.gaps.gap(sequences))

    def seconds(self, *, input_tokens: float, output_tokens: float, sequences: int) -> float | None:
        """Return how long a request holds its slot among so many; None while unknown."""
        gap = self.gaps.gap(sequences)
        if gap is None:
            return None
        rate = self.prefill
        return output_tokens * gap + (input_tokens / rate if rate else 0.0)
