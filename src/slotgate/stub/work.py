"""Takes in requests for slots: understood, refused, or swallowed in silence."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from slotgate.stub.answers import failure, unsupported
from slotgate.stub.ask import WITHOUT_STREAM, AskError, read_ask
from slotgate.stub.clockwork import Clockwork
from slotgate.stub.connection import Answer
from slotgate.stub.jobs import COMPUTE_MESSAGE, Jobs
from slotgate.stub.options import FaultKind
from slotgate.stub.record import Observed, Outcome, RequestRecord
from slotgate.stub.shapes import Shape

if TYPE_CHECKING:
    from collections.abc import Callable

    from slotgate.slotsim import Event
    from slotgate.stub.connection import Exchange, Request
    from slotgate.stub.faults import Faults
    from slotgate.stub.options import StubOptions


class Work:
    """All requests for slots, and the simulated server that does them."""

    def __init__(self, options: StubOptions, faults: Faults, *, exits: Callable[[], None]) -> None:
        self.observed = Observed()
        self.clockwork = Clockwork(
            options.server_spec(),
            speed=options.speed,
            carry_out=self._carry_out,
            turned=self._observe,
        )
        self._options = options
        self._faults = faults
        self._loop = asyncio.get_running_loop()
        self._jobs = Jobs(options, faults, self.observed, give_up=self._give_up, exits=exits)
        # Requests that a silent server has read and does not answer.
        self._swallowed: dict[Exchange, tuple[Shape, RequestRecord]] = {}

    def take(self, shape: Shape, request: Request, exchange: Exchange) -> None:
        record = RequestRecord(
            number=self.observed.requests + 1,
            path=request.path,
            headers=request.headers,
            body=request.body,
            arrived_at=self._loop.time(),
        )
        self.observed.add(record)
        if FaultKind.SILENT in self._faults:
            self._swallowed[exchange] = shape, record
        else:
            self._begin(shape, record, exchange)

    def left(self, exchange: Exchange) -> None:
        """The client of this exchange left."""
        now = self._loop.time()
        if (swallowed := self._swallowed.pop(exchange, None)) is not None:
            self.observed.end(swallowed[1], Outcome.ABANDONED, now)
        elif (number := self._jobs.find(exchange)) is not None:
            self._jobs.abandon(number, now)
            self._give_up(number)

    def apply_faults(self) -> None:
        """Make the simulation as the faults now say."""
        simulation, now = self.clockwork.simulation, self.clockwork.now()
        simulation.wedge_after(self._faults.tokens(FaultKind.WEDGE), now)
        simulation.slow_down(self._faults.argument(FaultKind.SLOW) or 1.0, now)
        simulation.keep_cancelled(keeps=FaultKind.ZOMBIE in self._faults)
        if FaultKind.SILENT not in self._faults:
            swallowed, self._swallowed = self._swallowed, {}
            for exchange, (shape, record) in swallowed.items():
                self._begin(shape, record, exchange)
        self.clockwork.turn()

    def _observe(self) -> None:
        self.observed.deferred = self.clockwork.simulation.deferred
        self.observed.max_deferred = self.clockwork.simulation.max_deferred

    def _begin(self, shape: Shape, record: RequestRecord, exchange: Exchange) -> None:
        refusal = self._refusal(shape)
        if refusal is None:
            try:
                ask = read_ask(
                    shape,
                    record.body,
                    slots=self._options.slots,
                    ping_interval=self._options.ping_interval,
                )
            except AskError as error:
                refusal = failure(error.status, error.type, str(error))
        if refusal is not None:
            record.status = refusal.status
            exchange.answer(refusal)
            self.observed.end(record, Outcome.COMPLETED, self._loop.time())
            return
        job = self._jobs.add(ask, exchange, record, created=unix_time())
        self.clockwork.simulation.submit(job, self.clockwork.now())
        self.clockwork.turn()

    def _refusal(self, shape: Shape) -> Answer | None:
        if FaultKind.FAST500 in self._faults:
            return failure(500, "server_error", COMPUTE_MESSAGE)
        if FaultKind.FAST503 in self._faults:
            return Answer(503, b"no healthy upstream", "text/plain")
        if shape in WITHOUT_STREAM:
            is_rerank = shape is Shape.RERANK
            if is_rerank and not self._options.reranking:
                return unsupported("reranking", "--reranking")
            if not is_rerank and not self._options.embeddings:
                return unsupported("embeddings", "--embeddings")
        return None

    def _give_up(self, number: int) -> None:
        """Let the simulation see that a client is gone."""
        self.clockwork.simulation.disconnect(number, self.clockwork.now())
        self.clockwork.turn()

    def _carry_out(self, event: Event) -> None:
        self._jobs.carry_out(event, self._loop.time())


def unix_time() -> int:
    return int(datetime.now(UTC).timestamp())
