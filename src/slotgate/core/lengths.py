"""How long answers are: decayed histograms by tenant, and what they say of one that is running.

Whose request it is says more about an answer's length than the prompt does: in Alibaba's traces
the client alone explains 40 % of the variance, the prompt's length next to nothing in Azure's.  So
there is a histogram for each tenant, and one for all, which stands in until a tenant has been seen
often enough.

Buckets grow by a tenth, so a quantile is good to 5 %.  Old answers fade: a sample's weight halves
with each 1,000 that follow.  What remains of a running answer is its *mean residual life*,
E[X - g | X > g].  For the heavy tails of real answers it grows with g: who has written much will
write more, and "it must be nearly done" is wrong.

An answer that was cut at its bound would have been longer.  Taken at face value, short bounds would
make answers look short, and so bounds shorter: nothing longer would ever be seen again.  So its
weight goes to the longer ones (the estimate of Kaplan and Meier), and what is longer than all of
them is taken to be twice as long.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate, pairwise
from math import ceil, inf, sqrt
from operator import mul
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from slotgate.core.ticket import Ticket

_GROWTH = 1.1
_HALF_LIFE_SAMPLES = 1000.0
_FADE = 0.5 ** (1 / _HALF_LIFE_SAMPLES)
# Weights grow instead of all old ones fading; when they are this large, all are scaled down.
_RESCALE = 1e9
# So few samples say nothing: an answer is then taken to be this long, if its bound allows.
_FEW = 20
_TYPICAL_TOKENS = 256
# Tenants whose histograms are kept: those seen last.
_MOST_TENANTS = 10_000
# The sums are made anew when so many samples have come since, a part of all at least.
_STALE_SAMPLES = 16


def _edges() -> list[float]:
    edges, edge = [], 1.0
    while edge < 1e7:
        edges.append(edge)
        edge = max(edge + 1, edge * _GROWTH)
    return edges


# Edges of the buckets: 1, 2, 3, ..., then each a tenth above the one before.
_EDGES = _edges()
_VALUES = [(low + high - 1) / 2 for low, high in pairwise(_EDGES)]
_VALUES_DOWN = _VALUES[::-1]
# Sums of a histogram that has seen nothing.
_NOTHING = [0.0] * (len(_VALUES) + 1)
# Where what is longer than the last edge goes.
_LAST = len(_VALUES) - 1


class Residual(NamedTuple):
    """What is still to be written, in tokens: its mean and its variance."""

    mean: float
    variance: float

    @property
    def spread(self) -> float:
        """The standard deviation."""
        return sqrt(self.variance)


class Histogram:
    """Lengths that were seen, old ones fading."""

    __slots__ = (
        "_counts",
        "_cuts",
        "_fresh",
        "_mean",
        "_squares",
        "_sums",
        "_tail",
        "_weight",
        "seen",
    )

    def __init__(self) -> None:
        # Samples so far, faded or not.
        self.seen = 0
        # By bucket: answers that ended there, and those that were cut there (no entry: none).
        self._counts: dict[int, float] = {}
        self._cuts: dict[int, float] = {}
        self._weight = 1.0
        # Over the buckets from i on: their counts, count x value, count x value^2.
        self._tail = self._sums = self._squares = _NOTHING
        self._fresh = 0
        # The mean, once it was asked for.
        self._mean: float | None = None

    def add(self, tokens: int, *, is_cut: bool = False) -> None:
        """Note an answer's length, or how long it was when cut; empty ones count as one token."""
        place = min(_LAST, bisect_right(_EDGES, max(1, tokens)) - 1)
        if is_cut:
            self._cuts[place] = self._cuts.get(place, 0.0) + self._weight
        else:
            self._counts[place] = self._counts.get(place, 0.0) + self._weight
        self._weight /= _FADE
        self.seen += 1
        self._fresh += 1
        if self._weight > _RESCALE:
            self._counts = {place: count / self._weight for place, count in self._counts.items()}
            self._cuts = {place: count / self._weight for place, count in self._cuts.items()}
            self._weight = 1.0

    def quantile(self, part: float) -> float:
        """Return the length that this part of the answers does not exceed, about."""
        return _VALUES[self._place(part)]

    def bound(self, part: float) -> int:
        """Return a bound that surely cuts no more than the rest of the answers."""
        return ceil(_EDGES[self._place(part) + 1]) - 1

    def _place(self, part: float) -> int:
        self._refresh()
        beyond = (1 - part) * self._tail[0]
        low, high = 0, _LAST
        # The first bucket after which no more than that is left.
        while low < high:
            middle = (low + high) // 2
            if self._tail[middle + 1] <= beyond:
                high = middle
            else:
                low = middle + 1
        return low

    def mean(self) -> float:
        """Return the mean length."""
        self._refresh()
        if self._mean is None:
            self._mean = self.residual(0).mean
        return self._mean

    def residual(self, written: int, bound: float = inf) -> Residual:
        """Return what is left of an answer that has `written` tokens and ends at `bound`."""
        room = bound - written
        if room <= 0:
            return Residual(0.0, 0.0)
        self._refresh()
        first = min(_LAST, bisect_right(_EDGES, written + 1) - 1)
        # Of the bucket in which it is, the part beyond it.
        low, high = _EDGES[first], _EDGES[first + 1]
        part = max(0.0, min(1.0, (high - 1 - written) / (high - low)))
        own = part * (self._tail[first] - self._tail[first + 1])
        own_left = min(room, (high - written) / 2)
        alive = self._tail[first + 1] + own
        if alive <= 1e-9 * self._tail[0]:
            # Longer than any that was seen: as much again, for what is known.
            return Residual(min(room, float(max(1, written))), 0.0)
        last = len(_VALUES) if bound == inf else max(first + 1, bisect_right(_VALUES, bound))
        # Those beyond the bound end there; when there are none, 0 x inf must not come in.
        cut = self._tail[last]
        at_bound = room * cut if cut else 0.0
        counts, sums = self._tail[first + 1] - cut, self._sums[first + 1] - self._sums[last]
        total = sums - written * counts + own * own_left + at_bound
        square = self._squares[first + 1] - self._squares[last]
        square += written * (written * counts - 2 * sums) + own * own_left * own_left
        square += room * at_bound if cut else 0.0
        mean = max(0.0, total / alive)
        return Residual(mean, max(0.0, square / alive - mean * mean))

    def _refresh(self) -> None:
        if not self._fresh or self._fresh < min(_STALE_SAMPLES, self.seen // 8):
            return
        self._fresh, self._mean = 0, None
        counts = self._uncut() if self._cuts else self._counts
        ended = [counts.get(place, 0.0) for place in range(_LAST, -1, -1)]
        totals = list(map(mul, ended, _VALUES_DOWN))
        self._tail, self._sums, self._squares = (
            [0.0, *accumulate(each)][::-1]
            for each in (ended, totals, map(mul, totals, _VALUES_DOWN))
        )

    def _uncut(self) -> dict[int, float]:
        """Return the counts as they would be, had no answer been cut."""
        longest = max(self._cuts)
        at_risk = everybody = sum(self._counts.values()) + sum(self._cuts.values())
        alive = 1.0
        uncut = {}
        for place in sorted(self._counts.keys() | self._cuts.keys()):
            count = self._counts.get(place, 0.0)
            ended = alive * count / at_risk if count else 0.0
            uncut[place] = everybody * ended
            alive -= ended
            at_risk -= count + self._cuts.get(place, 0.0)
        twice = bisect_right(_EDGES, 2 * _VALUES[longest]) - 1
        twice = min(_LAST, twice)
        uncut[twice] = uncut.get(twice, 0.0) + everybody * max(0.0, alive)
        return uncut


class Lengths:
    """The answers of one model."""

    def __init__(self, *, most_tenants: int = _MOST_TENANTS) -> None:
        self._most_tenants = most_tenants
        self._all = Histogram()
        self._prompts = Histogram()
        # Tenant -> its histogram, the one seen longest ago first.
        self._of_tenant: dict[str, Histogram] = {}

    @property
    def seen(self) -> int:
        """How many answers have been observed."""
        return self._all.seen

    def observe(self, tenant: str, tokens: int, *, input_tokens: int, is_cut: bool = False) -> None:
        """Note how long an answer and its prompt were, and whether a bound has cut it."""
        self._all.add(tokens, is_cut=is_cut)
        self._prompts.add(input_tokens)
        histogram = self._of_tenant.pop(tenant, None) or Histogram()
        histogram.add(tokens, is_cut=is_cut)
        self._of_tenant[tenant] = histogram
        if len(self._of_tenant) > self._most_tenants:
            del self._of_tenant[next(iter(self._of_tenant))]

    def mean(self, ticket: Ticket) -> float:
        """Return the tokens to be expected in one sequence of the ticket's answer."""
        histogram = self.of(ticket) if ticket.output_tokens is None else None
        if histogram is not None:
            return histogram.mean()
        return self.residual(ticket, 0).mean

    def residual(self, ticket: Ticket, written: int, bound: float = inf) -> Residual:
        """Return what is left to write of a sequence, which ends at its own or the given bound."""
        if ticket.output_tokens is not None:
            bound = min(bound, ticket.output_tokens)
        histogram = self.of(ticket)
        if histogram is not None:
            return histogram.residual(written, bound)
        left = max(min(_TYPICAL_TOKENS - written, bound - written), min(written, bound - written))
        return Residual(max(0.0, left), 0.0)

    def typical_total(self) -> float:
        """Return the tokens of a typical request, prompt and answer; 0 while unknown."""
        if self._all.seen < _FEW:
            return 0.0
        return self._prompts.mean() + self._all.mean()

    def of(self, ticket: Ticket) -> Histogram | None:
        """Return the histogram that speaks for the ticket; None while none has seen enough."""
        own = self._of_tenant.get(ticket.tenant)
        if own is not None and own.seen >= _FEW:
            return own
        return self._all if self._all.seen >= _FEW else None
