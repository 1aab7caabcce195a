"""The requests in the simulated server, and how its events become bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from slotgate.slotsim import (
    Cancelled,
    Failed,
    Finished,
    Generated,
    Job,
    Pinged,
    Progressed,
    Started,
    Stop,
    Work,
)
from slotgate.slotsim import Fault as SimFault
from slotgate.stub.ask import WITHOUT_STREAM
from slotgate.stub.connection import Answer
from slotgate.stub.options import FaultKind
from slotgate.stub.record import Outcome
from slotgate.stub.replies import make_reply
from slotgate.stub.shapes import Shape
from slotgate.stub.status import error_body

if TYPE_CHECKING:
    from collections.abc import Callable

    from slotgate.slotsim import Event
    from slotgate.stub.ask import Ask
    from slotgate.stub.connection import Exchange
    from slotgate.stub.faults import Faults
    from slotgate.stub.options import StubOptions
    from slotgate.stub.record import Observed, RequestRecord
    from slotgate.stub.reply import Reply

POOL_MESSAGE = "Context size has been exceeded."
COMPUTE_MESSAGE = "Compute error."


@dataclass(slots=True)
class Pending:
    """A request whose answer is not complete."""

    ask: Ask
    exchange: Exchange
    record: RequestRecord
    reply: Reply | None
    is_to_fail: bool
    results: list[Finished] = field(default_factory=list)


class Jobs:
    """Turns asks into jobs of the simulation, and its events into answers.

    `give_up` is called for a job whose answer the stub itself breaks off, `exits` when the whole
    server is to go down.
    """

    def __init__(
        self,
        options: StubOptions,
        faults: Faults,
        observed: Observed,
        *,
        give_up: Callable[[int], None],
        exits: Callable[[], None],
    ) -> None:
        self._options = options
        self._faults = faults
        self._observed = observed
        self._give_up = give_up
        self._exits = exits
        self._pending: dict[int, Pending] = {}
        self._numbers: dict[Exchange, int] = {}
        # Of those that left, until the simulation has let them go.
        self._left: dict[int, RequestRecord] = {}

    def add(self, ask: Ask, exchange: Exchange, record: RequestRecord, *, created: int) -> Job:
        """Take the request in; return what the simulation is to be given."""
        number = record.number
        reply = None
        if ask.shape not in WITHOUT_STREAM:
            reply = make_reply(
                ask, id=f"chatcmpl-{number:032d}", model=self._options.model, created=created
            )
        job = _make_job(ask, number, self._options)
        bound, stop = job.output_bound
        if reply is not None and stop is Stop.EOS:
            reply.end_text_at(bound)
        self._pending[number] = Pending(ask, exchange, record, reply, self._faults.next_fails())
        self._numbers[exchange] = number
        return job

    def find(self, exchange: Exchange) -> int | None:
        return self._numbers.get(exchange)

    def abandon(self, number: int, now: float) -> None:
        """The client left."""
        pending = self._pending[number]
        self._left[number] = pending.record
        self._close(pending, Outcome.ABANDONED, now)

    def carry_out(self, event: Event, now: float) -> None:
        """Write what the event says."""
        number = event.job
        if not isinstance(number, int):
            raise TypeError("the stub numbers its jobs")
        if isinstance(event, Cancelled):
            if (record := self._left.pop(number, None)) is not None:
                self._observed.cancel(record, now)
            return
        pending = self._pending.get(number)
        if pending is None:
            if isinstance(event, Finished) and event.is_last:
                self._left.pop(number, None)
            return
        if pending.is_to_fail and not isinstance(event, Failed):
            self._refuse(pending, now)
        else:
            self._dispatch(pending, event, now)

    def _dispatch(self, pending: Pending, event: Event, now: float) -> None:
        record = pending.record
        record.started_at = record.started_at or now
        match event:
            case Finished():
                self._finish(pending, event, now)
            case Failed():
                self._fail(pending, event, now)
            case Generated():
                self._write_tokens(pending, event, now)
            case Started():
                pending.exchange.open_stream()
                pending.exchange.write(_reply(pending).started(event))
                record.status = 200
            case Progressed():
                pending.exchange.open_stream()
                pending.exchange.write(_reply(pending).progressed(event))
                record.status = 200
            case Pinged():
                pending.exchange.write(b":\n\n")
            case Cancelled():
                pass

    # Streams.

    def _write_tokens(self, pending: Pending, event: Generated, now: float) -> None:
        record = pending.record
        if record.first_token_at is None:
            record.first_token_at = now
        strike, tokens = self._next_strike(pending, event)
        record.output_tokens += tokens
        if tokens:
            allowed = Generated(
                event.at, event.job, event.index, tokens, event.total - event.count + tokens
            )
            pending.exchange.write(_reply(pending).generated(allowed))
        if strike is not None:
            self._strike(strike, pending, now)

    def _next_strike(self, pending: Pending, event: Generated) -> tuple[FaultKind | None, int]:
        """Which fault strikes within these tokens, and how many of them come before."""
        for kind in (FaultKind.ERROR_IN_STREAM, FaultKind.DIES, FaultKind.EXITS):
            after = self._faults.tokens(kind)
            if after is not None and pending.record.output_tokens + event.count >= after:
                return kind, max(0, after - pending.record.output_tokens)
        return None, event.count

    def _strike(self, kind: FaultKind, pending: Pending, now: float) -> None:
        if kind is FaultKind.EXITS:
            self._exits()
            return
        if kind is FaultKind.DIES:
            pending.exchange.reset()
        elif pending.exchange.is_streaming:
            error = {"code": 500, "message": POOL_MESSAGE, "type": "server_error"}
            pending.exchange.end_stream(_reply(pending).failed(error))
        else:
            pending.exchange.answer(Answer(500, error_body(500, "server_error", POOL_MESSAGE)))
        self._close(pending, Outcome.BROKEN, now)
        self._give_up(pending.record.number)

    # Ends.

    def _finish(self, pending: Pending, event: Finished, now: float) -> None:
        pending.results.append(event)
        if pending.ask.stream:
            pending.exchange.open_stream()
            pending.exchange.write(_reply(pending).finished(event))
            if event.is_last:
                pending.exchange.end_stream(_reply(pending).terminator)
        elif event.is_last:
            if (strike := self._strike_at_end(pending)) is not None:
                self._strike(strike, pending, now)
                return
            pending.results.sort(key=lambda result: result.index)
            pending.exchange.answer(Answer(200, self._body(pending)))
        if event.is_last:
            pending.record.status = 200
            self._close(pending, Outcome.COMPLETED, now)

    def _strike_at_end(self, pending: Pending) -> FaultKind | None:
        """A fault that would have struck while an answer was written that is sent as a whole."""
        written = sum(event.result.output_tokens for event in pending.results)
        pending.record.output_tokens = written
        for kind in (FaultKind.ERROR_IN_STREAM, FaultKind.DIES, FaultKind.EXITS):
            after = self._faults.tokens(kind)
            if after is not None and written >= after:
                return kind
        return None

    def _body(self, pending: Pending) -> bytes:
        if pending.reply is not None:
            return pending.reply.body(pending.results)
        return msgspec.json.encode(_SCORES[pending.ask.shape](pending, self._options.model))

    def _fail(self, pending: Pending, event: Failed, now: float) -> None:
        error, status = self._error(event)
        pending.record.status = pending.record.status or status
        if event.is_first:
            pending.exchange.answer(Answer(status, msgspec.json.encode({"error": error})))
        else:
            pending.exchange.end_stream(_reply(pending).failed(error))
        self._close(pending, Outcome.COMPLETED, now)

    def _error(self, event: Failed) -> tuple[dict[str, Any], int]:
        tokens, ctx = event.prompt_tokens, self._options.ctx
        match event.fault:
            case SimFault.EXCEEDS_CONTEXT:
                return {
                    "code": 400,
                    "message": f"request ({tokens} tokens) exceeds the available context size "
                    f"({ctx} tokens), try increasing it",
                    "type": "exceed_context_size_error",
                    "n_prompt_tokens": tokens,
                    "n_ctx": ctx,
                }, 400
            case SimFault.EXCEEDS_BATCH:
                message = (
                    f"input ({tokens} tokens) is too large to process. increase the physical "
                    f"batch size (current batch size: {self._options.batch})"
                )
            case SimFault.POOL_EXHAUSTED:
                message = POOL_MESSAGE
        return {"code": 500, "message": message, "type": "server_error"}, 500

    def _refuse(self, pending: Pending, now: float) -> None:
        pending.record.status = 500
        pending.exchange.answer(Answer(500, error_body(500, "server_error", COMPUTE_MESSAGE)))
        self._close(pending, Outcome.COMPLETED, now)
        self._give_up(pending.record.number)

    def _close(self, pending: Pending, outcome: Outcome, now: float) -> None:
        self._pending.pop(pending.record.number, None)
        self._numbers.pop(pending.exchange, None)
        self._observed.end(pending.record, outcome, now)


def _reply(pending: Pending) -> Reply:
    if pending.reply is None:
        raise TypeError(f"{pending.ask.shape} has no stream")
    return pending.reply


def _make_job(ask: Ask, number: int, options: StubOptions) -> Job:
    is_text = ask.shape not in WITHOUT_STREAM
    return Job(
        id=number,
        prompts=ask.prompts,
        work=Work.GENERATE if is_text else Work.EMBED,
        stream=ask.stream,
        max_tokens=ask.max_tokens,
        natural_tokens=options.output_tokens,
        n=ask.n,
        progress=ask.progress,
        ping_interval=ask.ping_interval,
        slot=ask.slot,
        uses_cache=ask.uses_cache,
    )


# What embeds or scores: numbers that depend on the input's length only.


def _vector(event: Finished) -> list[float]:
    length = event.result.prompt_tokens
    return [1.0 / (length + place + 1) for place in range(4)]


def _prompt_tokens(pending: Pending) -> int:
    return sum(event.result.prompt_tokens for event in pending.results)


def _embeddings(pending: Pending, model: str) -> object:
    return [{"index": e.index, "embedding": [_vector(e)]} for e in pending.results]


def _openai_embeddings(pending: Pending, model: str) -> object:
    tokens = _prompt_tokens(pending)
    return {
        "model": model,
        "object": "list",
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        "data": [
            {"embedding": _vector(e), "index": e.index, "object": "embedding"}
            for e in pending.results
        ],
    }


def _scores(pending: Pending, model: str) -> object:
    tokens = _prompt_tokens(pending)
    return {
        "model": model,
        "object": "list",
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        "results": [
            {"index": e.index, "relevance_score": 1.0 / (e.result.prompt_tokens + 1)}
            for e in pending.results
        ],
    }


_SCORES: dict[Shape, Callable[[Pending, str], object]] = {
    Shape.EMBEDDING: _embeddings,
    Shape.OPENAI_EMBEDDING: _openai_embeddings,
    Shape.RERANK: _scores,
}
