"""What becomes of a request that a backend failed before its client saw a byte of the answer.

Rule 1: a backend hears of each thing that a request tells of it: that its answer began, that it
        was served, how it failed.
Rule 2: a failed request is tried again once, on another backend if there is one.  On the same one
        only if a connection was lost, which may be chance; an error would be the same again.
Rule 3: what has not reached a backend, because nobody listens there or it loads, was not tried:
        it goes on waiting until its deadline.
Rule 4: retries have a budget, except those of requests that a backend takes along as it goes down:
        it gets no more of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from slotgate.core.deployment import State
from slotgate.core.health import Signal
from slotgate.core.retry_budget import RetryBudget
from slotgate.errors import (
    BackendError,
    BackendTimeoutError,
    BrokenAnswerError,
    UnreachableError,
)
from slotgate.wire.blame import Blame

if TYPE_CHECKING:
    from slotgate.core.clock import Clock
    from slotgate.core.decision import Granted
    from slotgate.runtime.driver import Driver
    from slotgate.runtime.fleet import Fleet
    from slotgate.runtime.journal import Journal
    from slotgate.runtime.lease import Lease
    from slotgate.runtime.probes import Probe

# How often a request that failed before its first byte is tried again.
RETRIES = 1
# Where a request may be tried again although there is no other backend.
_BY_CHANCE = frozenset({Signal.RESET, Signal.BROKEN})
_BY_BLAME = {
    Blame.LOADING: Signal.LOADING,
    Blame.BACKEND: Signal.ERROR,
    Blame.BUSY: Signal.BUSY,
    Blame.OVERFLOW: Signal.OVERFLOWED,
    Blame.UNKNOWN: Signal.ERROR,
}


class Doubt(NamedTuple):
    """An error of which nobody can tell whose fault it was, until the request is tried again."""

    probe: Probe
    why: str
    since: float


@dataclass(slots=True)
class Tries:
    """What one request has left, and what its last try left open."""

    left: int = RETRIES
    doubt: Doubt | None = None


class Attempt:
    """One try of a request on one backend."""

    __slots__ = ("_failover", "_has_begun", "_tries", "lease", "probe", "since")

    def __init__(
        self, failover: Failover, lease: Lease, probe: Probe, tries: Tries, since: float
    ) -> None:
        self.lease = lease
        self.probe = probe
        self.since = since
        self._failover = failover
        self._tries = tries
        self._has_begun = False

    @property
    def backend(self) -> str:
        """The name of the backend."""
        return self.probe.backend.name

    # What goes well.

    def began(self) -> None:
        """The first token of the answer came; only the first call counts."""
        if not self._has_begun:
            self._has_begun = True
            self._tell(Signal.BEGAN, "ok")

    def served(self) -> None:
        """The answer came to its proper end."""
        self._tell(Signal.SERVED, "ok")
        doubt = self._tries.doubt
        if doubt is not None:
            doubt.probe.note(Signal.ERROR, doubt.why, since=doubt.since)

    # What does not.  True: the request is to be tried again.

    def failed(self, error: BackendError, *, was_sent: bool) -> bool:
        """The exchange failed."""
        signal = self._signal_of(error, was_sent=was_sent)
        if signal is None:
            return False
        self._tell(signal, str(error))
        return self._is_again(signal, str(error))

    def answered_badly(self, blame: Blame, why: str) -> bool:
        """The backend answered with an error, before any token."""
        is_crowded = blame is Blame.OVERFLOW and self.probe.overflowed()
        if blame is Blame.REQUEST or (blame is Blame.OVERFLOW and not is_crowded):
            return False
        signal = _BY_BLAME[blame]
        if blame is not Blame.UNKNOWN:
            self._tell(signal, why)
        elif self._tries.left:
            self._tries.doubt = Doubt(self.probe, why, self.since)
        return self._is_again(signal, why)

    def broke(self, blame: Blame, why: str) -> None:
        """An error came after the first tokens."""
        if blame is Blame.OVERFLOW and self.probe.overflowed():
            self._tell(Signal.OVERFLOWED, why)
        elif blame is Blame.BACKEND:
            self._tell(Signal.BROKEN, why)

    def may_resume(self) -> bool:
        """Whether an answer that broke may be gone on with: that is a retry like any other."""
        return self._failover.take_retry(self)

    def was_stuck(self, why: str) -> bool:
        """The watchdog has ended the request, whose client has no byte; True: try it again."""
        if not self._tries.left:
            return False
        self._tries.left -= 1
        self._failover.journal.retried(self.lease.ticket, self.backend, Signal.TIMEOUT, why)
        return True

    def was_lost(self) -> None:
        """The request was taken off the backend, which has gone."""
        self._failover.journal.retried(
            self.lease.ticket, self.backend, Signal.SILENT, self.probe.why
        )

    # Private rules.

    def _tell(self, signal: Signal, why: str) -> None:
        self.probe.note(signal, why, since=self.since)

    def _signal_of(self, error: BackendError, *, was_sent: bool) -> Signal | None:
        if isinstance(error, BackendTimeoutError):
            return Signal.BROKEN if self._has_begun else Signal.TIMEOUT
        if isinstance(error, BrokenAnswerError):
            return Signal.BROKEN if self._has_begun else Signal.RESET
        if isinstance(error, UnreachableError):
            return Signal.RESET if was_sent else Signal.UNREACHABLE
        return None

    def _is_again(self, signal: Signal, why: str) -> bool:
        if self.lease.has_left or self.lease.is_answered:
            return False
        if not signal.is_untried:
            if not self._tries.left or not self._failover.may_retry(self, signal):
                return False
            self._tries.left -= 1
        self._failover.journal.retried(self.lease.ticket, self.backend, signal, why)
        return True


class Failover:
    """Begins the tries of requests, and has the budget of those that are tried again."""

    def __init__(self, driver: Driver, fleet: Fleet, clock: Clock, journal: Journal) -> None:
        self.journal = journal
        self._driver = driver
        self._fleet = fleet
        self._clock = clock
        # Model -> its retries.
        self._budgets: dict[str, RetryBudget] = {}

    def attempt(self, lease: Lease, granted: Granted, tries: Tries) -> Attempt:
        """Begin to try a request that was granted a slot."""
        if tries.left == RETRIES:
            self._budget(lease.ticket.model).requested()
        probe = self._fleet.probes[granted.deployment]
        return Attempt(self, lease, probe, tries, self._clock.now())

    def may_retry(self, attempt: Attempt, signal: Signal) -> bool:
        """Whether a failed request may be tried again: there is where, and time, and budget."""
        ticket, now = attempt.lease.ticket, self._clock.now()
        if ticket.deadline <= now:
            return False
        has_other = self._driver.may_run_elsewhere(ticket.id)
        if not has_other and signal not in _BY_CHANCE:
            return False
        if has_other and attempt.probe.state not in {State.READY, State.DEGRADED}:
            return True
        return self._budget(ticket.model).take(now)

    def take_retry(self, attempt: Attempt) -> bool:
        """Take one retry from the budget, if it has one left."""
        return self._budget(attempt.lease.ticket.model).take(self._clock.now())

    def _budget(self, model: str) -> RetryBudget:
        budget = self._budgets.get(model)
        if budget is None:
            budget = self._budgets[model] = RetryBudget()
        return budget
