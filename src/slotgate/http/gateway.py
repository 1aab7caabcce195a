"""The application: one ASGI callable that finds a request's route and sees it through.

Order of the checks, each before anything that costs more: path, key, body, shape, model, length.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slotgate.core.decision import Reason
from slotgate.core.ticket import Ticket
from slotgate.errors import BadRequestError, ExchangeClosedError
from slotgate.http.auth import UnauthorizedError
from slotgate.http.call import Call, FreeCall
from slotgate.http.problems import Problem
from slotgate.http.replies import answer
from slotgate.http.request import ProblemError, Request
from slotgate.http.waiting import WAIT_HEADER, WITH_COMMENTS
from slotgate.wire.models import listing
from slotgate.wire.request import prepare
from slotgate.wire.routes import Route, RouteKind, Shape, find_route

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping

    from slotgate.config import Settings
    from slotgate.core.clock import Clock
    from slotgate.http.auth import Keyring, Tenant
    from slotgate.http.measuring import Measuring
    from slotgate.http.own import OwnRoutes
    from slotgate.http.proxy import Proxy
    from slotgate.http.request import Receive, Send
    from slotgate.runtime.fleet import Fleet
    from slotgate.runtime.journal import Journal
    from slotgate.wire.request import Prepared
    from slotgate.wire.session import SessionKeys

# llama-server's own words for a path that it does not have.
NO_SUCH_PATH = "File Not Found"
MODEL_LISTS = frozenset({"/models", "/v1/models"})
READ_TIMEOUT_SHARE = 0.8


@dataclass(slots=True, kw_only=True)
class Gateway:
    """The ASGI application."""

    settings: Settings
    clock: Clock
    keyring: Keyring
    fleet: Fleet
    proxy: Proxy
    own: OwnRoutes
    measuring: Measuring
    journal: Journal
    ids: Iterator[str]
    sessions: SessionKeys

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive, send)
        ticket_id = next(self.ids)
        request.id = request.own_id() or ticket_id
        route = find_route(request.method, request.path)
        shape = route.shape if route is not None else None
        try:
            call = await self._receive(request, route, ticket_id)
            if call is not None:
                # From here and not from within: while thousands wait, each frame counts.
                await self.proxy.serve(call)
        except (ProblemError, BadRequestError) as error:
            await answer(request, shape, _problem_of(error))
        except ExchangeClosedError:
            pass  # the client left before its request was complete
        except Exception:
            self.journal.crashed(request.id, request.path)
            if request.has_answered:
                raise  # the server cuts the connection: nothing better can be said any more
            words = f"the log has the details under {request.id}"
            await answer(request, shape, Problem("internal_error", words))

    async def _receive(self, request: Request, route: Route | None, ticket_id: str) -> Call | None:
        """Answer what takes no slot; return what does as a call."""
        if request.method == "OPTIONS":
            await self.own.preflight(request)
            return None
        if route is not None and route.kind is RouteKind.OWN:
            await self.own.serve(request)
            return None
        tenant = self.keyring.tenant_for(request.raw_headers)
        if route is None:
            raise ProblemError(
                Problem("not_found", f"{request.method} {request.path}: {NO_SUCH_PATH}")
            )
        body = await request.read_body(self.settings.limits.max_body_bytes)
        if route.kind is RouteKind.FREE:
            await self._pass(request, route, body)
            return None
        return await self._understand(request, route, body, tenant, ticket_id)

    async def _pass(self, request: Request, route: Route, body: bytes) -> None:
        if route.path in MODEL_LISTS and self.fleet.has_several_models:
            await request.reply_json(200, listing(self.fleet.models()))
            return
        named = request.param("model") or prepare(route, body, content_type="").model
        pool = self.fleet.resolve(named)
        backend = self.fleet.any_backend(pool)
        if backend is None:
            raise ProblemError(Problem(Reason.NO_BACKEND, "no backend can be reached", 1.0))
        target = request.target
        if pool is not None:  # else it names no model of ours, as a router will say itself
            target = backend.free_target(target)
            body = backend.addressed(body, named) if body else body
        call = FreeCall(request=request, shape=route.shape, target=target, body=body)
        await self.proxy.pass_through(call, backend)

    async def _understand(
        self, request: Request, route: Route, body: bytes, tenant: Tenant, ticket_id: str
    ) -> Call:
        content_type = request.headers.get(b"content-type", b"").decode("latin-1")
        prepared = prepare(route, body, content_type=content_type)
        model = self.fleet.resolve(prepared.model)
        if model is None:
            words = f"no backend serves the model {prepared.model!r}"
            raise ProblemError(Problem(Reason.MODEL_NOT_FOUND, words, param="model"))
        size = self.measuring.estimated(tenant.name, model, prepared)
        arrival = self.clock.now()
        budget, setting = self._budget(request, tenant)
        ticket = Ticket(
            id=ticket_id,
            arrival=arrival,
            deadline=arrival + budget,
            tenant=tenant.name,
            priority_class=tenant.priority_class,
            model=model,
            width=self._width(route, prepared, model),
            input_tokens=size.tokens,
            output_tokens=prepared.output_tokens,
            size_bytes=len(prepared.body),
            affinity=self._session(request, route, prepared, tenant),
        )
        shape = route.shape
        assert shape is not None  # noqa: S101 - every route that takes slots has one
        call = Call(
            request=request,
            route=route,
            shape=shape,
            prepared=prepared,
            ticket=ticket,
            deadline_setting=setting,
            shows_wait=self._shows_wait(request, prepared, tenant),
        )
        call.ticket = await self.measuring.measured(call, size)
        return call

    def _session(
        self, request: Request, route: Route, prepared: Prepared, tenant: Tenant
    ) -> str | None:
        """Return the session's key; what writes nothing leaves nothing for a next turn."""
        if not route.streams:
            return None
        return self.sessions.key(tenant.name, request.headers, prepared.affinity)

    def _width(self, route: Route, prepared: Prepared, model: str) -> int:
        """Return the slots that the request takes at once.

        Prompts of a list are independent: more of them than slots take turns.  The choices of one
        prompt (`n`) run at once or not at all.
        """
        slots = self.fleet.most_slots(model)
        if slots is None or route.shape in {Shape.CHAT, Shape.RESPONSES}:
            return prepared.width
        return min(prepared.width, slots)

    def _shows_wait(self, request: Request, prepared: Prepared, tenant: Tenant) -> bool:
        """Whether comments are wanted while it waits, and can be seen by who wants them."""
        if not prepared.wants_stream or not tenant.may_see_comments:
            return False
        return request.headers.get(WAIT_HEADER, b"").strip().lower() == WITH_COMMENTS

    def _budget(self, request: Request, tenant: Tenant) -> tuple[float, str]:
        """Return how long the request may wait, in seconds, and what says so."""
        name = tenant.priority_class
        budget, setting = self.settings.classes.budget(name), f"classes.{name}.budget"
        headers = request.headers
        read_timeout = _positive(headers.get(b"x-stainless-read-timeout"))
        if read_timeout is not None and READ_TIMEOUT_SHARE * read_timeout < budget:
            budget, setting = READ_TIMEOUT_SHARE * read_timeout, "the client's own read timeout"
        wanted = _positive(headers.get(b"x-slotgate-deadline-ms"))
        if wanted is not None and wanted / 1000 < budget:
            budget, setting = wanted / 1000, "x-slotgate-deadline-ms"
        return budget, setting


def _problem_of(error: ProblemError | BadRequestError) -> Problem:
    if isinstance(error, ProblemError):
        return error.problem
    is_key = isinstance(error, UnauthorizedError)
    code = "authentication_error" if is_key else Reason.INVALID_REQUEST
    return Problem(code, str(error), param=error.param)


def _positive(value: bytes | None) -> float | None:
    """Read a header's number; anything that is not a positive finite one counts as absent."""
    if value is None:
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if number > 0 and math.isfinite(number) else None
