"""One client over real sockets: it asks, reads, loses patience, comes back, and leaves a record.

All times count from when the arrival was due, not from when it could be sent: a generator that is
late would otherwise hide the waits that it has caused itself.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from enum import Enum, auto
from math import inf
from typing import TYPE_CHECKING, Final

from slotgate.errors import BackendError, BrokenAnswerError
from slotgate.load.backoff import ClientKind, Refusal, delay_seconds, read_refusal
from slotgate.load.listening import Listener, error_code
from slotgate.load.record import Outcome, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from slotgate.load.arrival import Arrival
    from slotgate.load.dice import Dice
    from slotgate.net.client import Client, Exchange

_BUSY_STATUSES: Final = (429, 503, 529)
_EXPIRED_REASON: Final = "queue_timeout"
_ERROR_BYTES: Final = 64 << 10


class End(Enum):
    """How one attempt ended, or that it has not."""

    OPEN = auto()
    WHOLE = auto()
    TOLD_NO = auto()  # an error status
    BROKEN = auto()
    LEFT = auto()  # the client closed it


@dataclass(slots=True)
class Attempt:
    """One HTTP request, while it runs and after."""

    began_at: float
    listener: Listener = field(default_factory=Listener)
    end: End = End.OPEN
    status: int = 0
    refusal: Refusal | None = None
    reason: str = ""
    told_at: float | None = None
    waited: float | None = None
    predicted_wait: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Visiting:
    """What all visits share."""

    client: Client
    target: str
    headers: Callable[[str], Sequence[tuple[bytes, bytes]]]  # by tenant
    body: Callable[[Arrival, Dice], bytes]
    kind: ClientKind
    dice: Dice


class Visit:
    """One arrival's attempts.  `record` tells what became of it at any moment."""

    def __init__(self, arrival: Arrival, shared: Visiting, started_at: float) -> None:
        self._arrival = arrival
        self._shared = shared
        self._started_at = started_at
        self._due_at = started_at + arrival.at
        leaves_after = inf if arrival.leaves_after is None else arrival.leaves_after
        self._leaves_at = self._due_at + leaves_after
        self._attempts: list[Attempt] = []

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        body = self._shared.body(self._arrival, self._shared.dice)
        began_at = self._due_at
        while True:
            attempt = Attempt(began_at)
            self._attempts.append(attempt)
            await self._ask(attempt, body)
            delay = self._delay(attempt)
            if delay is None:
                return
            back_at = loop.time() + delay
            await asyncio.sleep(min(back_at, self._leaves_at) - loop.time())
            if back_at >= self._leaves_at:
                attempt.end = End.LEFT
                return
            began_at = back_at

    def _delay(self, attempt: Attempt) -> float | None:
        """How long until the client comes back, None if it does not."""
        if attempt.end not in (End.TOLD_NO, End.BROKEN) or attempt.listener.first_at is not None:
            return None
        refusal = attempt.refusal or Refusal(0)
        return delay_seconds(self._shared.kind, len(self._attempts), refusal, self._shared.dice)

    async def _ask(self, attempt: Attempt, body: bytes) -> None:
        """Make one attempt, and leave when patience or the client's own time is over."""
        arrival, shared = self._arrival, self._shared
        head = [(b"content-type", b"application/json"), *shared.headers(arrival.tenant)]
        exchange = shared.client.exchange("POST", shared.target, head, body)
        patience_ends = min(attempt.began_at + arrival.patience, self._leaves_at)
        until = None if patience_ends == inf else patience_ends
        try:
            async with asyncio.timeout_at(until) as bound:
                await exchange.open()
                self._take_head(attempt, exchange)
                if attempt.status == 200:
                    await self._read(attempt, exchange, bound)
                else:
                    await _read_error(attempt, exchange)
        except TimeoutError:
            attempt.end = End.LEFT
        except BackendError as error:
            if attempt.end is End.OPEN:
                attempt.end = End.BROKEN
                attempt.reason = type(error).__name__
        finally:
            exchange.close()

    def _take_head(self, attempt: Attempt, exchange: Exchange) -> None:
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in exchange.headers
        }
        attempt.status = exchange.status
        attempt.waited = _milliseconds(headers.get("x-slotgate-queue-ms"))
        attempt.predicted_wait = _milliseconds(headers.get("x-slotgate-predicted-wait-ms"))
        if exchange.status != 200:
            attempt.refusal = read_refusal(exchange.status, headers)
            attempt.reason = headers.get("x-slotgate-reason", "")
            attempt.told_at = asyncio.get_running_loop().time()
            attempt.end = End.TOLD_NO

    async def _read(self, attempt: Attempt, exchange: Exchange, bound: asyncio.Timeout) -> None:
        loop, listener, rate = (
            asyncio.get_running_loop(),
            attempt.listener,
            self._arrival.reading_rate,
        )
        while data := await exchange.read():
            listener.feed(data, loop.time())
            if listener.first_at is None:
                continue
            bound.reschedule(None if self._leaves_at == inf else self._leaves_at)
            if rate is not None:
                read_at = listener.first_at + listener.output_tokens / rate
                await asyncio.sleep(read_at - loop.time())
        attempt.end = End.WHOLE if listener.is_finished and not listener.error else End.BROKEN
        attempt.reason = listener.error or ("" if listener.is_finished else "no_end")

    def record(self, now: float) -> Record:
        """What has become of it; who is still there has been cut short."""
        arrival, attempts = self._arrival, self._attempts
        last = attempts[-1] if attempts else Attempt(self._due_at)
        began = self._due_at
        first_at = next((a.listener.first_at for a in attempts if a.listener.first_at), None)
        told = [attempt for attempt in attempts if attempt.status in _BUSY_STATUSES]
        delays = [attempt.refusal.retry_after for attempt in told if attempt.refusal]
        named = [delay for delay in delays if delay is not None]
        return Record(
            arrival=arrival,
            outcome=_outcome(last),
            attempts=max(1, len(attempts)),
            reason=told[-1].reason if told else last.reason,
            ttft=None if first_at is None else first_at - began,
            tpot=last.listener.tpot,
            ended_at=now - self._started_at,
            waited=last.waited,
            predicted_wait=last.predicted_wait,
            input_done=sum(_input_done(attempt, arrival) for attempt in attempts),
            output_done=sum(attempt.listener.output_tokens for attempt in attempts),
            retry_after=named[-1] if named else None,
            refused_after=_seconds(told[0].told_at, told[0].began_at) if told else None,
            last_ttft=_seconds(last.listener.first_at, last.began_at),
        )


async def _read_error(attempt: Attempt, exchange: Exchange) -> None:
    try:
        body = json.loads(await exchange.read_all(_ERROR_BYTES))
    except (ValueError, BrokenAnswerError):
        body = None
    attempt.reason = attempt.reason or error_code(body) or str(attempt.status)


def _outcome(last: Attempt) -> Outcome:
    match last.end:
        case End.WHOLE:
            return Outcome.SERVED
        case End.TOLD_NO if last.reason == _EXPIRED_REASON:
            return Outcome.EXPIRED
        case End.TOLD_NO if last.status in _BUSY_STATUSES:
            return Outcome.REFUSED
        case End.TOLD_NO | End.BROKEN:
            return Outcome.FAILED
        case _:
            return Outcome.ABANDONED


def _input_done(attempt: Attempt, arrival: Arrival) -> int:
    """Once a token has come the prompt has been read; before that nobody outside knows."""
    listener = attempt.listener
    if listener.input_tokens is not None:
        return listener.input_tokens
    return arrival.input_tokens if listener.first_at is not None else 0


def _seconds(end: float | None, start: float) -> float | None:
    return None if end is None else end - start


def _milliseconds(text: str | None) -> float | None:
    try:
        return None if text is None else float(text) / 1000
    except ValueError:
        return None
