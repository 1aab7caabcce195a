"""One request and its answer; its life is in `phase`.

Rule 1: whatever happens is state at once; a waiting coroutine is merely woken and looks again.
        So there is no moment at which a cancellation could lose something.
Rule 2: the connection is given back in the loop turn in which the answer's last byte arrives,
        not when somebody has read it.
Rule 3: leaving is synchronous, and `_end` is the one way out: it drops timer and connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from slotgate.errors import (
    BackendError,
    BackendTimeoutError,
    BrokenAnswerError,
    ExchangeClosedError,
    UnreachableError,
)
from slotgate.net.answer import Answer
from slotgate.net.causes import plain_words
from slotgate.net.connection import Connection
from slotgate.net.interruption import Interruption
from slotgate.net.phase import (
    CLOSED,
    COMPLETE,
    CONNECTING,
    FAILED,
    MISSING,
    NEW,
    OVER,
    STALE,
    STREAMING,
    WAITING,
    Failure,
    Phase,
)
from slotgate.net.pool import Pool, idle_seconds
from slotgate.net.request import Request
from slotgate.net.silence import Silence

if TYPE_CHECKING:
    from slotgate.net.client import Client


class Exchange:
    """One request and its answer.  Made by `Client.exchange`; used by one coroutine at a time.

    Who opens it must close it, however it ends; it is a context manager for that.  `close` may be
    called by anybody at any moment.  Cancelling `open` closes it; cancelling `read` loses nothing,
    and reading may go on.
    """

    __slots__ = (
        "_answer",
        "_at_least",
        "_client",
        "_connecting",
        "_connection",
        "_failure",
        "_first_byte",
        "_is_reused",
        "_loop",
        "_on_complete",
        "_phase",
        "_pool",
        "_request",
        "_silence",
        "_waiter",
        "sent",
    )

    def __init__(
        self,
        client: Client,
        request: Request,
        *,
        pool: Pool | None,
        on_complete: Callable[[], None] | None,
        first_byte: float,
    ) -> None:
        self._client = client
        self._request = request
        self._pool = pool
        self._on_complete = on_complete
        self._first_byte = first_byte
        # Whether bytes of the request have left us.
        self.sent = False
        self._phase = NEW
        self._answer = Answer(is_head=request.is_head)
        self._failure: Failure | None = None
        # How many unread bytes wake who reads; 0 wakes who waits for the head.
        self._at_least = 0
        self._connection: Connection | None = None
        self._connecting: Interruption | None = None
        self._is_reused = False
        self._waiter: asyncio.Future[None] | None = None
        # Held while reading is paused: the silence is ours then.
        self._silence = Silence()

    # What its user does.

    async def open(self) -> None:
        """Connect, send the request and wait for the answer's head.

        UnreachableError: no connection, or it was lost before a byte of the answer came.
        BackendTimeoutError: the connection or the head took too long.
        BrokenAnswerError: the head is malformed, too large, or cut short.
        ExchangeClosedError: `close` was called.
        """
        if self._phase is CLOSED:
            raise self._error()
        if self._phase is not NEW:
            raise RuntimeError("an exchange is opened once")
        self._loop = asyncio.get_running_loop()
        try:
            await self._open()
        except BaseException:
            self.close()
            raise

    async def read(self, at_least: int = 1) -> bytes:
        """Return the bytes of the body that have come, or wait for some; b"" at its proper end.

        `at_least` so many bytes are waited for, unless the end comes first: who needs the whole
        is not woken for each token.
        BrokenAnswerError: the answer was cut short or is malformed.  BackendTimeoutError: nothing
        came for too long.  Both are raised after what had come before.  ExchangeClosedError:
        `close` was called.
        """
        answer = self._answer
        self._at_least = at_least
        while answer.unread_bytes < at_least and self._phase is STREAMING:
            if self._silence.is_held:
                self._resume()
            await self._wait()
        if not answer.pieces:
            if self._phase is COMPLETE:
                return b""
            raise self._error()
        data = answer.take()
        if self._silence.is_held:
            self._resume()
        return data

    def read_nowait(self) -> bytes:
        """Return what has come and is unread; for `on_complete`, who goes before the reader."""
        return self._answer.take()

    async def read_all(self, limit_bytes: int) -> bytes:
        """Return the rest of the body; BrokenAnswerError if it is larger than the limit."""
        body = await self.read(limit_bytes + 1)
        if len(body) > limit_bytes:
            self.close()
            raise BrokenAnswerError(
                f"the answer of {self._client.name} is larger than {limit_bytes} bytes"
            )
        if self._phase is not COMPLETE:
            raise self._error()
        return body

    def close(self) -> None:
        """End it now.  Who waits in `open` or `read` gets ExchangeClosedError."""
        is_read = self._phase is COMPLETE and not self._answer.pieces
        if self._phase in (FAILED, CLOSED) or is_read:
            return
        self._end(CLOSED, Failure(ExchangeClosedError, "the exchange was closed"))
        self._answer.pieces.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # Questions.

    @property
    def status(self) -> int:
        """The answer's status; 0 before its head has come."""
        return self._answer.status

    @property
    def reason(self) -> bytes:
        return self._answer.reason

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """The answer's headers, names in lower case, in the order in which they came."""
        return self._answer.headers

    @property
    def is_complete(self) -> bool:
        """Whether the answer's last byte has arrived, read or not."""
        return self._answer.is_complete

    @property
    def is_held(self) -> bool:
        """Whether more has come than its reader waits for, so that the quiet is its own."""
        return self._answer.unread_bytes >= max(1, self._at_least)

    @property
    def bytes_received(self) -> int:
        """How many bytes of the answer have arrived, the head included."""
        return self._answer.received_bytes

    # What the connection tells it.

    def on_connected(self) -> None:
        # Not left to `open`, which learns of it one turn of the loop later.
        if self._connection is not None:
            self._send(self._connection)

    def on_data(self, data: bytes) -> None:
        answer = self._answer
        answer.feed(data)
        if answer.is_complete:
            self._complete()
        elif answer.fault is not None:
            self._break(answer.fault)
        elif answer.has_head:
            now = self._loop.time()
            self._silence.last_seconds = self._client.heard_at = now
            if self._phase is not STREAMING:
                self._begin_streaming()
            if answer.unread_bytes < self._at_least:
                return
            if answer.unread_bytes > self._client.high_water_bytes:
                self._pause()
            waiter = self._waiter  # as in _wake: this is the hot path
            if waiter is not None and not waiter.done():
                waiter.set_result(None)

    def on_lost(self, error: Exception | None) -> None:
        self._connection = None
        if not self._answer.received_bytes:
            self._lose(error)
            return
        if error is None:
            self._answer.end()
        if self._answer.is_complete:
            self._complete()
        else:
            self._break(self._answer.fault or f"the connection was lost: {plain_words(error)}")

    def on_writable(self) -> None:
        self._silence.last_seconds = self._loop.time()

    # Opening.

    async def _open(self) -> None:
        connection = self._pool.take(self._loop.time()) if self._pool is not None else None
        if connection is not None:
            self._is_reused = True
            self._connection = connection
            self._send(connection)
            await self._wait_for_head()
        if connection is None or self._phase is STALE:
            self._is_reused = False
            await self._connect()
            await self._wait_for_head()
        # A failure after the head is for `read`, which first gives what had come before it.
        if self._phase is CLOSED or (self._phase is FAILED and not self._answer.has_head):
            raise self._error()

    async def _connect(self) -> None:
        self._phase = CONNECTING
        connection = self._connection = Connection(self)
        self._watch(self._client.timeouts.connect)
        try:
            with Interruption() as self._connecting:
                await self._client.connect(connection)
        except OSError as error:
            self._fail(UnreachableError, f"no connection: {plain_words(error)}", error)
        except BaseException:
            connection.abort()
            raise
        finally:
            self._connecting = None
        if self._answer.is_complete:
            self._give_back(connection)

    def _send(self, connection: Connection) -> None:
        self._phase = WAITING
        self._watch(self._first_byte)
        self.sent = True
        connection.carry(self, self._request.head, self._request.body)

    async def _wait_for_head(self) -> None:
        while self._phase is WAITING:
            await self._wait()

    def _begin_streaming(self) -> None:
        self._phase = STREAMING
        self._watch(self._client.timeouts.idle)
        if self._answer.status >= 300 and self._connection is not None:
            self._connection.stop_upload()

    # Ending.

    def _complete(self) -> None:
        """The last byte is here: tell who wants to know, then the reader; pass the connection on.

        In this order, because the first to be told starts the next request on a slot that is idle
        now, and this answer's reader has time.
        """
        connection, self._connection = self._connection, None
        on_complete, self._on_complete = self._on_complete, None
        if on_complete is not None:
            on_complete()
        if self._phase not in OVER:  # who was told may have closed it
            self._end(COMPLETE, None)
        if connection is not None:
            connection.let_go()
            # A fast answer comes before the loop has told `open` that the connection stands.  Until
            # then a cancellation closes the transport, and uvloop does it without a word: such a
            # connection is not for others yet.
            if self._connecting is None:
                self._give_back(connection)

    def _give_back(self, connection: Connection) -> None:
        if not connection.let_go() or self._pool is None or not self._answer.keeps_alive:
            connection.abort()
            return
        if self._silence.is_held:  # a transport may still deliver what it had when it was paused
            connection.resume()
        answer = self._answer
        seconds = idle_seconds(answer.status, answer.headers, connection.uses)
        self._pool.put(connection, seconds, loop=self._loop)

    def _lose(self, error: Exception | None) -> None:
        """The connection is gone, and not one byte has come."""
        if self._is_reused:
            self._silence.stop()
            self._phase = STALE
            self._wake()
            return
        cause = plain_words(error) if error is not None else "the backend closed it"
        self._fail(UnreachableError, f"connection lost before an answer: {cause}", error)

    def _break(self, what: str) -> None:
        self._fail(BrokenAnswerError, f"broken answer: {what}")

    def _fail(
        self, kind: type[BackendError], message: str, cause: BaseException | None = None
    ) -> None:
        if cause is not None:
            cause.__traceback__ = None  # its frames hold this exchange
        if self._phase not in OVER:
            self._end(FAILED, Failure(kind, f"{self._client.name}: {message}", cause))

    def _end(self, phase: Phase, failure: Failure | None) -> None:
        """Leave by the one way out."""
        self._phase = phase
        self._failure = failure
        self._on_complete = None
        self._request = _SPENT
        self._silence.stop()
        self._answer.drop_parser()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()
        if self._connecting is not None and not self._answer.is_complete:
            self._connecting.interrupt()
        self._wake()

    def _error(self) -> Exception:
        if self._failure is None:
            return RuntimeError("the exchange is not open")
        return self._failure.error()

    # Waiting.

    async def _wait(self) -> None:
        if self._waiter is not None:
            raise RuntimeError("another coroutine is waiting for this exchange")
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _pause(self) -> None:
        if self._connection is not None and not self._silence.is_held:
            self._silence.hold()
            self._connection.pause()

    def _resume(self) -> None:
        self._silence.release()
        if self._connection is not None:
            self._connection.resume()

    def _watch(self, limit_seconds: float) -> None:
        self._silence.watch(self._loop, limit_seconds, self._on_silence)

    def _on_silence(self) -> None:
        message = f"{MISSING[self._phase]} within {self._silence.limit_seconds:g} s"
        self._fail(BackendTimeoutError, message)


_SPENT = Request(b"", b"", is_head=False)
