"""An answer on its way in: taken in and charged as it comes, settled with its last byte.

Rule: what is charged must be charged before the slot is given back, and the slot is given back in
the loop turn in which the last byte came.  So `complete`, which is called then, does not wait for
whoever reads: it takes in itself what is unread, settles the account, and gives the slot back.  The
reader finds the end of the answer, and asks for the `rest`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from slotgate.core.decision import Ending
from slotgate.errors import ExchangeClosedError
from slotgate.http.replies import is_event_stream
from slotgate.wire.assemble import Assembled, assembler
from slotgate.wire.relay import StreamRelay
from slotgate.wire.resume import ResumableRelay
from slotgate.wire.usage import Usage, usage_of_body

if TYPE_CHECKING:
    from collections.abc import Callable

    from slotgate.net.exchange import Exchange
    from slotgate.runtime.lease import Lease
    from slotgate.runtime.meter import Meter
    from slotgate.wire.request import Prepared
    from slotgate.wire.resume import Written
    from slotgate.wire.routes import Shape

# What a backend may answer in one piece: embeddings, transcriptions.
PLAIN_LIMIT_BYTES = 256 << 20
# So much of a stream is put together at once, some twenty tokens: few wakings, and none of them
# keeps other streams waiting.  The first token is waited for alone, for it ends the prefill.
ASSEMBLED_AT_ONCE_BYTES = 4 << 10


class Sink(Protocol):
    """What an answer is poured into; `StreamRelay` is one.

    `feed` and `finish` return what there is to send on.  `token_frames` is how many tokens have
    come, `counted` what the backend itself has counted.
    """

    @property
    def token_frames(self) -> int: ...
    @property
    def counted(self) -> Usage | None: ...
    @property
    def is_whole(self) -> bool: ...
    def feed(self, data: bytes) -> bytes: ...
    def finish(self) -> bytes: ...


class Assembly:
    """A stream that becomes one answer."""

    def __init__(self, shape: Shape, prepared: Prepared) -> None:
        self._assembler = assembler(shape, prepared)
        self.whole: Assembled | None = None

    @property
    def token_frames(self) -> int:
        return self._assembler.token_frames

    @property
    def counted(self) -> Usage | None:
        return self.whole.usage if self.whole is not None else None

    @property
    def is_whole(self) -> bool:
        return self.whole is not None and self.whole.status < 400

    def feed(self, data: bytes) -> bytes:
        self._assembler.feed(data)
        return b""

    def finish(self) -> bytes:
        self.whole = self._assembler.finish()
        return b""


class Piece:
    """An answer that is not a stream of ours: embeddings, scores, transcriptions."""

    token_frames = 0

    def __init__(self) -> None:
        self.body = b""
        self.counted: Usage | None = None
        self.is_whole = False

    def feed(self, data: bytes) -> bytes:
        self.body += data  # nobody reads before the end, so it is one piece
        return b""

    def finish(self) -> bytes:
        self.counted = usage_of_body(self.body)
        self.is_whole = True
        return b""


class Intake:
    """The answer of one exchange.  Its `complete` is the exchange's `on_complete`.

    `before` is what the client has of it already, from a backend that failed.
    """

    __slots__ = (
        "_before",
        "_fault",
        "_is_settling",
        "_meter",
        "_prepared",
        "_rest",
        "_served",
        "_shape",
        "_sink",
        "exchange",
        "lease",
    )

    exchange: Exchange

    def __init__(
        self,
        shape: Shape,
        prepared: Prepared,
        lease: Lease,
        meter: Meter,
        served: Callable[[], None],
        before: Written | None = None,
    ) -> None:
        self._served = served  # called when the answer has come to its proper end
        self._before = before
        self._shape = shape
        self._prepared = prepared
        self.lease = lease
        self._meter = meter
        self._sink: Sink | None = None
        self._rest = b""
        self._fault: Exception | None = None
        self._is_settling = False

    @property
    def sink(self) -> Sink:
        """What the answer is poured into; known when its head has come."""
        if self._sink is None:
            self._sink = self._fitting_sink()
        return self._sink

    @property
    def is_stopped(self) -> bool:
        """The scheduler wants the slot back, and what has come need not go on its way."""
        return self.lease.stopped is not None and not self.lease.has_left

    def written(self) -> Written | None:
        """Return what its client has of the answer now, to be gone on from; None: it cannot be."""
        if isinstance(self._sink, ResumableRelay):
            return self._sink.written()
        return self._before if self._sink is None else None

    # The reader's.

    def take(self, data: bytes) -> bytes:
        """Take in what was read and return what there is to send on."""
        sink = self._sink or self.sink
        out = sink.feed(data)
        self._meter.saw(sink.token_frames)
        return out

    def rest(self) -> bytes:
        """Return what there is to send after the last byte; raises what was wrong with the end."""
        if self._fault is not None:
            raise self._fault
        return self._rest

    async def take_all(self) -> None:
        """Read and take in everything, for a client that gets one answer."""
        if isinstance(self.sink, Piece):
            await self.exchange.read_all(PLAIN_LIMIT_BYTES)
        else:
            while data := await self.exchange.read(self._enough_bytes()):
                self.take(data)
        self.rest()

    # Endings.

    def complete(self) -> None:
        """Take in the rest, settle, and give the slot back: the backend's last byte is here.

        What failed is left to its reader, if the client has no byte yet, or wants the rest from
        elsewhere: it may be tried again.
        """
        if self.exchange.status >= 400:
            return
        try:
            self._rest = self.sink.feed(self.exchange.read_nowait()) + self.sink.finish()
        except Exception as error:  # the reader's to raise: here it would hit the connection
            self._fault = error
        self._is_settling = True  # nothing that this decides can stop an answer that is here
        self.settle()
        if self._fault is None and self.sink.is_whole:
            self._served()
            self.lease.finish(Ending.SERVED, slot_free=True)
        elif self.lease.is_answered and not self._prepared.may_resume:
            self.give_back()
        self._is_settling = False

    def give_back(self) -> None:
        """Give back the slot of an answer that failed, for good; it is free if the answer is over.

        If not, the exit of the lease leaves it settling.
        """
        if self.exchange.is_complete:
            self.lease.finish(Ending.FAILED, slot_free=True)

    def stop(self) -> None:
        """Close the exchange before its end; what has come is counted."""
        if self._is_settling:
            return
        if self.lease.has_left:
            self._fault = ExchangeClosedError("closed with a part of the answer not sent on")
        elif 0 < self.exchange.status < 400:
            with suppress(Exception):  # nobody gets it any more
                self.sink.feed(self.exchange.read_nowait())
        self.exchange.close()

    def settle(self) -> None:
        """Charge what is not charged yet.  Does nothing the second time."""
        if self._sink is not None:
            self._meter.settle(self._sink.token_frames, self._sink.counted)

    # Private rules.

    def _fitting_sink(self) -> Sink:
        if not (self._prepared.upstream_stream and is_event_stream(self.exchange)):
            return Piece()
        if self._prepared.may_resume:
            return ResumableRelay(self._shape, self._prepared, self._before)
        if self._prepared.wants_stream:
            return StreamRelay(self._shape, self._prepared)
        return Assembly(self._shape, self._prepared)

    def _enough_bytes(self) -> int:
        return ASSEMBLED_AT_ONCE_BYTES if self.sink.token_frames else 1
