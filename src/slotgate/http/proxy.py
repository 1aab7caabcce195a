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

from slotgate.core.decision import Ending, Reason
from slotgate.errors import (
    BackendError,
    BackendLoadingError,
    BackendTimeoutError,
    BrokenAnswerError,
    ExchangeClosedError,
    UnreachableError,
)
from slotgate.http.intake import PLAIN_LIMIT_BYTES, Assembly, Intake, Piece
from slotgate.http.problems import Problem, from_refusal, overlong_prompt
from slotgate.http.replies import (
    JSON,
    answer,
    forwarded_headers,
    passed_headers,
    reply_plain,
)
from slotgate.runtime.driver import RefusedError
from slotgate.runtime.journal import outcome_of
from slotgate.runtime.meter import Meter
from slotgate.telemetry.metrics import Outcome, Phase
from slotgate.wire.errors import event_of_error
from slotgate.wire.relay import StreamRelay

if TYPE_CHECKING:
    from slotgate.backends.llama_server import LlamaServer
    from slotgate.core.clock import Clock
    from slotgate.core.decision import Granted, Refused
    from slotgate.core.ticket import Ticket
    from slotgate.http.replies import Headers
    from slotgate.http.request import Request
    from slotgate.net.exchange import Exchange
    from slotgate.runtime.driver import Driver, Lease
    from slotgate.runtime.fleet import Fleet
    from slotgate.runtime.journal import Journal
    from slotgate.wire.request import Prepared
    from slotgate.wire.routes import Route, Shape
    from slotgate.wire.usage import Usage

# How often a request that failed before its first byte is tried again.
RETRIES = 1
ERROR_LIMIT_BYTES = 1 << 20
# The first byte of an answer that comes in one piece comes when all of it has been generated.
WHOLE_ANSWER_SECONDS = 3600.0

# How every build says that it is not ready: "Loading model", or {"status":"loading model"}.
LOADING_MARK = b"oading model"
CLIENT_LEFT = "the client left"
# What ends a frame that was begun, so that an event of ours can follow.
FRAME_END = b"\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """A failed attempt that may be repeated; `slot_free` says that no slot was taken by it."""

    slot_free: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeCall:
    """A request that takes no slot."""

    request: Request
    shape: Shape | None
    body: bytes


@dataclass(slots=True, kw_only=True)
class Call:
    """What one call carries along.  `deadline_setting` names what set its deadline."""

    request: Request
    route: Route
    shape: Shape
    prepared: Prepared
    ticket: Ticket
    deadline_setting: str
    retries: int = RETRIES
    backend: str = ""
    phase: Phase = Phase.WAITING
    head_sent: bool = False
    is_between_frames: bool = True
    outcome: Outcome = Outcome.FAILED
    reason: str = ""


class Proxy:
    """Carries calls through admission to the backends."""

    def __init__(self, driver: Driver, fleet: Fleet, clock: Clock, journal: Journal) -> None:
        self._driver = driver
        self._fleet = fleet
        self._clock = clock
        self._journal = journal

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
            granted = await lease.wait()
            while (again := await self._attempt(call, lease, granted)) is not None:
                granted = await lease.requeue(slot_free=again.slot_free)
        except RefusedError as error:
            await self._refuse(call, error.decision)
        except ExchangeClosedError:
            await self._end_aborted(call, lease)
        except BackendTimeoutError as error:
            await self._fail(call, Problem("backend_timeout", str(error), 1.0))
        except BackendError as error:
            await self._fail(call, Problem("backend_unreachable", str(error), 1.0))

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
            call.prepared.body,
            single_use=True,
            first_byte=None if call.prepared.upstream_stream else WHOLE_ANSWER_SECONDS,
            on_complete=intake.complete,
        )
        lease.on_abort(intake.stop)
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
        except (UnreachableError, BrokenAnswerError) as error:
            self._fleet.probes[granted.deployment].failed(error, connected=exchange.sent)
            if call.head_sent or lease.has_left or not call.retries:
                raise
            call.retries -= 1
            self._journal.retried(call.ticket, granted.deployment, str(error))
            return Again(slot_free=not exchange.sent or isinstance(error, BackendLoadingError))
        finally:
            exchange.close()
            intake.settle()
        return None

    async def _answer_from(self, call: Call, granted: Granted, intake: Intake) -> None:
        headers = self._response_headers(call, granted)
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
        headers = self._response_headers(call, granted)
        body = await exchange.read_all(ERROR_LIMIT_BYTES)
        if exchange.status == 503 and LOADING_MARK in body:
            raise BackendLoadingError("the backend loads its model")
        lease.finish(Ending.FAILED, slot_free=True)
        is_ours = exchange.status >= 500
        call.outcome = Outcome.FAILED if is_ours else Outcome.INVALID
        call.reason = str(exchange.status)
        overlong = overlong_prompt(exchange.status, body)
        if overlong is None:
            await reply_plain(call.request, exchange, headers, body)
        else:
            call.reason = overlong.code
            await answer(call.request, call.shape, overlong)

    async def _relay_stream(
        self, call: Call, intake: Intake, relay: StreamRelay, headers: Headers
    ) -> None:
        exchange = intake.exchange
        held = b""
        while data := await exchange.read():
            out = held + intake.take(data)
            if not call.head_sent:
                if relay.has_failed_early:
                    break
                if not (out and relay.has_begun):
                    held = out
                    continue
                held = b""
                await self._begin_stream(call, exchange, headers)
            if out:
                call.is_between_frames = relay.is_between_frames
                await call.request.send_part(out)
        await self._end_stream(call, exchange, relay, headers, held + intake.rest())

    async def _end_stream(
        self, call: Call, exchange: Exchange, relay: StreamRelay, headers: Headers, rest: bytes
    ) -> None:
        if relay.error is not None:
            call.outcome, call.reason = Outcome.FAILED, "stream_error"
            if relay.has_failed_early and not call.head_sent:
                await self._answer_stream_error(call, relay.error, headers)
                return
        self._journal.used(call.ticket, call.backend, relay.usage())
        if relay.error is None:
            if not relay.has_terminator:
                await self._deliver(call, exchange, relay, headers, rest)
                raise BrokenAnswerError("the backend ended its answer without its terminator")
            call.outcome = Outcome.SERVED
        elif relay.has_untold_error:
            rest += b"" if relay.is_between_frames else FRAME_END
            rest += event_of_error(call.shape, relay.error)
        if not call.head_sent:
            await self._begin_stream(call, exchange, headers)
        await call.request.send_part(rest, is_last=True)

    async def _deliver(
        self, call: Call, exchange: Exchange, relay: StreamRelay, headers: Headers, out: bytes
    ) -> None:
        """Send the last bytes of an answer that broke, if they are worth an answer's head."""
        if not (out and relay.has_begun):
            return
        if not call.head_sent:
            await self._begin_stream(call, exchange, headers)
        call.is_between_frames = relay.is_between_frames
        await call.request.send_part(out)

    async def _begin_stream(self, call: Call, exchange: Exchange, headers: Headers) -> None:
        call.head_sent = True
        call.phase = Phase.DECODE
        self._journal.first_byte(call.ticket, self._clock.now())
        await call.request.send_head(exchange.status, [*headers, *passed_headers(exchange)])

    async def _answer_stream_error(
        self, call: Call, error: dict[str, Any], headers: Headers
    ) -> None:
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
        call.outcome = Outcome.SERVED
        self._count(call, piece.counted)
        await reply_plain(call.request, intake.exchange, headers, piece.body)

    def _count(self, call: Call, usage: Usage | None) -> None:
        if usage is not None:
            self._journal.used(call.ticket, call.backend, usage)

    # Endings.

    async def _refuse(self, call: Call, refused: Refused) -> None:
        call.outcome, call.reason = outcome_of(refused.reason), refused.reason
        is_late = refused.reason is Reason.QUEUE_TIMEOUT
        problem = from_refusal(refused, setting=call.deadline_setting if is_late else None)
        await answer(call.request, call.shape, problem)

    async def _fail(self, call: Call, problem: Problem) -> None:
        call.outcome, call.reason = Outcome.FAILED, problem.code
        if call.head_sent:
            gap = b"" if call.is_between_frames else FRAME_END
            await call.request.send_part(gap + problem.event(call.shape), is_last=True)
        else:
            await answer(call.request, call.shape, problem)

    async def _end_aborted(self, call: Call, lease: Lease) -> None:
        if lease.aborted is None or lease.aborted == CLIENT_LEFT:
            call.outcome = Outcome.ABANDONED
        else:
            await self._fail(call, Problem(Reason.DRAINING, lease.aborted, 1.0))
            call.outcome = Outcome.KILLED

    def _response_headers(self, call: Call, granted: Granted) -> Headers:
        call.backend = granted.deployment
        return [
            (b"x-request-id", call.request.id.encode()),
            (b"x-slotgate-backend", granted.deployment.encode()),
            (b"x-slotgate-queue-ms", b"%d" % round(granted.waited * 1000)),
        ]
