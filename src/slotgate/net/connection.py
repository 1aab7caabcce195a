"""One connection to a backend: bytes out with respect for back-pressure, bytes in to its owner.

Life: made -> carries an exchange -> idle in the pool -> carries another ... -> closed.
The owner is the exchange that is being carried.  Bytes that arrive while there is none are
nobody's answer, so the connection is closed.
"""

from __future__ import annotations

import asyncio
import os
from typing import Protocol, cast

from typing_extensions import override

# A body up to this size leaves together with its head, in one system call.
_ONE_WRITE_BYTES = 64 * 1024
# A larger one is handed to the transport piece by piece, so that at most about one piece is copied.
_SLICE_BYTES = 128 * 1024
_SALVAGE_BYTES = 64 * 1024


class Owner(Protocol):
    """Who is told what happens on a connection."""

    def on_connected(self) -> None:
        """The connection stands, TLS included."""

    def on_data(self, data: bytes) -> None:
        """These bytes arrived."""

    def on_lost(self, error: Exception | None) -> None:
        """The connection is gone: the peer closed it (None), or this happened to it."""

    def on_writable(self) -> None:
        """The peer took bytes of the request."""


class Home(Protocol):
    """Where a connection rests between exchanges."""

    def forget(self, connection: Connection) -> None:
        """It has died there."""


class Connection(asyncio.Protocol):
    """Carries one exchange at a time."""

    __slots__ = (
        "_is_cut",
        "_offset",
        "_owner",
        "_transport",
        "_upload",
        "_writes_paused",
        "home",
        "uses",
    )

    def __init__(self, owner: Owner) -> None:
        self.home: Home | None = None
        self.uses = 0
        self._owner: Owner | None = owner
        self._transport: asyncio.Transport | None = None
        # What is left to send of a large body, and from where.
        self._upload: memoryview | None = None
        self._offset = 0
        # Whether a request was left half sent.
        self._is_cut = False
        self._writes_paused = False

    # What the exchange does with it.

    def carry(self, owner: Owner, head: bytes, body: bytes) -> None:
        """Send a request; from now on the owner hears what happens."""
        if self._transport is None:
            raise RuntimeError("this connection does not stand")
        self._owner = owner
        self.uses += 1
        if len(body) <= _ONE_WRITE_BYTES:
            self._transport.write(head + body if body else head)
            return
        self._upload = memoryview(body)
        self._offset = 0
        self._transport.write(head)
        self._pump()

    def stop_upload(self) -> None:
        """Send no more of the body: the answer has come before it was wanted."""
        if self._upload is not None:
            self._upload = None
            self._is_cut = True

    def let_go(self) -> bool:
        """Part from the owner; whether the connection is clean enough to carry another."""
        self._owner = None
        return (
            self._transport is not None
            and self._upload is None
            and not self._is_cut
            and not self._transport.is_closing()
            and not self._transport.get_write_buffer_size()
        )

    def pause(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    def abort(self) -> None:
        """Close at once, whatever is under way.  Calling it again does nothing."""
        self._owner = None
        self._upload = None
        if self._transport is not None:
            self._transport.abort()

    # What the event loop tells it.

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._owner is not None:
            self._owner.on_connected()
        else:  # aborted before there was anything to abort
            self._transport.abort()

    @override
    def data_received(self, data: bytes) -> None:
        if self._owner is not None:
            self._owner.on_data(data)
        else:
            self.abort()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None and self._owner is not None:
            exc = self._salvage(exc)
        owner, self._owner = self._owner, None
        self._transport = None
        self._upload = None
        if owner is not None:
            owner.on_lost(exc)
        if self.home is not None:
            self.home.forget(self)

    @override
    def pause_writing(self) -> None:
        self._writes_paused = True

    @override
    def resume_writing(self) -> None:
        self._writes_paused = False
        if self._owner is not None and self._upload is not None:
            self._owner.on_writable()
            self._pump()

    # Private rules.

    def _pump(self) -> None:
        transport = self._transport
        while self._upload is not None and not self._writes_paused:
            if transport is None or transport.is_closing():  # the last write has failed
                return
            piece = self._upload[self._offset : self._offset + _SLICE_BYTES]
            self._offset += len(piece)
            if self._offset >= len(self._upload):
                self._upload = None
            transport.write(piece)

    def _salvage(self, error: Exception) -> Exception | None:
        """Read what the peer said before the connection broke.

        llama-server answers a bad key before it has read the body, and closes.  Our next write
        fails then, and the transport gives up although the answer lies in the socket, which is
        still open during `connection_lost`.  Not for TLS: what lies there is encrypted.
        """
        transport = self._transport
        if transport is None or transport.get_extra_info("sslcontext") is not None:
            return error
        descriptor = transport.get_extra_info("socket").fileno()
        try:
            while self._owner is not None:
                data = os.read(descriptor, _SALVAGE_BYTES)
                if not data:
                    # A broken pipe means that the peer had closed in order before it refused our
                    # bytes; after a reset, reading tells of an end that never was.
                    return None if isinstance(error, BrokenPipeError) else error
                self._owner.on_data(data)
        except OSError:
            pass
        return error
