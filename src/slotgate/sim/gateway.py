"""The gateway in virtual time: the very scheduler that serves, and the driver's part played.

What `runtime/driver.py` and `http/proxy.py` do with sockets happens here with simulated servers: a
grant sends the job, tokens are charged as they are streamed, the last one gives the slot back, and
a client that hangs up leaves its slot settling until the server has noticed.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING, Protocol

from typing_extensions import override

from slotgate.core import Abort, DeploymentReport, Ending, Granted, Refused, State, Ticket
from slotgate.sim.front import Front

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slotgate.core import Decision, Scheduler
    from slotgate.load.arrival import Arrival
    from slotgate.sim.front import Stage
    from slotgate.sim.requests import Attempt
    from slotgate.slotsim import Finished, Result, ServerSpec

MODEL = "model"
BYTES_PER_TOKEN = 4


class Watcher(Protocol):
    """Is told what comes before the scheduler is: an oracle."""

    def coming(self, ticket_id: str, arrival: Arrival) -> None:
        """This is about to be submitted."""


class Gateway(Front):
    """Plays the driver for a scheduler.  `budgets` is how long each class may wait."""

    def __init__(
        self,
        stage: Stage,
        *,
        scheduler: Scheduler,
        budgets: Mapping[str, float],
        watcher: Watcher | None = None,
    ) -> None:
        super().__init__(stage)
        self._scheduler = scheduler
        self._budgets = budgets
        self._meter = stage.meter
        self._watcher = watcher
        # Ticket id -> attempt, from submit to leave.
        self._attempts: dict[str, Attempt] = {}
        # Decisions that wait for the one before them to be carried out.
        self._decided: deque[Decision] = deque()
        self._is_carrying_out = False
        self._tick_at = inf
        for number, spec in enumerate(stage.specs):
            self._carry_out(self._meter.call(scheduler.deployment, _report(number, spec)))

    # For the clients.

    @override
    def submit(self, attempt: Attempt) -> None:
        ticket = self._ticket(attempt)
        self._attempts[attempt.id] = attempt
        if self._watcher is not None:
            self._watcher.coming(ticket.id, attempt.request.arrival)
        self._carry_out(self._meter.call(self._scheduler.submit, ticket))

    @override
    def leave(self, attempt: Attempt) -> None:
        if attempt.backend is not None:
            self.backends.disconnect(attempt.backend, attempt)
        self._give_back(attempt, Ending.ABANDONED, slot_free=False)

    # What the servers say.

    @override
    def on_tokens(self, attempt: Attempt, count: int) -> None:
        if attempt.id in self._attempts:
            self._charge(attempt, output_tokens=count)

    @override
    def on_finished(self, attempt: Attempt, finished: Finished) -> None:
        if attempt.id not in self._attempts:
            return
        result = finished.result
        self._charge(attempt, input_tokens=result.prompt_tokens, cached_tokens=result.cached_tokens)
        self._tell_times(attempt, result)
        self._give_back(attempt, Ending.SERVED, slot_free=True)

    @override
    def on_failed(self, attempt: Attempt) -> None:
        self._give_back(attempt, Ending.FAILED, slot_free=True)

    @override
    def on_cancelled(self, attempt: Attempt) -> None:
        self._carry_out(self._meter.call(self._scheduler.settled, attempt.lease))

    # What the scheduler decides.

    def _carry_out(self, decisions: list[Decision]) -> None:
        """In the order in which they were made, whatever they lead to."""
        self._decided += decisions
        if not self._is_carrying_out:
            self._is_carrying_out = True
            while self._decided:
                self._act_upon(self._decided.popleft())
            self._is_carrying_out = False
            self._arm()

    def _act_upon(self, decision: Decision) -> None:
        if isinstance(decision, Granted):
            self._grant(decision)
        elif isinstance(decision, Refused):
            self._refuse(decision)
        else:
            self._abort(decision)

    def _grant(self, granted: Granted) -> None:
        attempt = self._attempts[granted.ticket.id]
        attempt.lease = granted.lease
        request = attempt.request
        request.waited = granted.waited
        request.predicted_wait = granted.predicted_wait
        self.start(attempt, int(granted.deployment), clamp=granted.output_clamp)

    def _refuse(self, refused: Refused) -> None:
        attempt = self._attempts[refused.ticket.id]
        attempt.request.predicted_wait = refused.predicted_wait
        self._give_back(attempt, Ending.FAILED, slot_free=False)
        self.audience.is_refused(attempt, refused.reason.value, refused.retry_after)

    def _abort(self, abort: Abort) -> None:
        attempt = self._attempts.get(abort.ticket_id)
        if attempt is not None:
            self.leave(attempt)
            is_first = attempt.output_tokens == 0
            self.audience.has_failed(attempt, abort.reason, is_first=is_first)

    def _give_back(self, attempt: Attempt, ending: Ending, *, slot_free: bool) -> None:
        """The one way out, as the driver's: idempotent."""
        if self._attempts.pop(attempt.id, None) is None:
            return
        self._carry_out(
            self._meter.call(self._scheduler.leave, attempt.id, ending, slot_free=slot_free)
        )

    def _charge(
        self,
        attempt: Attempt,
        *,
        input_tokens: int = 0,
        cached_tokens: int = 0,
        output_tokens: int = 0,
    ) -> None:
        self._carry_out(
            self._meter.call(
                self._scheduler.charge,
                attempt.id,
                input_tokens=input_tokens,
                cached_tokens=cached_tokens,
                output_tokens=output_tokens,
            )
        )

    def _tell_times(self, attempt: Attempt, result: Result) -> None:
        """What llama-server's `timings` say at the end of an answer."""
        self._carry_out(
            self._meter.call(
                self._scheduler.timed,
                attempt.id,
                prompt_tokens=result.prompt_tokens - result.cached_tokens,
                prompt_seconds=result.first_token_at - result.began_at,
                output_tokens=result.output_tokens,
                output_seconds=result.ended_at - result.first_token_at,
            )
        )

    # Time.

    def _arm(self) -> None:
        due = self._scheduler.next_deadline()
        if due is not None and due < self._tick_at:
            self._tick_at = due
            self.agenda.note(max(due, self.clock.now()), self._tick, due)

    def _tick(self, due: float) -> None:
        if due == self._tick_at:
            self._tick_at = inf
            self._carry_out(self._meter.call(self._scheduler.tick))

    def _ticket(self, attempt: Attempt) -> Ticket:
        arrival, now = attempt.request.arrival, self.clock.now()
        return Ticket(
            id=attempt.id,
            arrival=now,
            deadline=now + self._budgets.get(arrival.priority_class, inf),
            tenant=arrival.tenant,
            priority_class=arrival.priority_class,
            model=MODEL,
            width=arrival.width,
            input_tokens=arrival.input_tokens,
            output_tokens=arrival.max_tokens,
            size_bytes=arrival.input_tokens * BYTES_PER_TOKEN,
            affinity=arrival.session or None,
        )


def _report(number: int, spec: ServerSpec) -> DeploymentReport:
    return DeploymentReport(
        id=str(number),
        model=MODEL,
        slots=spec.slots,
        state=State.READY,
        ctx_per_slot=spec.ctx,
        kv_pool_tokens=spec.pool,
    )
