"""Asks one server for its routes, each within a bounded time, and keeps what came of it.

Rule 1: a route is asked without the key first, and with it only where it wants one.  So it shows
        what is open to everybody, and a key goes no further than it must.
Rule 2: whatever happens is an answer; nothing here raises for what a server does.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import msgspec

from slotgate.doctor.evidence import KEY_STATUSES, Answer, Trouble
from slotgate.errors import BackendError, BackendTimeoutError, BrokenAnswerError
from slotgate.net.client import Client, Timeouts
from slotgate.wire.usage import as_mapping

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slotgate.net.address import Address
    from slotgate.net.exchange import Exchange

LIMIT_BYTES = 4 << 20
# A name that never resolves, so that no page can have it.
FOREIGN_ORIGIN = b"https://slotgate-doctor.invalid"

_NAME = "it"
_JSON = (b"content-type", b"application/json")

Headers = tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One exchange that ended: `trouble` instead of a status where it did not come so far."""

    status: int = 0
    body: bytes = b""
    allows_origin: bool = False
    trouble: Trouble | None = None
    message: str = ""
    seconds: float = 0.0
    is_late: bool = False


class Asker:
    """Asks one server.  `timeout` is how long an answer may take in all, in seconds.

    With a `model` it asks a router for this one, and never so that it would be loaded.
    """

    def __init__(
        self,
        address: Address,
        *,
        key: str | None = None,
        timeout: float = 5.0,
        ssl_context: ssl.SSLContext | None = None,
        model: str | None = None,
    ) -> None:
        timeouts = Timeouts(connect=timeout, first_byte=timeout, idle=timeout)
        self._client = Client(address, timeouts=timeouts, ssl_context=ssl_context, name=_NAME)
        # How long a generation is silent is what is measured: who starts one bounds it.
        patience = Timeouts(connect=timeout, first_byte=inf, idle=inf)
        self._patient = Client(address, timeouts=patience, ssl_context=ssl_context, name=_NAME)
        self._timeout = timeout
        self.has_key = key is not None
        self._auth: Headers = ()
        if key is not None:
            self._auth = ((b"authorization", b"Bearer " + key.encode()),)
        self._query = ""
        self._fields: dict[str, str] = {}
        if model is not None:
            self._query = "?" + urlencode({"model": model, "autoload": "false"})
            self._fields = {"model": model}
        # Routes that wanted the key.
        self._guarded: set[str] = set()

    async def get(self, route: str) -> tuple[Answer, Reply]:
        """Ask for a route; of the two replies that there may be, return the better one."""
        reply = await self._exchange("GET", route, ())
        answer = _answer(reply)
        if self._auth and reply.status in KEY_STATUSES:
            self._guarded.add(route)
            reply = await self._exchange("GET", route, self._auth)
            answer = replace(
                _answer(reply), without_key=answer.without_key, with_key=reply.status or None
            )
        return answer, reply

    async def get_again(self, route: str) -> Reply:
        """Ask for a route that was answered before, with the key if it wanted it then."""
        return await self._exchange("GET", route, self._auth if route in self._guarded else ())

    async def post(self, route: str, fields: Mapping[str, Any]) -> Reply:
        """Ask for something that takes no slot."""
        return await self._exchange("POST", route, (_JSON, *self._auth), self._body(fields))

    def generation(self, route: str, fields: Mapping[str, Any]) -> Exchange:
        """Return an exchange that takes a slot, not begun, and without a bound on its time."""
        headers, body = (_JSON, *self._auth), self._body(fields)
        return self._patient.exchange("POST", route + self._query, headers, body, single_use=True)

    def _body(self, fields: Mapping[str, Any]) -> bytes:
        return msgspec.json.encode({**fields, **self._fields})

    def close(self) -> None:
        self._client.close()
        self._patient.close()

    async def _exchange(
        self, method: str, route: str, headers: Headers, body: bytes = b""
    ) -> Reply:
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        sent = (*headers, (b"origin", FOREIGN_ORIGIN))
        with self._client.exchange(method, route + self._query, sent, body) as exchange:
            try:
                async with asyncio.timeout(self._timeout):
                    await exchange.open()
                    content = await exchange.read_all(LIMIT_BYTES)
            except (TimeoutError, BackendTimeoutError):
                return self._too_late(exchange)
            except BackendError as error:
                seconds = loop.time() - began_at
                return Reply(trouble=_trouble(error), message=in_words(error), seconds=seconds)
            return Reply(
                status=exchange.status,
                body=content,
                allows_origin=_allows_origin(exchange.headers),
                message=_error_message(content) if exchange.status >= 400 else "",
                seconds=loop.time() - began_at,
            )

    def _too_late(self, exchange: Exchange) -> Reply:
        # Of TLS, what takes too long may be the handshake of a server that took the connection.
        is_there = exchange.sent or self._client.address.tls
        message = f"{'no answer' if is_there else 'no connection'} within {self._timeout:g} s"
        trouble = Trouble.SILENT if is_there else Trouble.UNREACHABLE
        return Reply(trouble=trouble, message=message, seconds=self._timeout, is_late=True)


def _answer(reply: Reply) -> Answer:
    return Answer(
        without_key=reply.status or None,
        trouble=reply.trouble,
        message=reply.message,
        seconds=reply.seconds,
        is_late=reply.is_late,
    )


def in_words(error: BackendError) -> str:
    """What happened, without the name of the server, which the report has anyway."""
    return str(error).removeprefix(f"{_NAME}: ")


def _trouble(error: BackendError) -> Trouble:
    if isinstance(error.__cause__, ssl.SSLError):
        return Trouble.TLS
    return Trouble.BROKEN if isinstance(error, BrokenAnswerError) else Trouble.UNREACHABLE


def _allows_origin(headers: list[tuple[bytes, bytes]]) -> bool:
    said = {name.lower(): value for name, value in headers}
    return said.get(b"access-control-allow-origin") in {b"*", FOREIGN_ORIGIN}


def _error_message(body: bytes) -> str:
    try:
        error = as_mapping(as_mapping(msgspec.json.decode(body)).get("error"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    message = error.get("message")
    return message if isinstance(message, str) else ""
