"""A backend's answer on its way to the client: as a stream, put together, or in one piece.

Until the client has a byte, an error of the backend may be tried elsewhere: then `relay` returns
how to go on, and nothing was sent.  After it, a fault is one event in the route's own shape; or,
where the client has asked for that and it can be exact, the rest is asked for elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from slotgate.errors import BrokenAnswerError
from slotgate.http.call import FRAME_END, Call
from slotgate.http.intake import Assembly, Intake, Piece
from slotgate.http.problems import Problem, overlong_prompt
from slotgate.http.replies import JSON, passed_headers, reply_plain
from slotgate.telemetry.metrics import Outcome, Phase
from slotgate.wire.blame import Blame, blame_of, blame_of_event
from slotgate.wire.errors import error_in, event_of_error
from slotgate.wire.relay import StreamRelay
from slotgate.wire.resume import rest_of

if TYPE_CHECKING:
    from slotgate.core.clock import Clock
    from slotgate.core.ticket import Ticket
    from slotgate.http.replies import Headers
    from slotgate.runtime.failover import Attempt
    from slotgate.runtime.journal import Journal
    from slotgate.runtime.prompt_sizes import PromptSizes
    from slotgate.wire.usage import Usage

ERROR_LIMIT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """A failed attempt that is repeated; `slot_free` says that no slot is taken by it.

    `rest` is the ticket for the rest of an answer that had begun.
    """

    slot_free: bool
    rest: Ticket | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A call on its way through one backend; `headers` say so to the client."""

    call: Call
    attempt: Attempt
    intake: Intake
    headers: Headers


class Answers:
    """Carries answers to clients, and notes what they used."""

    def __init__(self, clock: Clock, journal: Journal, sizes: PromptSizes) -> None:
        self._clock = clock
        self._journal = journal
        self._sizes = sizes

    async def relay(self, way: Passage) -> Again | None:
        """Carry the answer whose head has come to its client; or return how to go on.

        Raises `BackendError` when it breaks.
        """
        if way.intake.exchange.status >= 400:
            return await self._answer_error(way)
        match way.intake.sink:
            case StreamRelay() as relay:
                return await self._relay_stream(way, relay)
            case Assembly() as assembly:
                return await self._assemble(way, assembly)
            case Piece() as piece:
                await self._relay_plain(way, piece)
        return None

    def rest(self, way: Passage, why: str) -> Again | None:
        """Ask for the rest of an answer that broke; None where that is not wished, or cannot be."""
        call, intake = way.call, way.intake
        written = intake.written() if call.has_begun and call.may_resume else None
        prepared = None if written is None else rest_of(call.asked or call.prepared, written)
        lease = way.attempt.lease
        if written is None or prepared is None or lease.has_left or not way.attempt.may_resume():
            return None
        call.resumptions -= 1
        call.asked = call.asked or call.prepared
        call.prepared, call.written = prepared, written
        lease.is_answered = False
        self._journal.resumed(call.ticket, way.attempt.backend, why, tokens=written.tokens)
        rest = replace(
            call.ticket,
            deadline=self._clock.now() + call.ticket.deadline - call.ticket.arrival,
            input_tokens=call.ticket.input_tokens + written.tokens,
            output_tokens=prepared.output_tokens,
        )
        return Again(slot_free=not intake.exchange.sent or intake.exchange.is_complete, rest=rest)

    def note_broken(self, way: Passage) -> None:
        """Note what a stream has used that broke, and of which nothing more comes."""
        if way.call.has_begun and isinstance(way.intake.sink, StreamRelay):
            self._note_usage(way.call, way.intake.sink)

    # Errors.

    async def _answer_error(self, way: Passage) -> Again | None:
        call, exchange = way.call, way.intake.exchange
        body = await exchange.read_all(ERROR_LIMIT_BYTES)
        if exchange.status >= 500:
            way.attempt.probe.saw_error(body)
        blame = blame_of(exchange.status, body, call.shape)
        if way.attempt.answered_badly(blame, f"it answered {exchange.status}"):
            return Again(slot_free=True)
        way.intake.give_back()
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
            await reply_plain(call.request, exchange, way.headers, body)
        return None

    async def _answer_stream_error(self, way: Passage, error: dict[str, Any]) -> None:
        call = way.call
        if call.head_sent:
            await call.end_in_band(event_of_error(call.shape, error))
            return
        code = error.get("code")
        status = code if isinstance(code, int) and 400 <= code < 600 else 500
        body = msgspec.json.encode({"error": error})
        await call.request.reply(status, [*way.headers, (b"content-type", JSON)], body)

    # Streams.

    async def _relay_stream(self, way: Passage, relay: StreamRelay) -> Again | None:
        call, intake = way.call, way.intake
        held = b""
        while data := await intake.exchange.read():
            out = held + intake.take(data)
            if not call.has_begun:
                if relay.has_failed_early:
                    break
                if intake.is_stopped or not (out and relay.has_begun):
                    held = out
                    continue
                held = b""
                await self._begin_stream(way)
            if out:
                way.attempt.lease.is_answered = True
                call.is_between_frames = relay.is_between_frames
                call.last_sent, call.output_tokens = out, relay.token_frames
                await call.request.send_part(out)
        rest = held + intake.rest()
        if relay.error is not None:
            return await self._end_failed_stream(way, relay, relay.error, rest)
        if not relay.has_terminator:
            await self._deliver(way, relay, rest)
            raise BrokenAnswerError("the backend ended its answer without its terminator")
        call.outcome = Outcome.SERVED
        await self._send_rest(way, relay, rest)
        return None

    async def _end_failed_stream(
        self, way: Passage, relay: StreamRelay, error: dict[str, Any], rest: bytes
    ) -> Again | None:
        call = way.call
        call.outcome, call.reason = Outcome.FAILED, "stream_error"
        blame = blame_of_event(error, call.shape)
        why = f"an error in its answer: {error.get('message', '')}"
        way.attempt.probe.saw_error(why.encode())
        is_early = relay.has_failed_early and not call.has_begun
        if is_early and way.attempt.answered_badly(blame, why):
            return Again(slot_free=way.intake.exchange.is_complete)
        if is_early:
            way.intake.give_back()
            await self._answer_stream_error(way, error)
            return None
        way.attempt.broke(blame, why)
        if call.may_resume and blame is not Blame.REQUEST:
            await self._deliver(way, relay, rest)
            rest = b""
            if (again := self.rest(way, why)) is not None:
                return again
        way.intake.give_back()
        if relay.has_untold_error:
            rest += b"" if relay.is_between_frames else FRAME_END
            rest += event_of_error(call.shape, error)
        await self._send_rest(way, relay, rest)
        return None

    async def _send_rest(self, way: Passage, relay: StreamRelay, rest: bytes) -> None:
        self._note_usage(way.call, relay)
        if not way.call.has_begun:
            await self._begin_stream(way)
        await way.call.request.send_part(rest, is_last=True)

    async def _deliver(self, way: Passage, relay: StreamRelay, out: bytes) -> None:
        """Send the last bytes of an answer that broke, if they are worth an answer's head."""
        call = way.call
        if not (out and relay.has_started):
            return
        if not call.has_begun:
            await self._begin_stream(way)
        call.is_between_frames = relay.is_between_frames
        await call.request.send_part(out)

    async def _begin_stream(self, way: Passage) -> None:
        call, exchange = way.call, way.intake.exchange
        call.has_begun = way.attempt.lease.is_answered = True
        call.phase = Phase.DECODE
        self._journal.first_byte(call.ticket, self._clock.now())
        await call.begin(exchange.status, [*way.headers, *passed_headers(exchange)])

    # Whole answers.

    async def _assemble(self, way: Passage, assembly: Assembly) -> Again | None:
        call = way.call
        await way.intake.take_all()
        whole = assembly.whole
        assert whole is not None  # noqa: S101 - for the type checker
        if not assembly.is_whole:
            blame = blame_of(whole.status, whole.body, call.shape)
            if way.attempt.answered_badly(blame, f"it answered {whole.status} in a stream"):
                return Again(slot_free=True)
            way.intake.give_back()
        self._journal.first_byte(call.ticket, self._clock.now())
        self._count(call, assembly.counted)
        call.outcome = Outcome.SERVED if assembly.is_whole else Outcome.FAILED
        await call.request.reply(whole.status, [*way.headers, (b"content-type", JSON)], whole.body)
        return None

    async def _relay_plain(self, way: Passage, piece: Piece) -> None:
        call = way.call
        await way.intake.take_all()
        if call.head_sent:
            words = "the backend answered a stream in one piece"
            await call.fail_with(Problem("backend_unreachable", words, 1.0))
            return
        call.outcome = Outcome.SERVED
        self._count(call, piece.counted)
        await reply_plain(call.request, way.intake.exchange, way.headers, piece.body)

    # What they used.

    def _note_usage(self, call: Call, relay: StreamRelay) -> None:
        self._journal.used(call.ticket, call.backend, relay.usage())
        self._learn(call, relay.counted)

    def _count(self, call: Call, usage: Usage | None) -> None:
        if usage is not None:
            self._journal.used(call.ticket, call.backend, usage)
            self._learn(call, usage)

    def _learn(self, call: Call, usage: Usage | None) -> None:
        ticket = call.ticket
        if usage is not None and ticket.width == 1 and call.written is None:
            size = call.prepared.text_bytes
            self._sizes.learn(ticket.tenant, ticket.model, size, usage.input_tokens)
