"""The client side of the data plane: a `Client` for each backend, an `Exchange` for each request.

    client = Client(Address.parse("http://127.0.0.1:8081"))
    exchange = client.exchange("POST", "/completion", headers, body, single_use=True)
    try:
        await exchange.open()
        while data := await exchange.read():
            ...
    finally:
        exchange.close()

It has no limit on connections and no queue: both are the core's.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from slotgate.net.address import Address
from slotgate.net.connection import Connection
from slotgate.net.exchange import Exchange
from slotgate.net.pool import Pool
from slotgate.net.request import RequestWriter

__all__ = ["Client", "Exchange", "Timeouts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long a backend may be silent, in seconds.

    `connect`: until the connection stands, TLS included.  `first_byte`: from the request's last
    byte to the complete head of the answer.  `idle`: between two pieces of the body.
    """

    connect: float = 5.0
    first_byte: float = 300.0
    idle: float = 300.0


class Client:
    """Talks to one address, from one event loop.

    `high_water_bytes`: reading from a socket pauses while more bytes than this are unread.
    `name` is what errors call the server; the address, unless that is nobody's business.
    `heard_at` is when, by the loop's time, a part of an answer last came that was not its end.
    """

    __slots__ = (
        "_pool",
        "_ssl_context",
        "_writer",
        "address",
        "heard_at",
        "high_water_bytes",
        "name",
        "timeouts",
    )

    def __init__(
        self,
        address: Address,
        *,
        timeouts: Timeouts = Timeouts(),
        ssl_context: ssl.SSLContext | None = None,
        high_water_bytes: int = 1 << 20,
        name: str | None = None,
    ) -> None:
        self.address = address
        self.name = str(address) if name is None else name
        self.timeouts = timeouts
        self.high_water_bytes = high_water_bytes
        self.heard_at = -inf
        self._ssl_context = ssl_context
        self._pool = Pool()
        self._writer = RequestWriter(address.authority, address.prefix)

    def exchange(  # noqa: PLR0913  (a request is what it is)
        self,
        method: str,
        target: str,
        headers: Sequence[tuple[bytes, bytes]] = (),
        body: bytes = b"",
        *,
        single_use: bool = False,
        on_complete: Callable[[], None] | None = None,
        first_byte: float | None = None,
    ) -> Exchange:
        """Prepare a request; nothing is sent before `Exchange.open`.

        `target` is the path and query without the address's prefix.  `single_use` opens a fresh
        connection and closes it afterwards.  `on_complete` is called once, from within the event
        loop's reading, when the answer's last byte has arrived, read or not, and never for a
        failure.  `first_byte` replaces the client's timeout of that name, in seconds.
        ValueError if a part of the head holds what it must not, such as a line break, or a header
        that the client writes itself.
        """
        request = self._writer.write(method, target, headers, body, closes=single_use)
        return Exchange(
            self,
            request,
            pool=None if single_use else self._pool,
            on_complete=on_complete,
            first_byte=self.timeouts.first_byte if first_byte is None else first_byte,
        )

    @property
    def idle_connections(self) -> int:
        """How many connections wait for their next exchange."""
        return len(self._pool)

    def close(self) -> None:
        """Close the idle connections; those in use close when their exchanges end."""
        self._pool.close()

    async def connect(self, connection: Connection) -> None:
        """Open a new connection; OSError if that fails.  For exchanges only."""
        loop = asyncio.get_running_loop()
        address = self.address
        if address.unix_path is not None:
            await loop.create_unix_connection(lambda: connection, address.unix_path)
        elif address.tls:
            await loop.create_connection(
                lambda: connection, address.host, address.port, ssl=self._tls()
            )
        else:
            await loop.create_connection(lambda: connection, address.host, address.port)

    def _tls(self) -> ssl.SSLContext:
        if self._ssl_context is None:  # made late: reading the authorities' certificates is slow
            self._ssl_context = ssl.create_default_context()
        return self._ssl_context
