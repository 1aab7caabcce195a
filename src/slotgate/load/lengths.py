"""How long prompts and answers are: classes of requests as they are seen in the field.

`chat` and `code` are quantiles of the Azure LLM inference traces of 2023 (CC-BY), whose shape no
plain distribution has: a lognormal with their logarithms' mean and spread is 35 % too long on
average.  `summ` (long prompt, short answer) and `reason` (short prompt, long answer) are
lognormals; the mean answer of `reason` is that of a reasoning model in ServeGen.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from math import erf, exp, log, sqrt
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from slotgate.load.dice import Dice

_SHARES: Final = (
    0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.97,
    0.99, 0.995, 0.999, 1.0,
)  # fmt: skip


class Lengths(Protocol):
    """A distribution of a number of tokens."""

    @property
    def mean(self) -> float: ...

    def draw(self, dice: Dice) -> int: ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always so many."""

    tokens: int

    @property
    def mean(self) -> float:
        return float(self.tokens)

    def draw(self, dice: Dice) -> int:
        del dice
        return self.tokens


@dataclass(frozen=True, slots=True)
class Quantiles:
    """The values at `_SHARES`; between two of them the logarithm is linear."""

    values: tuple[int, ...]

    @property
    def mean(self) -> float:
        parts = zip(_SHARES, _SHARES[1:], self.values, self.values[1:], strict=False)
        return sum((right - left) * _mean_between(low, high) for left, right, low, high in parts)

    def draw(self, dice: Dice) -> int:
        share = dice.random()
        place = bisect_right(_SHARES, share) - 1
        left, right = _SHARES[place], _SHARES[place + 1]
        low, high = self.values[place], self.values[place + 1]
        return round(low * exp(log(high / low) * (share - left) / (right - left)))


@dataclass(frozen=True, slots=True)
class Lognormal:
    """Around a median; `sigma` is the spread of the logarithm.  What is longer is cut to `most`."""

    median: float
    sigma: float
    most: int

    @property
    def mean(self) -> float:
        """The mean of what is below the cut, and the cut for the rest."""
        cut = log(self.most / self.median) / self.sigma
        below = self.median * exp(self.sigma**2 / 2) * _normal_share(cut - self.sigma)
        return below + self.most * (1 - _normal_share(cut))

    def draw(self, dice: Dice) -> int:
        return min(self.most, max(1, round(dice.lognormvariate(log(self.median), self.sigma))))


@dataclass(frozen=True, slots=True)
class LengthClass:
    """A kind of request."""

    name: str
    help: str
    input: Lengths
    output: Lengths


CHAT: Final = LengthClass(
    "chat",
    "a conversation",
    Quantiles(
        (2, 29, 181, 207, 387, 403, 703, 1020, 1071, 1130,
         1315, 2734, 4083, 4090, 4142, 4831, 6179, 14050)
    ),
    Quantiles(
        (7, 16, 41, 54, 77, 91, 103, 129, 177, 384, 400, 424, 451, 509, 601, 643, 954, 1000)
    ),
)  # fmt: skip
CODE: Final = LengthClass(
    "code",
    "a completion in an editor: much to read, little to write",
    Quantiles(
        (3, 17, 75, 147, 386, 770, 1075, 1469, 1909, 2433,
         3192, 5188, 7303, 7435, 7436, 7436, 7437, 7437)
    ),
    Quantiles((6, 6, 6, 7, 8, 9, 11, 13, 16, 20, 29, 55, 90, 128, 251, 359, 825, 1899)),
)  # fmt: skip
SUMM: Final = LengthClass(
    "summ",
    "a summary of a long text",
    Lognormal(3000, 0.6, 14000),
    Lognormal(250, 0.4, 1000),
)
REASON: Final = LengthClass(
    "reason",
    "a question to a model that thinks at length",
    Lognormal(300, 0.8, 4000),
    Lognormal(1180, 0.7, 8000),
)
# Short enough for a small model on a processor, where the others would take minutes.
SMALL: Final = LengthClass(
    "small",
    "a short question and a short answer",
    Lognormal(60, 0.5, 300),
    Lognormal(40, 0.5, 160),
)
CLASSES: Final = {each.name: each for each in (CHAT, CODE, SUMM, REASON, SMALL)}


def _mean_between(low: float, high: float) -> float:
    return low if low == high else (high - low) / log(high / low)


def _normal_share(value: float) -> float:
    return (1 + erf(value / sqrt(2))) / 2
