"""The streaming data plane: one call, from the client's request to the last byte of its answer.

The life of a call: its body is read and prepared, its ticket submitted, and from that moment on
the client's leaving aborts it, wherever it stands.  Granted, it goes upstream; the response head
is held until there is a byte for the client, so that whatever fails before it can still be
answered with a status, or tried again.  After it, a fault is one event in the route's own shape.

Who gives the slot back: `Intake.complete`, in the turn of the loop in which the backend's last byte
came, so that the next ticket goes out at once, however slowly the client reads.  In every other
case the exit of the lease, which leaves it settling.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from slotgate.core.decision import KV_PRESSURE, Ending, Reason
from slotgate.errors import (
    BackendError,
    BackendLoadingError,
    BackendTimeoutError,
    BrokenAnswerError,
    ExchangeClosedError,
    UnreachableError,
)
from slotgate.http.call import FRAME_END, Call, FreeCall
from slotgate.http.intake import PLAIN_LIMIT_BYTES, Assembly, Intake, Piece
from slotgate.http.problems import Problem, from_refusal, overlong_prompt
from slotgate.http.replies import (
    JSON,
    answer,
    forwarded_headers,
    passed_headers,
    reply_plain,
)
from slotgate.http.waiting import Positions, wait_with_comments
from slotgate.runtime.driver import RefusedError
from slotgate.runtime.journal import outcome_of
from slotgate.runtime.meter import Meter
from slotgate.telemetry.metrics import Outcome, Phase
from slotgate.wire.clamp import clamped, lowers
from slotgate.wire.errors import error_in, event_of_error
from slotgate.wire.relay import StreamRelay

if TYPE_CHECKING:
    from slotgate.backends.llama_server import LlamaServer
    from slotgate.core.clock import Clock
    from slotgate.core.decision import Granted, Refused
    from slotgate.http.replies import Headers
    from slotgate.net.exchange import Exchange
    from slotgate.runtime.driver import Driver, Lease
    from slotgate.runtime.fleet import Fleet
    from slotgate.runtime.journal import Journal
    from slotgate.runtime.prompt_sizes import PromptSizes
    from slotgate.wire.usage import Usage

ERROR_LIMIT_BYTES = 1 << 20
# The first byte of an answer that comes in one piece comes when all of it has been generated.
WHOLE_ANSWER_SECONDS = 3600.0

# How every build says that it is not ready: "Loading model", or {"status":"loading model"}.
LOADING_MARK = b"oading model"
CLIENT_LEFT = "the client left"
# Why the scheduler stops a request: else a shared context would overflow, and all there would die.
KV_WORDS = "stopped so that the context which all slots share did not overflow"
KV_RETRY_SECONDS = 2.0


# Refusals for want of time: it was the deadline's, and only the gateway knows who set that.
_BY_DEADLINE = frozenset({Reason.QUEUE_TIMEOUT, Reason.WAIT_TOO_LONG})


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """A failed attempt that may be repeated; `slot_free` says that no slot was taken by it."""

    slot_free: bool


class Proxy:
    """Carries calls through admission to the backends."""

    def __init__(
        self, driver: Driver, fleet: Fleet, clock: Clock, journal: Journal, sizes: PromptSizes
    ) -> None:
        self._driver = driver
        self._fleet = fleet
        self._clock = clock
        self._journal = journal
        self._sizes = sizes
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
            request.method, request.target, forwarded_headers(request), call.body
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
                lease.requeue(slot_free=again.slot_free)
                granted = await self._wait(call, lease)
        except RefusedError as error:
            await self._refuse(call, error.decision)
        except ExchangeClosedError:
            await self._end_aborted(call, lease)
        except BackendTimeoutError as error:
            await self._fail(call, Problem("backend_timeout", str(error), 1.0))
        except BackendError as error:
            await self._fail(call, Problem("backend_unreachable", str(error), 1.0))

    async def _wait(self, call: Call, lease: Lease) -> Granted:
        if call.shows_wait:
            return await wait_with_comments(call, lease, self._positions, self._clock)
        return await lease.wait()

    async def _attempt(self, call: Call, lease: Lease, granted: Granted) -> Again | None:
        """Try one backend.  Returns None when the client has its answer, else how to go on.

        Raises `BackendError` when it failed for good.
        """
        meter = Meter(lease, self._clock.now)
        intake = Intake(call.shape, call.prepared, lease, meter)
        exchange = intake.exchange = self._fleet.backends[granted.deployment].exchange(
            "POST",
            call.request.target,
            forwarded_headers(call.request),
            _body(call, granted),
            single_use=True,
            first_byte=None if call.prepared.upstream_stream else WHOLE_ANSWER_SECONDS,
            on_complete=intake.complete,
        )
        lease.on_abort(intake.stop)
        lease.upstream = exchange if call.prepared.upstream_stream else None
        try:
            call.phase = Phase.PREFILL
            await exchange.open()
            lease.started()
            if exchange.status >= 400:
                await self._answer_error(call, lease, granted, exchange)
            else:
                await self._answer_from(call, granted, intake)
        except BackendTimeoutError:
            raise
        except ExchangeClosedError:
            if lease.stopped is None or not self._may_run_again(call, lease, granted):
                raise
            return Again(slot_free=not exchange.sent)
        except (UnreachableError, BrokenAnswerError) as error:
            self._fleet.probes[granted.deployment].failed(error, connected=exchange.sent)
            if call.has_begun or lease.has_left or not call.retries:
                raise
            call.retries -= 1
            self._journal.retried(call.ticket, granted.deployment, str(error))
            return Again(slot_free=not exchange.sent or isinstance(error, BackendLoadingError))
        finally:
            exchange.close()
            intake.settle()
        return None

    def _may_run_again(self, call: Call, lease: Lease, granted: Granted) -> bool:
        """Whether a request that was stopped goes back to the queue."""
        why = lease.stopped or ""
        if why == KV_PRESSURE:
            return self._may_be_spared(call, lease, granted)
        if lease.has_left or lease.aborted is not None or call.has_begun or not call.retries:
            return False
        call.retries -= 1
        self._journal.retried(call.ticket, granted.deployment, why)
        return True

    def _may_be_spared(self, call: Call, lease: Lease, granted: Granted) -> bool:
        """Whether a request that was stopped to save others goes back to the queue: once."""
        if lease.has_left:
            return False
        self._journal.stopped(call.ticket, granted.deployment, lease.stopped or "")
        if call.has_begun or lease.aborted is not None or not call.spared:
            return False
        call.spared -= 1
        return True

    async def _answer_from(self, call: Call, granted: Granted, intake: Intake) -> None:
        headers = call.granted_headers(granted)
        match intake.sink:
            case StreamRelay() as relay:
                await self._relay_stream(call, intake, relay, headers)
            case Assembly() as assembly:
                await self._assemble(call, intake, assembly, headers)
            case Piece() as piece:
                await self._relay_plain(call, intake, piece, headers)

    async def _answer_error(
        self, call: Call, lease: Lease, granted: Granted, exchange: Exchange
    ) -> None:
        headers = call.granted_headers(granted)
        body = await exchange.read_all(ERROR_LIMIT_BYTES)
        if exchange.status == 503 and LOADING_MARK in body:
            raise BackendLoadingError("the backend loads its model")
        if exchange.status >= 500:
            message = error_in(exchange.status, body).get("message")
            self._fleet.probes[granted.deployment].answer_failed(str(message))
        lease.finish(Ending.FAILED, slot_free=True)
        is_ours = exchange.status >= 500
        call.outcome = Outcome.FAILED if is_ours else Outcome.INVALID
        call.reason = str(exchange.status)
        overlong = overlong_prompt(exchange.status, body)
        if overlong is not None:
            call.reason = overlong.code
            await call.end_with(overlong)
        elif call.head_sent:
            await call.end_in_band(event_of_error(call.shape, error_in(exchange.status, body)))
        else:
            await reply_plain(call.request, exchange, headers, body)

    async def _relay_stream(
        self, call: Call, intake: Intake, relay: StreamRelay, headers: Headers
    ) -> None:
        exchange = intake.exchange
        held = b""
        while data := await exchange.read():
            out = held + intake.take(data)
            if not call.has_begun:
                if relay.has_failed_early:
                    break
                if intake.is_stopped or not (out and relay.has_begun):
                    held = out
                    continue
                held = b""
                await self._begin_stream(call, exchange, headers)
            if out:
                call.is_between_frames = relay.is_between_frames
                call.last_sent, call.output_tokens = out, relay.token_frames
                await call.request.send_part(out)
        await self._end_stream(call, exchange, relay, headers, held + intake.rest())

    async def _end_stream(
        self, call: Call, exchange: Exchange, relay: StreamRelay, headers: Headers, rest: bytes
    ) -> None:
        if relay.error is not None:
            call.outcome, call.reason = Outcome.FAILED, "stream_error"
            if relay.has_failed_early and not call.has_begun:
                await self._answer_stream_error(call, relay.error, headers)
                return
        self._journal.used(call.ticket, call.backend, relay.usage())
        self._learn(call, relay.counted)
        if relay.error is None:
            if not relay.has_terminator:
                await self._deliver(call, exchange, relay, headers, rest)
                raise BrokenAnswerError("the backend ended its answer without its terminator")
            call.outcome = Outcome.SERVED
        elif relay.has_untold_error:
            rest += b"" if relay.is_between_frames else FRAME_END
            rest += event_of_error(call.shape, relay.error)
        if not call.has_begun:
            await self._begin_stream(call, exchange, headers)
        await call.request.send_part(rest, is_last=True)

    async def _deliver(
        self, call: Call, exchange: Exchange, relay: StreamRelay, headers: Headers, out: bytes
    ) -> None:
        """Send the last bytes of an answer that broke, if they are worth an answer's head."""
        if not (out and relay.has_begun):
            return
        if not call.has_begun:
            await self._begin_stream(call, exchange, headers)
        call.is_between_frames = relay.is_between_frames
        await call.request.send_part(out)

    async def _begin_stream(self, call: Call, exchange: Exchange, headers: Headers) -> None:
        call.has_begun = True
        call.phase = Phase.DECODE
        self._journal.first_byte(call.ticket, self._clock.now())
        await call.begin(exchange.status, [*headers, *passed_headers(exchange)])

    async def _answer_stream_error(
        self, call: Call, error: dict[str, Any], headers: Headers
    ) -> None:
        if call.head_sent:
            await call.end_in_band(event_of_error(call.shape, error))
            return
        code = error.get("code")
        status = code if isinstance(code, int) and 400 <= code < 600 else 500
        body = msgspec.json.encode({"error": error})
        await call.request.reply(status, [*headers, (b"content-type", JSON)], body)

    async def _assemble(
        self, call: Call, intake: Intake, assembly: Assembly, headers: Headers
    ) -> None:
        await intake.take_all()
        whole = assembly.whole
        assert whole is not None  # noqa: S101 - for the type checker
        self._journal.first_byte(call.ticket, self._clock.now())
        self._count(call, assembly.counted)
        call.outcome = Outcome.SERVED if assembly.is_whole else Outcome.FAILED
        await call.request.reply(whole.status, [*headers, (b"content-type", JSON)], whole.body)

    async def _relay_plain(
        self, call: Call, intake: Intake, piece: Piece, headers: Headers
    ) -> None:
        await intake.take_all()
        if call.head_sent:
            raise BrokenAnswerError("the backend answered a stream in one piece")
        call.outcome = Outcome.SERVED
        self._count(call, piece.counted)
        await reply_plain(call.request, intake.exchange, headers, piece.body)

    def _count(self, call: Call, usage: Usage | None) -> None:
        if usage is not None:
            self._journal.used(call.ticket, call.backend, usage)
            self._learn(call, usage)

    def _learn(self, call: Call, usage: Usage | None) -> None:
        ticket = call.ticket
        if usage is not None and ticket.width == 1:
            size = call.prepared.text_bytes
            self._sizes.learn(ticket.tenant, ticket.model, size, usage.input_tokens)

    # Endings.

    async def _refuse(self, call: Call, refused: Refused) -> None:
        call.outcome, call.reason = outcome_of(refused.reason), refused.reason
        setting = call.deadline_setting if refused.reason in _BY_DEADLINE else None
        await call.end_with(from_refusal(refused, setting=setting))

    async def _fail(self, call: Call, problem: Problem) -> None:
        call.outcome, call.reason = Outcome.FAILED, problem.code
        await call.end_with(problem)

    async def _end_aborted(self, call: Call, lease: Lease) -> None:
        if lease.aborted == CLIENT_LEFT or (lease.aborted is None and lease.stopped is None):
            call.outcome = Outcome.ABANDONED
            return
        if lease.aborted is None and lease.stopped == KV_PRESSURE:
            problem = Problem(KV_PRESSURE, KV_WORDS, KV_RETRY_SECONDS)
            await call.end_stopped(problem)
        elif lease.aborted is None:  # by the watchdog
            await self._fail(call, Problem("backend_timeout", lease.stopped or "", 1.0))
            return
        else:
            problem = Problem(Reason.DRAINING, lease.aborted or "", 1.0)
            await call.end_with(problem)
        call.outcome, call.reason = Outcome.KILLED, problem.code


def _body(call: Call, granted: Granted) -> bytes:
    clamp = granted.output_clamp
    if clamp is None or not lowers(call.shape, call.prepared, clamp):
        return call.prepared.body
    return clamped(call.shape, call.prepared.body, clamp)
