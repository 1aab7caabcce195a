"""What the scheduler decides, as values; the shell carries them out in order."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slotgate.core.ticket import Ticket


class Reason(StrEnum):
    """Why a request was refused; the value is the public `error.code`."""

    QUEUE_FULL = "queue_full"
    WAIT_TOO_LONG = "wait_too_long"
    QUEUE_TIMEOUT = "queue_timeout"
    TENANT_LIMIT = "tenant_limit"
    NO_BACKEND = "no_backend"
    LOADING = "loading"
    DRAINING = "draining"
    CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
    MODEL_NOT_FOUND = "model_not_found"
    INVALID_REQUEST = "invalid_request_error"


# Why a running ticket is stopped: its shared KV cache would overflow, and end all of them.
KV_PRESSURE = "kv_pressure"
# Why the shell stops one: its backend has gone, and it is tried elsewhere.
BACKEND_LOST = "backend_lost"


class Ending(StrEnum):
    """How a ticket's life ended."""

    SERVED = "served"
    FAILED = "failed"
    ABANDONED = "abandoned"
    KILLED = "killed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """The ticket runs: `lease` names its right to `ticket.width` slots of `deployment`.

    It must write at most `output_clamp` tokens in each sequence; None: as many as it asks.
    `predicted_wait` is what was foreseen when it came, in seconds; None: it did not have to
    wait, or nothing could be foreseen.  `position` is where it stood then, counted from 1; 0: it
    did not have to wait.  `expected_cached` is the tokens of its prompt that the deployment should
    have in its cache.
    """

    ticket: Ticket
    lease: str
    deployment: str
    waited: float
    output_clamp: int | None = None
    predicted_wait: float | None = None
    position: int = 0
    expected_cached: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The ticket will not run.

    `retry_after` is in seconds, None when coming back cannot help; `predicted_wait` is what was
    foreseen when it came, None if nothing was.  `limit` and `value` are the
    limit that refused it and what was measured against it; `setting` is the limit's key.
    """

    ticket: Ticket
    reason: Reason
    waited: float = 0.0
    retry_after: float | None = None
    predicted_wait: float | None = None
    limit: float | None = None
    value: float | None = None
    setting: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Abort:
    """Stop a running request: close its upstream, then `leave` as usual."""

    ticket_id: str
    reason: str


Decision = Granted | Refused | Abort
