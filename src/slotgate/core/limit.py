"""How many slots of a deployment are worth using: beyond some point more only slow each other.

Decided from the gap between tokens by how many write at once, never from how long requests take:
that is mostly the length of their answers, and limiters that look at it drift to any number.
"""

from __future__ import annotations

from math import copysign, hypot
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from slotgate.core.speeds import GapTable

# Tokens that must have been seen with a number of sequences before it is compared with others.
_EVIDENCE_TOKENS = 512
# The part of the best throughput that a smaller number must reach to be preferred.
_ENOUGH = 0.95
# Without a target, a token may take so many times what it takes a lone sequence.
_SLOWEST_FACTOR = 4.0
# What was seen beyond the limit is believed for so long; then it is tried again.  After each time
# that this was in vain, it is believed twice as long.
_BELIEVED_SECONDS, _MOST_BELIEVED_SECONDS = 600.0, 2400.0
# A limit stays if it may be right within so many standard errors of what was seen.
_ERRORS = 2.0
_UPDATE_SECONDS = 5.0
# A lower limit must be found so often in a row: once is noise.
_AGREEING = 3


class ConcurrencyPolicy(Protocol):
    """Limits the slots of one deployment that are used at once."""

    def limit(self, slots: int, gaps: GapTable, now: float) -> int:
        """Return the limit, from 1 to the number of slots (0 of none)."""


class FixedLimit:
    """All slots."""

    def limit(self, slots: int, gaps: GapTable, now: float) -> int:
        """Return the number of slots."""
        return slots


class GapTableLimit:
    """The fewest slots with (nearly) the best throughput, among those that are fast enough.

    With gap(b) seconds a token while b write: of all b with gap(b) within the target, the smallest
    with b / gap(b) at least 95 % of the best.  The target is the operator's, or 4 gap(1).  Numbers
    of which too little was seen are allowed, and so tried.  What lies beyond the limit is forgotten
    after ten minutes (twenty and so on, if that was in vain), one number at a time, and so tried
    again.

    Gaps are noisy, and numbers of slots often nearly equal.  So the limit moves only if another
    number is better whichever way the gaps are wrong, by two standard errors.
    """

    def __init__(self, target_seconds: float | None = None) -> None:
        self._target = target_seconds
        self._limit: int | None = None
        self._slots = -1
        self._due = float("-inf")
        # The lower limits found since the last one that was not lower.
        self._lower: list[int] = []
        # The number that was last tried again, and how long those beyond the limit are believed.
        self._tried = 0
        self._believed = _BELIEVED_SECONDS

    def limit(self, slots: int, gaps: GapTable, now: float) -> int:
        """Return the limit, computed anew every five seconds."""
        if slots != self._slots:
            self._slots, self._limit, self._due = slots, None, now
        if self._limit is None or now >= self._due:
            self._due = now + _UPDATE_SECONDS
            self._limit = self._steady(self._find(slots, gaps, now))
        return self._limit

    def _steady(self, found: int) -> int:
        if self._limit is None or found >= self._limit:
            self._lower = []
            return found
        self._lower.append(found)
        if len(self._lower) < _AGREEING:
            return self._limit
        found, self._lower = max(self._lower), []
        return found

    def _find(self, slots: int, gaps: GapTable, now: float) -> int:
        known = {b: gap for b, gap in gaps.known(tokens=_EVIDENCE_TOKENS).items() if b <= slots}
        found = self._better(slots, known, gaps)
        if found >= self._tried and self._tried in known:
            self._believed = _BELIEVED_SECONDS
        beyond = min((b for b in known if b > found), default=None)
        # Only once the limit itself has been seen, and found again: else all would be forgotten
        # one after the other, before any was tried.
        if beyond is None or found != self._limit or found not in known:
            return found
        if now - gaps.seen_at(beyond) <= self._believed:
            return found
        gaps.forget(beyond)
        del known[beyond]
        self._tried, self._believed = beyond, min(2 * self._believed, _MOST_BELIEVED_SECONDS)
        return self._compute(slots, known, {})

    def _better(self, slots: int, known: dict[int, float], gaps: GapTable) -> int:
        """Return the limit, or a number that is better by more than the error of what was seen."""
        errors = {b: _ERRORS * gaps.error(b) for b in known}
        highest = self._compute(slots, known, errors)
        lowest = self._compute(slots, known, {b: -error for b, error in errors.items()})
        limit = slots if self._limit is None else self._limit
        return max(lowest, min(highest, limit))

    def _compute(self, slots: int, known: dict[int, float], errors: dict[int, float]) -> int:
        """Return the limit if fewer slots are less worth by the errors than they seem."""
        target = self._target
        slack = {b: errors.get(b, 0.0) for b in known}
        if target is None and 1 in known:
            target = _SLOWEST_FACTOR * known[1]
        allowed = slots
        if target is not None:
            slow = [b for b, gap in known.items() if gap * (1 - slack[b]) > target and b > 1]
            allowed = min(slow) - 1 if slow else slots
        return self._fewest(allowed, known, slack)

    def _fewest(self, allowed: int, known: dict[int, float], slack: dict[int, float]) -> int:
        # The number that is allowed must itself have been seen: what it brings is else unknown.
        if allowed not in known:
            return allowed
        best = max((b for b in known if b <= allowed), key=lambda b: b / known[b])
        most = _ENOUGH * best / known[best]
        enough = [
            b
            for b, gap in known.items()
            if b / gap * (1 - _both(slack[b], slack[best])) >= most or b == best
        ]
        return min(enough)


def _both(one: float, other: float) -> float:
    """Return the error of a ratio of two with these errors, which are of one sign."""
    return copysign(hypot(one, other), one)


class AimdLimit:
    """Additive increase, multiplicative decrease on the gap: +1 while it is within the target,
    x 0.8 when it is not, every five seconds."""

    def __init__(self, target_seconds: float | None = None) -> None:
        self._target = target_seconds
        self._level: float | None = None
        self._due = float("-inf")

    def limit(self, slots: int, gaps: GapTable, now: float) -> int:
        """Return the limit."""
        if self._level is None:
            self._level = float(slots)
        if now >= self._due:
            self._due = now + _UPDATE_SECONDS
            self._level = min(float(slots), max(1.0, self._step(self._level, gaps)))
        return min(slots, max(1, int(self._level)))

    def _step(self, level: float, gaps: GapTable) -> float:
        known = gaps.known()
        lone = known.get(1)
        target = self._target or (_SLOWEST_FACTOR * lone if lone is not None else None)
        gap = known.get(int(level))
        if target is None or gap is None:
            return level + 1
        return level * 0.8 if gap > target else level + 1
