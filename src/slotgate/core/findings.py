"""What a watchdog finds, and what is due then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

Figures = Mapping[str, float | int | str | bool | None]


class Kind(StrEnum):
    """What is wrong."""

    STUCK_READING = "stuck_reading"  # a stream whose first token is overdue
    STUCK_WRITING = "stuck_writing"  # a stream whose next token is overdue
    LEAKED = "leaked"  # a lease of ours for which no slot works
    WEDGED = "wedged"  # nothing moves, and /slots hangs or stands still
    SWALLOWS = "swallows"  # one stream after the other is stuck, and none moves
    COMPUTE_ERRORS = "compute_errors"  # "Compute error", again and again
    SLOW = "slow"  # tokens come, but far more slowly than they did
    ZOMBIES = "zombies"  # slots that work for requests of ours that are over
    OUTSIDE = "outside"  # slots that work for somebody else, for long


class Due(StrEnum):
    """What is to be done, unless the operator wants less."""

    ALERT = "alert"
    END = "end"  # end the streams; who has no byte yet is tried elsewhere
    QUARANTINE = "quarantine"  # that, and give the deployment no work


DUE = {
    Kind.STUCK_READING: Due.END,
    Kind.STUCK_WRITING: Due.END,
    Kind.LEAKED: Due.END,
    Kind.WEDGED: Due.QUARANTINE,
    Kind.SWALLOWS: Due.QUARANTINE,
    Kind.COMPUTE_ERRORS: Due.QUARANTINE,
    Kind.SLOW: Due.ALERT,
    Kind.ZOMBIES: Due.ALERT,
    Kind.OUTSIDE: Due.ALERT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something is wrong with a deployment, `since` when; `figures` are the evidence.

    `tickets` are those of the streams that are concerned, which end if that is due.
    """

    kind: Kind
    deployment: str
    now: float
    since: float
    figures: Figures = field(default_factory=dict)
    tickets: tuple[str, ...] = ()

    @property
    def due(self) -> Due:
        """What is to be done about it."""
        return DUE[self.kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """What was found is no longer so."""

    kind: Kind
    deployment: str
    now: float
    since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifted:
    """A deployment may be given work again; it was kept from it since then."""

    deployment: str
    now: float
    since: float


News = Finding | Over | Lifted
