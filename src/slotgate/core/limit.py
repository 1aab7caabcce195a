"""How many slots of a deployment are worth using: beyond some point more only slow each other.

Decided from the gap between tokens by how many write at once, never from how long requests take:
that is mostly the length of their answers, and limiters that look at it drift to any number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from slotgate.core.speeds import GapTable

# Tokens that must have been seen with a number of sequences before it is compared with others.
_EVIDENCE_TOKENS = 512
# The part of the best throughput that a smaller number must reach to be preferred.
_ENOUGH = 0.95
# Without a target, a token may take so many times what it takes a lone sequence.
_SLOWEST_FACTOR = 4.0
# What was seen beyond the limit is believed for so long; then it is tried again.
_BELIEVED_SECONDS = 300.0
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
    after five minutes, one number at a time, and so tried again.
    """

    def __init__(self, target_seconds: float | None = None) -> None:
        self._target = target_seconds
        self._limit: int | None = None
        self._slots = -1
        self._due = float("-inf")
        # The lower limits found since the last one that was not lower.
        self._lower: list[int] = []

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
        found = self._compute(slots, known)
        beyond = min((b for b in known if b > found), default=None)
        # Only once the limit itself has been seen, and found again: else all would be forgotten
        # one after the other, before any was tried.
        if beyond is None or found != self._limit or found not in known:
            return found
        if now - gaps.seen_at(beyond) <= _BELIEVED_SECONDS:
            return found
        gaps.forget(beyond)
        del known[beyond]
        return self._compute(slots, known)

    def _compute(self, slots: int, known: dict[int, float]) -> int:
        target = self._target
        if target is None and 1 in known:
            target = _SLOWEST_FACTOR * known[1]
        allowed = slots
        if target is not None:
            slow = [b for b, gap in known.items() if gap > target and b > 1]
            allowed = min(slow) - 1 if slow else slots
        return self._fewest(allowed, known)

    def _fewest(self, allowed: int, known: dict[int, float]) -> int:
        # The number that is allowed must itself have been seen: what it brings is else unknown.
        if allowed not in known:
            return allowed
        best = max(b / gap for b, gap in known.items() if b <= allowed)
        return min(b for b, gap in known.items() if b / gap >= _ENOUGH * best)


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
