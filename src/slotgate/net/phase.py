"""The life of an exchange.

new -> connecting -> waiting -> streaming -> complete
new -> waiting (a pooled connection) -> stale (it died unanswered) -> connecting
any but complete -> failed;  any but failed -> closed
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from slotgate.errors import BackendError


class Phase(enum.Enum):
    """Where an exchange stands."""

    NEW = enum.auto()
    CONNECTING = enum.auto()
    WAITING = enum.auto()
    STALE = enum.auto()
    STREAMING = enum.auto()
    COMPLETE = enum.auto()
    FAILED = enum.auto()
    CLOSED = enum.auto()


# Plain names, because looking a member up in its enum is slow in Python 3.11.
NEW, CONNECTING, WAITING, STALE, STREAMING, COMPLETE, FAILED, CLOSED = Phase

OVER = frozenset({COMPLETE, FAILED, CLOSED})
# What is missing when a phase lasts too long.
MISSING = {
    CONNECTING: "no connection",
    WAITING: "no answer",
    STREAMING: "nothing more of the answer",
}


class Failure(NamedTuple):
    """An error before it is raised; a stored exception would tie itself to its frames."""

    kind: type[BackendError]
    message: str
    cause: BaseException | None = None

    def error(self) -> BackendError:
        error = self.kind(self.message)
        error.__cause__ = self.cause
        return error
