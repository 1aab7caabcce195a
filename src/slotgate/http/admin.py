"""The operator's routes, below `/-/`: what there is, and what to do about it.

Rule 1: they need the operator's key in a header; without one configured, only a private gateway
        without tenants answers, and only to this machine.
Rule 2: no web page may use them behind a person's back: what changes anything is POST, with a body
        of JSON or none; a page of another origin is turned away, whatever it sends; and without
        a key, so is whoever calls us by a name that others could have pointed at this machine.
Rule 3: nothing that they show was said by a client or a model, and no key or digest is in it.
"""

from __future__ import annotations

import asyncio
import ipaddress
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

import msgspec

from slotgate.config.plain import plain
from slotgate.core.decision import Reason
from slotgate.errors import ConfigError, ConflictError, UnknownNameError
from slotgate.http.auth import UnauthorizedError
from slotgate.http.problems import Problem
from slotgate.http.request import ProblemError
from slotgate.runtime.driver import Verb
from slotgate.wire.routes import ADMIN_PREFIX
from slotgate.wire.tables import TABLES

if TYPE_CHECKING:
    from slotgate.core.snapshot import Snapshot
    from slotgate.http.auth import Keyring
    from slotgate.http.operating import Operator
    from slotgate.http.request import Request
    from slotgate.http.tables import Tables
    from slotgate.runtime.driver import Driver

LONGEST_WAIT_SECONDS = 3600.0
MAX_BODY_BYTES = 64 << 10
READING, ACTING = ("GET", "HEAD"), ("POST",)
ADMIN = "admin"

_encode = msgspec.json.Encoder().encode
_CODES: dict[type[Exception], str] = {
    UnknownNameError: "not_found",
    ConflictError: "conflict",
    ConfigError: "invalid_config",
}


class Admin:
    """Answers the operator.  `keyring` is the one in force."""

    def __init__(
        self, operator: Operator, driver: Driver, tables: Tables, keyring: Keyring
    ) -> None:
        self.keyring = keyring
        self._operator = operator
        self._driver = driver
        self._tables = tables

    async def serve(self, request: Request) -> None:
        """Answer one request below `/-/`.  Raises ProblemError and UnauthorizedError."""
        self._check(request)
        parts = request.path.removeprefix(ADMIN_PREFIX).split("/")
        try:
            body = await self._answer(request, parts)
        except tuple(_CODES) as error:
            raise ProblemError(Problem(_CODES[type(error)], str(error))) from error
        await request.reply_json(200, _encode(body))

    async def _answer(self, request: Request, parts: list[str]) -> Any:
        match parts:
            case ["snapshot"]:
                _only(request, READING)
                return _without_affinity(self._driver.snapshot())
            case ["config"]:
                _only(request, READING)
                return {"config": plain(self._operator.settings)}
            case [name] if name in TABLES:
                _only(request, READING)
                return {name: self._tables.rows(name, self._driver.snapshot())}
            case ["reload"]:
                await _act(request)
                return self._reload()
            case ["backends", *name, verb] if name and verb in set(Verb):
                # A model of a router is `ROUTER/MODEL`, and the model may have slashes too.
                await _act(request)
                return await self._hold(request, "/".join(name), Verb(verb))
            case ["tickets", ticket_id, "kill"]:
                await _act(request)
                return self._kill(ticket_id)
        raise ProblemError(Problem("not_found", f"{request.method} {request.path}"))

    # Acting.

    async def _hold(self, request: Request, name: str, verb: Verb) -> dict[str, Any]:
        seconds = _wait_seconds(request) if verb is Verb.DRAIN else 0.0
        self._operator.hold(name, verb, by=ADMIN)
        if seconds:
            await self._wait_empty(request, name, seconds)
        now = self._driver.snapshot()
        names = self._operator.models_of(name)
        rows = [self._tables.backend(self._operator.backend(each), now) for each in names]
        is_empty = not any(row["running"] or row["settling"] for row in rows)
        return {
            "backend": rows[0] if names == [name] else None,
            "backends": rows,
            "is_empty": is_empty,
        }

    async def _wait_empty(self, request: Request, name: str, seconds: float) -> None:
        """Wait until nothing runs there, for so long; the gateway's own end is not held up."""
        books = [self._driver.books(each) for each in self._operator.models_of(name)]

        def is_over() -> bool:
            return all(each.is_empty for each in books) or self._driver.is_draining

        try:
            async with asyncio.timeout(seconds) as bound:
                request.on_leaving(partial(_end_now, bound))  # nobody is there to be told
                await self._driver.wait_until(is_over)
        except TimeoutError:
            pass
        finally:
            request.on_leaving(None)

    def _kill(self, ticket_id: str) -> dict[str, Any]:
        row = self._tables.ticket(ticket_id, self._driver.snapshot())
        self._operator.kill(ticket_id, by=ADMIN)
        return {"ticket": row, "result": "killed"}

    def _reload(self) -> dict[str, Any]:
        reloaded = self._operator.reload(by=ADMIN)
        changes = reloaded.changes
        return {
            "result": "applied" if changes else "unchanged",
            "backends": changes.backends,
            "tenants": changes.tenants,
            "settings": changes.settings,
            "needs_restart": changes.needs_restart,
            "warnings": reloaded.warnings,
        }

    # Who asks.

    def _check(self, request: Request) -> None:
        headers = request.headers
        host, origin = headers.get(b"host", b""), headers.get(b"origin")
        site = headers.get(b"sec-fetch-site", b"none")
        is_foreign = origin is not None and origin.partition(b"://")[2] != host
        if is_foreign or site not in {b"none", b"same-origin"}:
            raise _forbidden("web pages of another origin have no business here")
        if not self.keyring.is_admin(request.raw_headers):
            raise UnauthorizedError("the operator's key is needed (admin_key_env)")
        if self.keyring.admin_digest is None and not _is_this_machine(host):
            raise _forbidden(
                "without an operator's key (admin_key_env), ask localhost or an address"
            )


def _end_now(bound: asyncio.Timeout) -> None:
    if not bound.expired():
        bound.reschedule(-inf)


def _without_affinity(snapshot: Snapshot) -> Any:
    """Return the snapshot as JSON has it; what binds requests together may be a client's words."""
    shown = msgspec.to_builtins(snapshot)
    views = list(shown["waiting"])
    for deployment in shown["deployments"]:
        views += [*deployment["running"], *deployment["settling"]]
    for view in views:
        del view["ticket"]["affinity"]
    return shown


def _forbidden(words: str) -> ProblemError:
    return ProblemError(Problem("forbidden", words))


def _is_this_machine(host: bytes) -> bool:
    """Whether no name server was asked to find us by that name."""
    name = host.decode("latin-1")
    name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
    if name.lower() in {"", "localhost"}:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _only(request: Request, methods: tuple[str, ...]) -> None:
    if request.method not in methods:
        allow = ", ".join(methods)
        words = f"{request.path} takes {allow}, not {request.method}"
        raise ProblemError(Problem("method_not_allowed", words, allow=allow))


async def _act(request: Request) -> None:
    """Check what a request that changes something must be like; its body says nothing."""
    _only(request, ACTING)
    kind = request.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind not in {b"", b"application/json"}:
        words = "send a body of application/json, or none"
        raise ProblemError(Problem("unsupported_media_type", words))
    await request.read_body(MAX_BODY_BYTES)


def _wait_seconds(request: Request) -> float:
    text = request.param("wait") or "0"
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= LONGEST_WAIT_SECONDS:
        words = f"wait is in seconds, from 0 to {LONGEST_WAIT_SECONDS:.0f}"
        raise ProblemError(Problem(Reason.INVALID_REQUEST, words, param="wait"))
    return seconds
