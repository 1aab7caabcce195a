"""The streaming data plane: one call, from the client's request to the last byte of its answer.

The life of a call: its body is read and prepared, its ticket submitted, and from that moment on
the client's leaving aborts it, wherever it stands.  Granted, it goes upstream; the response head
is held until there is a byte for the client, so that whatever fails before it can still be
answered with a status, or tried again: `runtime.failover` decides.  After it, a fault is one event
in the route's own shape, or the rest comes from elsewhere, if the client wishes.

Who gives the slot back: `Intake.complete`, in the turn of the loop in which the backend's last byte
came, so that the next ticket goes out at once, however slowly the client reads.  In every other
case the exit of the lease, which leaves it settling.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.core.decision import BACKEND_LOST, KV_PRESSURE, Reason
from slotgate.errors import BackendError, BackendTimeoutError, ExchangeClosedError
from slotgate.http.answers import Again, Answers, Passage
from slotgate.http.call import Call, FreeCall
from slotgate.http.intake import PLAIN_LIMIT_BYTES, Intake
from slotgate.http.problems import Problem, from_refusal
from slotgate.http.replies import answer, forwarded_headers, reply_plain
from slotgate.http.waiting import Positions, wait_with_comments
from slotgate.runtime.journal import outcome_of
from slotgate.runtime.lease import KILLED, RefusedError
from slotgate.runtime.meter import Meter
from slotgate.telemetry.metrics import Outcome, Phase
from slotgate.wire.clamp import clamped, lowers
from slotgate.wire.other_makes import adapted

if TYPE_CHECKING:
    from slotgate.backends.llama_server import LlamaServer
    from slotgate.core.clock import Clock
    from slotgate.core.decision import Granted, Refused
    from slotgate.runtime.driver import Driver
    from slotgate.runtime.failover import Attempt, Failover
    from slotgate.runtime.journal import Journal
    from slotgate.runtime.lease import Lease
    from slotgate.runtime.probes import Probe
    from slotgate.wire.request import Prepared
    from slotgate.wire.routes import Shape

# The first byte of an answer that comes in one piece comes when all of it has been generated.
WHOLE_ANSWER_SECONDS = 3600.0
CLIENT_LEFT = "the client left"
# Why the scheduler stops a request: else a shared context would overflow, and all there would die.
KV_WORDS = "stopped so that the context which all slots share did not overflow"
KV_RETRY_SECONDS = 2.0


# Refusals for want of time: it was the deadline's, and only the gateway knows who set that.
_BY_DEADLINE = frozenset({Reason.QUEUE_TIMEOUT, Reason.WAIT_TOO_LONG})


class Proxy:
    """Carries calls through admission to the backends."""

    def __init__(
        self, driver: Driver, clock: Clock, journal: Journal, failover: Failover, answers: Answers
    ) -> None:
        self._driver = driver
        self._clock = clock
        self._journal = journal
        self._failover = failover
        self._answers = answers
        self._positions = Positions(driver.waiting_of, clock)

    async def serve(self, call: Call) -> None:
        """Serve one call that takes slots, to its end, whatever that is."""
        request = call.request
        async with self._driver.lease(call.ticket) as lease:
            request.on_leaving(lambda: lease.abort(CLIENT_LEFT))
            try:
                await self._run(call, lease)
            finally:
                request.on_leaving(None)
        self._journal.finished(
            call.ticket, call.route.path, call.outcome, reason=call.reason, phase=call.phase
        )

    async def pass_through(self, call: FreeCall, backend: LlamaServer) -> None:
        """Carry a request that takes no slot to `backend`, and its answer back."""
        request = call.request
        exchange = backend.exchange(
            request.method, call.target, forwarded_headers(request), call.body
        )
        request.on_leaving(exchange.close)
        try:
            await exchange.open()
            body = await exchange.read_all(PLAIN_LIMIT_BYTES)
            await reply_plain(request, exchange, [(b"x-request-id", request.id.encode())], body)
        except ExchangeClosedError:
            pass  # the client left
        except BackendTimeoutError as error:
            await answer(request, call.shape, Problem("backend_timeout", str(error), 1.0))
        except BackendError as error:
            await answer(request, call.shape, Problem("backend_unreachable", str(error), 1.0))
        finally:
            request.on_leaving(None)
            exchange.close()

    # One call.

    async def _run(self, call: Call, lease: Lease) -> None:
        try:
            granted = await self._wait(call, lease)
            while (again := await self._attempt(call, lease, granted)) is not None:
                call.phase = Phase.WAITING
                lease.requeue(slot_free=again.slot_free, rest=again.rest)
                granted = await self._wait(call, lease)
        except RefusedError as error:
            await self._refuse(call, error.decision)
        except ExchangeClosedError:
            await self._end_aborted(call, lease)
        except BackendTimeoutError as error:
            await call.fail_with(Problem("backend_timeout", str(error), 1.0))
        except BackendError as error:
            await call.fail_with(Problem("backend_unreachable", str(error), 1.0))

    async def _wait(self, call: Call, lease: Lease) -> Granted:
        if call.shows_wait:
            return await wait_with_comments(call, lease, self._positions, self._clock)
        return await lease.wait()

    async def _attempt(self, call: Call, lease: Lease, granted: Granted) -> Again | None:
        """Try one backend.  Returns None when the client has its answer, else how to go on.

        Raises `BackendError` when it failed for good.
        """
        attempt = self._failover.attempt(lease, granted, call.tries)
        backend = attempt.probe.backend
        meter = Meter(lease, self._clock.now, attempt.began)
        prepared = _prepared_for(attempt.probe, call)
        intake = Intake(call.shape, prepared, lease, meter, attempt.served, call.written)
        body = _body(call.shape, prepared, granted.output_clamp)
        exchange = intake.exchange = backend.exchange(
            "POST",
            call.request.target,
            forwarded_headers(call.request),
            backend.addressed(body, prepared.model),
            single_use=True,
            first_byte=None if call.prepared.upstream_stream else WHOLE_ANSWER_SECONDS,
            on_complete=intake.complete,
        )
        lease.on_abort(intake.stop)
        lease.upstream = exchange if call.prepared.upstream_stream else None
        headers = call.granted_headers(granted)
        way = Passage(call=call, attempt=attempt, intake=intake, headers=headers)
        try:
            call.phase = Phase.PREFILL
            await exchange.open()
            lease.started()
            return await self._answers.relay(way)
        except ExchangeClosedError:
            if self._may_be_moved(call, attempt):
                return Again(slot_free=not exchange.sent)
            if lease.stopped is None or lease.stopped == KV_PRESSURE or lease.aborted is not None:
                raise
            if (again := self._answers.rest(way, lease.stopped)) is not None:
                return again
            raise
        except BackendError as error:
            if attempt.failed(error, was_sent=exchange.sent):
                return Again(slot_free=not exchange.sent or exchange.is_complete)
            if (again := self._answers.rest(way, str(error))) is not None:
                return again
            self._answers.note_broken(way)
            intake.give_back()
            raise
        finally:
            exchange.close()
            intake.settle()

    def _may_be_moved(self, call: Call, attempt: Attempt) -> bool:
        """Whether a request whose exchange we have closed ourselves goes back to the queue."""
        lease = attempt.lease
        if lease.stopped is None or lease.aborted is not None or lease.has_left:
            return False
        if lease.stopped == BACKEND_LOST:
            attempt.was_lost()
            return True
        if lease.stopped != KV_PRESSURE:  # by the watchdog
            return not call.has_begun and attempt.was_stuck(lease.stopped)
        self._journal.stopped(call.ticket, attempt.backend, lease.stopped)
        if call.has_begun or not call.spared:
            return False
        call.spared -= 1  # once: it may have been the wrong one
        return True

    # Endings.

    async def _refuse(self, call: Call, refused: Refused) -> None:
        call.outcome, call.reason = outcome_of(refused.reason), refused.reason
        setting = call.deadline_setting if refused.reason in _BY_DEADLINE else None
        await call.end_with(from_refusal(refused, setting=setting))

    async def _end_aborted(self, call: Call, lease: Lease) -> None:
        if lease.aborted == CLIENT_LEFT or (lease.aborted is None and lease.stopped is None):
            call.outcome = Outcome.ABANDONED
            return
        if lease.aborted is None and lease.stopped == KV_PRESSURE:
            problem = Problem(KV_PRESSURE, KV_WORDS, KV_RETRY_SECONDS)
            await call.end_stopped(problem)
        elif lease.aborted == KILLED:
            problem = Problem("killed", KILLED)
            await call.end_with(problem)
        elif lease.aborted is None:  # by the watchdog
            await call.fail_with(Problem("backend_timeout", lease.stopped or "", 1.0))
            return
        else:
            problem = Problem(Reason.DRAINING, lease.aborted, 1.0)
            await call.end_with(problem)
        call.outcome, call.reason = Outcome.KILLED, problem.code


def _prepared_for(probe: Probe, call: Call) -> Prepared:
    if probe.is_other_make:
        return adapted(call.shape, call.prepared, probe.listed)
    return call.prepared


def _body(shape: Shape, prepared: Prepared, clamp: int | None) -> bytes:
    if clamp is None or not lowers(shape, prepared, clamp):
        return prepared.body
    return clamped(shape, prepared.body, clamp)
