"""Carries out the scheduler's decisions: the only place where coroutines meet the core.

Rule 1: a request's only way to a slot is a `Lease`, used in one `async with`.  Whatever happens
        inside, its exit makes one synchronous, idempotent call that gives everything back.
Rule 2: every call into the core is synchronous and is followed, in the same turn of the loop, by
        carrying out all that it decided.  Nothing can come between.
Rule 3: futures carry decisions, never exceptions, so that none is left unretrieved.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from enum import StrEnum
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Protocol

from slotgate.core.decision import BACKEND_LOST, Abort, Decision, Ending, Granted, Refused
from slotgate.core.deployment import State
from slotgate.runtime.books import DeploymentBooks, RunningLease
from slotgate.runtime.lease import KILLED, Lease

if TYPE_CHECKING:
    from collections.abc import Callable

    from slotgate.core.deployment import DeploymentReport
    from slotgate.core.limits import Limits
    from slotgate.core.policies import Policies
    from slotgate.core.scheduler import Scheduler
    from slotgate.core.snapshot import Counts, Snapshot, WaitingView
    from slotgate.core.ticket import Ticket


class Verb(StrEnum):
    """What the operator may do with a backend; each is an event of the scheduler's."""

    PAUSE = "pause"
    RESUME = "resume"
    DRAIN = "drain"
    DISABLE = "disable"
    ENABLE = "enable"


class DecisionObserver(Protocol):
    """Told of each decision once, as it is carried out: telemetry is one."""

    def decided(self, decision: Decision) -> None: ...


class Driver:
    """The scheduler's hands.  All of its methods are synchronous, except waiting on a lease."""

    def __init__(self, scheduler: Scheduler, loop: asyncio.AbstractEventLoop) -> None:
        self._scheduler = scheduler
        self._loop = loop
        self._leases: dict[str, Lease] = {}  # ticket id -> lease, from submit to leave
        self._timer: asyncio.TimerHandle | None = None
        # When it fires, which it cannot be asked: uvloop makes none for what is due at once.
        self._fires_at = inf
        self._books: dict[str, DeploymentBooks] = {}  # deployment id -> books
        # Deployment id -> what was last reported of it.
        self._reports: dict[str, DeploymentReport] = {}
        # Deployments that are being started or changed: nothing of them counts as ready yet.
        self._withheld: set[str] = set()
        self._removed: set[str] = set()
        self._idle_waiters: set[asyncio.Future[None]] = set()
        self.observers: list[DecisionObserver] = []
        # Called with a deployment's id when one of its leases begins to settle.
        self.settling_hooks: list[Callable[[str], None]] = []
        # Called after each call into the core, when all that it decided is carried out.
        self.change_hooks: list[Callable[[], None]] = []
        # Called with a deployment's id and what it can be used for, when that is another thing.
        self.state_hooks: list[Callable[[str, State], None]] = []
        self._states: dict[str, State] = {}

    # Requests.

    def lease(self, ticket: Ticket) -> Lease:
        """Return the request's way to a slot; nothing happens before it is entered."""
        return Lease(self, ticket)

    def submit(self, lease: Lease) -> None:
        self._leases[lease.ticket.id] = lease
        self._carry_out(self._scheduler.submit(lease.ticket))

    def knows(self, lease: Lease) -> bool:
        return self._leases.get(lease.ticket.id) is lease

    def requeue(
        self, lease: Lease, granted: Granted, *, slot_free: bool, rest: Ticket | None
    ) -> None:
        self._close_books(lease, granted, slot_free=slot_free)
        self._carry_out(self._scheduler.requeue(lease.ticket.id, slot_free=slot_free, rest=rest))
        self._after_close(granted, slot_free=slot_free)

    def leave(self, lease: Lease, ending: Ending, *, slot_free: bool) -> None:
        """Give everything back.  Does nothing the second time."""
        if self._leases.pop(lease.ticket.id, None) is None:
            return
        granted = lease.granted
        if granted is not None:
            self._close_books(lease, granted, slot_free=slot_free)
            if ending is Ending.SERVED:
                self.books(granted.deployment).answered()
        self._carry_out(self._scheduler.leave(lease.ticket.id, ending, slot_free=slot_free))
        if granted is not None:
            self._after_close(granted, slot_free=slot_free)
        if not self._leases:
            self._wake_idle_waiters()

    def charge(
        self, ticket_id: str, *, input_tokens: int, cached_tokens: int, output_tokens: int
    ) -> None:
        """Tell what a running request has used since the last call."""
        decisions = self._scheduler.charge(
            ticket_id,
            input_tokens=input_tokens,
            cached_tokens=cached_tokens,
            output_tokens=output_tokens,
        )
        self._follow(decisions)

    def timed(
        self,
        ticket_id: str,
        *,
        prompt_tokens: int,
        prompt_seconds: float,
        output_tokens: int,
        output_seconds: float,
    ) -> None:
        """Tell how long the backend says it took; before the ticket leaves."""
        decisions = self._scheduler.timed(
            ticket_id,
            prompt_tokens=prompt_tokens,
            prompt_seconds=prompt_seconds,
            output_tokens=output_tokens,
            output_seconds=output_seconds,
        )
        self._follow(decisions)

    # Deployments.

    def books(self, deployment: str) -> DeploymentBooks:
        books = self._books.get(deployment)
        if books is None:
            books = self._books[deployment] = DeploymentBooks()
        return books

    def report(self, report: DeploymentReport) -> None:
        """Tell what was learned of a deployment, unless it was removed meanwhile."""
        if report.id in self._removed:
            return
        self._reports[report.id] = report
        if report.id in self._withheld:
            report = replace(report, state=State.STARTING)
        self._carry_out(self._scheduler.deployment(report))
        # Not only its own state: others may be used because it is not.
        before, self._states = self._states, self._scheduler.states()
        for name, state in self._states.items():
            if before.get(name) is not state:
                for hook in self.state_hooks:
                    hook(name, state)

    def evacuate(self, deployment: str) -> None:
        """Take the requests off a deployment that has gone, whose clients have no byte yet.

        Those that fit nowhere else stay: it may come back.
        """
        for lease in list(self._leases.values()):
            granted = lease.granted
            if granted is None or granted.deployment != deployment or lease.is_answered:
                continue
            if lease.stopped is None and self.may_run_elsewhere(lease.ticket.id):
                lease.stop(BACKEND_LOST)

    def withhold(self, report: DeploymentReport) -> None:
        """Let requests wait for a deployment, whatever it reports, until `release`."""
        self._removed.discard(report.id)
        self._withheld.add(report.id)
        self.report(report)

    def release(self, deployment: str) -> None:
        """Let count again what a deployment reports; does nothing if it was not withheld."""
        if deployment in self._withheld:
            self._withheld.discard(deployment)
            self.report(self._reports[deployment])

    def remove(self, deployment: str) -> None:
        """Give it nothing more; what runs there may end.  `withhold` takes it back."""
        self._removed.add(deployment)
        self._withheld.discard(deployment)
        self._carry_out(self._scheduler.remove_deployment(deployment))

    def forget(self, deployment: str) -> None:
        """Drop the empty books of what was removed."""
        self._removed.discard(deployment)
        self._reports.pop(deployment, None)
        self._books.pop(deployment, None)

    def settled(self, deployment: str, lease: str) -> None:
        """The slot of a closed exchange is known free."""
        if self.books(deployment).settled(lease):
            self._carry_out(self._scheduler.settled(lease))

    def forget_settled(self, deployment: str) -> None:
        """Drop from the books what the scheduler has taken for free by itself."""
        books = self.books(deployment)
        settled = [name for name in books.settling if not self._scheduler.is_settling(name)]
        for lease in settled:
            books.settled(lease)
        if settled:
            self._tell_changed()

    # The operator.

    def hold(self, deployment: str, verb: Verb) -> None:
        """Pause, drain, disable, resume or enable a deployment; KeyError if there is none."""
        self._carry_out(getattr(self._scheduler, verb)(deployment))

    def kill(self, ticket_id: str) -> bool:
        """End one request, whether it waits or runs; False if it is not here (any more)."""
        lease = self._leases.get(ticket_id)
        if lease is None or lease.aborted is not None:
            return False
        lease.abort(KILLED)
        return True

    def reconfigure(self, limits: Limits, policies: Policies) -> None:
        """Go by other numbers and rules."""
        self._carry_out(self._scheduler.reconfigure(limits, policies))

    def begin_draining(self) -> None:
        self._carry_out(self._scheduler.begin_draining())

    def stop(self, ticket_id: str, reason: str) -> bool:
        """End what runs for a ticket; before its first byte it may run again.

        Returns whether there was anything to end.
        """
        lease = self._leases.get(ticket_id)
        if lease is None or lease.granted is None or lease.stopped is not None:
            return False
        lease.stop(reason)
        return True

    def abort_all(self, reason: str) -> None:
        """End every request now: the waiting and the running."""
        for lease in list(self._leases.values()):
            lease.abort(reason)

    async def wait_idle(self) -> None:
        """Wait until no request waits or runs."""
        while self._leases:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._idle_waiters.add(waiter)
            try:
                await waiter
            finally:
                self._idle_waiters.discard(waiter)

    async def wait_empty(self, deployment: str) -> None:
        """Wait until no lease on the deployment runs or settles."""
        await self.wait_until(lambda: self.books(deployment).is_empty)

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for a state that an event brings about."""
        while not condition():
            waiter: asyncio.Future[None] = self._loop.create_future()
            hook = partial(_wake, waiter)
            self.change_hooks.append(hook)
            try:
                await waiter
            finally:
                self.change_hooks.remove(hook)

    # Questions.

    @property
    def is_draining(self) -> bool:
        return self._scheduler.is_draining

    def counts(self) -> Counts:
        return self._scheduler.counts()

    def held(self) -> frozenset[str]:
        return self._scheduler.held()

    def running(self) -> dict[str, list[Lease]]:
        """Return the requests that run, by deployment; O(n), not for the hot path."""
        running: dict[str, list[Lease]] = {}
        for lease in self._leases.values():
            if lease.granted is not None:
                running.setdefault(lease.granted.deployment, []).append(lease)
        return running

    def speeds(self, deployment: str) -> tuple[float | None, float | None]:
        """Return a deployment's prompt tokens a second, and seconds a token as many write now."""
        return self._scheduler.speeds(deployment)

    def snapshot(self) -> Snapshot:
        return self._scheduler.snapshot()

    def states(self) -> dict[str, State]:
        """Return what each deployment can be used for now."""
        return self._scheduler.states()

    def may_run_elsewhere(self, ticket_id: str) -> bool:
        """Whether a running request would fit on another deployment."""
        return self._scheduler.may_run_elsewhere(ticket_id)

    def waiting_of(self, tenant: str) -> tuple[WaitingView, ...]:
        return self._scheduler.waiting_of(tenant)

    def hangs_on_length(self, ticket: Ticket, low: int, high: int) -> bool:
        """Whether it depends on the prompt's length, between these, if the ticket is refused."""
        return self._scheduler.hangs_on_length(ticket, low, high)

    def close(self) -> None:
        """Stop the timer; the driver is not used any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Carrying out.

    def _carry_out(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            for observer in self.observers:
                observer.decided(decision)
            if isinstance(decision, Abort):
                lease = self._leases.get(decision.ticket_id)
                if lease is not None:
                    lease.stop(decision.reason)
            else:
                self._deliver(decision)
        self._arm()
        self._tell_changed()

    def _tell_changed(self) -> None:
        for hook in self.change_hooks:
            hook()

    def _follow(self, decisions: list[Decision]) -> None:
        """Carry out what a charge decided, which is nearly always nothing.

        Charges come many times a second for each stream, and change nothing that is shown.
        """
        if decisions:
            self._carry_out(decisions)
        else:
            self._arm()

    def _deliver(self, decision: Granted | Refused) -> None:
        if isinstance(decision, Granted):
            entry = RunningLease(decision.lease, decision.ticket.width)
            self.books(decision.deployment).granted(entry)
        # A decision's ticket is always in the books: leaving is synchronous and removes both.
        self._leases[decision.ticket.id].decide(decision)

    def _close_books(self, lease: Lease, granted: Granted, *, slot_free: bool) -> None:
        books = self.books(granted.deployment)
        if slot_free:
            books.ended(granted.lease)
        else:
            has_written = lease.output_tokens > 0
            books.closed(granted.lease, self._loop.time(), has_written=has_written)

    def _after_close(self, granted: Granted, *, slot_free: bool) -> None:
        if not slot_free:
            for hook in self.settling_hooks:
                hook(granted.deployment)

    def _wake_idle_waiters(self) -> None:
        for waiter in self._idle_waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _arm(self) -> None:
        # An armed timer that is early only costs one needless tick, so it is left alone.
        due = self._scheduler.next_deadline()
        if due is None:
            return
        if self._timer is not None:
            if self._fires_at <= due:
                return
            self._timer.cancel()
        self._fires_at = due
        self._timer = self._loop.call_at(due, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._carry_out(self._scheduler.tick())


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
