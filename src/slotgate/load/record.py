"""What became of one request, over all of its attempts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slotgate.load.arrival import Arrival


class Outcome(StrEnum):
    """How a request ended; every request has exactly one."""

    SERVED = "served"  # the whole answer came
    REFUSED = "refused"  # told no, and never came back or was told so each time
    EXPIRED = "expired"  # told no after it had waited to its deadline
    ABANDONED = "abandoned"  # the client left first
    FAILED = "failed"  # an error, or an answer that broke off


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One request in numbers.  Times of day are seconds from the start of the load.

    `reason` is the last refusal's, "" if there was none.  `ttft` is in seconds from the *first*
    attempt to the first token, None if none came; `tpot` the seconds between tokens, None below
    two.  `waited` is the time in the queue of the attempt that was served, None if that is not
    known, and `predicted_wait` what was told at its arrival.  `input_done` and `output_done` are
    the tokens that the server worked on for it in all attempts, wanted or not.  `retry_after` is
    the last delay that a refusal named.  `refused_after` is in seconds from an attempt to its
    refusal, the first one's.  `last_ttft` is as `ttft`, from the last attempt.
    """

    arrival: Arrival
    outcome: Outcome
    attempts: int
    reason: str = ""
    ttft: float | None = None
    tpot: float | None = None
    ended_at: float
    waited: float | None = None
    predicted_wait: float | None = None
    input_done: int = 0
    output_done: int = 0
    retry_after: float | None = None
    refused_after: float | None = None
    last_ttft: float | None = None
