"""One request's way to a slot and back: the only one there is.

Its decisions come from the driver; its exit gives everything back, whatever happened inside.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol, Self

from slotgate.core.decision import Ending, Granted, Refused
from slotgate.errors import ExchangeClosedError, SlotgateError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from slotgate.core.ticket import Ticket
    from slotgate.runtime.driver import Driver
    from slotgate.wire.usage import Usage


# Why a lease is aborted that the operator has killed.
KILLED = "the operator has ended this request"


class RefusedError(SlotgateError):
    """The scheduler refused the request; `decision` says why."""

    def __init__(self, decision: Refused) -> None:
        super().__init__(decision.reason)
        self.decision = decision


class Upstream(Protocol):
    """What can be seen of an exchange with a backend; `Exchange` is one."""

    @property
    def bytes_received(self) -> int: ...
    @property
    def is_held(self) -> bool: ...


class Lease:
    """One request's way through admission, from its ticket to the slot's return.

    `async with driver.lease(ticket) as lease:` submits; `await lease.wait()` returns the grant or
    raises `RefusedError`; leaving the block gives the slot back, if `finish` has not done so.
    `abort` may be called at any moment, by whoever sees that the client has left.
    """

    __slots__ = (
        "_abort_hook",
        "_decision",
        "_driver",
        "_waiter",
        "aborted",
        "granted",
        "is_answered",
        "output_tokens",
        "stopped",
        "ticket",
        "upstream",
    )

    def __init__(self, driver: Driver, ticket: Ticket) -> None:
        self.ticket = ticket
        self.granted: Granted | None = None
        self.aborted: str | None = None  # why, once it is
        self.stopped: str | None = None  # why, when what ran was ended without the client's doing
        self.is_answered = False  # its client has a byte: it cannot run elsewhere any more
        # Since the grant: the tokens that were charged, and where the answer comes from, if it
        # comes as a stream.
        self.output_tokens = 0
        self.upstream: Upstream | None = None
        self._driver = driver
        self._decision: Granted | Refused | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._abort_hook: Callable[[], None] | None = None

    async def __aenter__(self) -> Self:
        self._driver.submit(self)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        ending = Ending.ABANDONED if self.aborted else Ending.FAILED
        self.finish(Ending.KILLED if self.aborted == KILLED else ending, slot_free=False)

    @property
    def has_left(self) -> bool:
        """Whether everything has been given back: the ticket's life is over."""
        return not self._driver.knows(self)

    async def wait(self) -> Granted:
        """Wait for the decision.

        Raises `RefusedError` if it is a refusal and `ExchangeClosedError` after `abort`.
        """
        while self._decision is None and self.aborted is None:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self.aborted is not None:
            raise ExchangeClosedError(self.aborted)
        if isinstance(self._decision, Refused):
            raise RefusedError(self._decision)
        assert isinstance(self._decision, Granted)  # noqa: S101 - for the type checker
        return self._decision

    def requeue(self, *, slot_free: bool, rest: Ticket | None = None) -> None:
        """Go back to the front of the queue after a failure; then wait.

        Before the first byte, that is; after it, `rest` is the ticket for what is still to come.
        """
        granted = self.granted
        if granted is None or self.has_left:
            raise ValueError("only a lease that runs can go back to the queue")
        self.granted = self._decision = self._abort_hook = self.stopped = self.upstream = None
        self.ticket = rest or self.ticket
        self._driver.requeue(self, granted, slot_free=slot_free, rest=rest)
        self.output_tokens = 0

    def on_abort(self, hook: Callable[[], None]) -> None:
        """Have `hook` called by `abort` and `stop`: it closes the exchange with the backend."""
        self._abort_hook = hook
        if self.stopped is not None:  # since the grant, before anybody could do anything about it
            hook()

    def started(self) -> None:
        """The backend's response head came: its slot has certainly started."""
        if self.granted is not None:
            entry = self._driver.books(self.granted.deployment).running.get(self.granted.lease)
            if entry is not None:
                entry.started_at = asyncio.get_running_loop().time()

    def finish(self, ending: Ending, *, slot_free: bool) -> None:
        """Give the slot back now.  The first call counts, later ones do nothing."""
        self._driver.leave(self, ending, slot_free=slot_free)

    def charge(
        self, *, input_tokens: int = 0, cached_tokens: int = 0, output_tokens: int = 0
    ) -> None:
        """Charge what the request has used since the last call."""
        self.output_tokens += output_tokens
        self._driver.charge(
            self.ticket.id,
            input_tokens=input_tokens,
            cached_tokens=cached_tokens,
            output_tokens=output_tokens,
        )

    def timed(self, usage: Usage) -> None:
        """Tell the scheduler what the backend's own clock says of the request."""
        self._driver.timed(
            self.ticket.id,
            prompt_tokens=usage.input_tokens - usage.cached_tokens,
            prompt_seconds=usage.prompt_ms / 1000,
            output_tokens=usage.output_tokens,
            output_seconds=usage.predicted_ms / 1000,
        )

    def stop(self, reason: str) -> None:
        """End what runs, for the scheduler wants the slot back; the request may be requeued."""
        self.stopped = reason
        if self._abort_hook is not None:
            self._abort_hook()

    def abort(self, reason: str) -> None:
        """Stop waiting or running: the client has left, or the operator says so."""
        if self.aborted is not None:
            return
        self.aborted = reason
        if self._abort_hook is not None:
            self._abort_hook()
        self._wake()

    # For the driver.

    def decide(self, decision: Granted | Refused) -> None:
        self._decision = decision
        if isinstance(decision, Granted):
            self.granted = decision
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
