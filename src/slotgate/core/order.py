"""Who is next within a tenant: a rank for each ticket, fixed when it comes.

A rank that changed while its ticket waits would break the heap that it stands in; so ageing is
written into it: "shorter first, but nobody waits for ever" is arrival + a head start for the short.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from slotgate.core.waiter import Waiter

# How much earlier a ticket of no length stands than the longest one that came with it.
_HEAD_START_SECONDS = 10.0
_FADE = 0.999


class OrderPolicy(Protocol):
    """Ranks the tickets of a tenant."""

    def rank(self, waiter: Waiter) -> float:
        """Return the waiter's rank, the smallest goes first; asked once, when it has come."""


class Fifo:
    """First come, first served."""

    def rank(self, waiter: Waiter) -> float:
        """Return the number of its arrival."""
        return float(waiter.number)


class EarliestDeadline:
    """Whose deadline is next."""

    def rank(self, waiter: Waiter) -> float:
        """Return its deadline."""
        return waiter.ticket.deadline


class ShortestFirst:
    """Shorter ones first, by what is expected of them, with ageing.

    rank = arrival - W (1 - p / p_max), with W = 10 s: so a ticket is overtaken at most by those
    that came within W after it.  p_max is the longest expected of late.
    """

    def __init__(self) -> None:
        self._longest = 0.0

    def rank(self, waiter: Waiter) -> float:
        """Return its arrival, less the head start of a short one."""
        self._longest = max(waiter.service, self._longest * _FADE)
        part = waiter.service / self._longest if self._longest else 1.0
        return waiter.since - _HEAD_START_SECONDS * (1 - part)
