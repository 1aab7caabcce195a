"""The routes that are ours: they never take a slot and never wait for one.

`/health` and `/slots` keep what monitoring scripts that know llama-server expect: llama-server's
fields, and `fail_on_no_slot`.  No prompt text is in them, whatever the backend shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from slotgate.core.deployment import State
from slotgate.http.auth import UnauthorizedError
from slotgate.http.problems import Problem
from slotgate.http.request import ProblemError
from slotgate.wire.routes import ADMIN_PREFIX

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from slotgate.core.clock import Clock
    from slotgate.core.snapshot import WaitingView
    from slotgate.http.admin import Admin
    from slotgate.http.auth import Keyring
    from slotgate.http.request import Request
    from slotgate.runtime.driver import Driver
    from slotgate.runtime.fleet import Fleet
    from slotgate.runtime.probes import Probe
    from slotgate.telemetry import Telemetry

# How long `/slots` may look at the backends again before it answers with what is known.
FRESH_SLOTS_SECONDS = 0.5
# One that is on trial serves what it can.
_SERVING = frozenset({State.READY, State.DEGRADED})
METRICS_TYPE = b"text/plain; version=0.0.4; charset=utf-8"

# llama-server's own body, key order included.
NO_SLOT = b'{"error":{"code":503,"message":"no slot available","type":"unavailable_error"}}'

# What a backend can be for the operator's word alone.
_HOLDS = frozenset({State.PAUSED, State.DRAINING, State.DOWN})

_encode = msgspec.json.Encoder().encode


class OwnRoutes:
    """Answers what the gateway itself is asked."""

    def __init__(
        self,
        *,
        driver: Driver,
        fleet: Fleet,
        keyring: Keyring,
        telemetry: Telemetry,
        clock: Clock,
        admin: Admin,
    ) -> None:
        self._driver = driver
        self._clock = clock
        self._fleet = fleet
        self._admin = admin
        self.keyring = keyring
        self._telemetry = telemetry
        self._handlers: dict[str, Callable[[Request], Awaitable[None]]] = {
            "/health": self._health,
            "/v1/health": self._health,
            "/ready": self._ready,
            "/slots": self._slots,
            "/metrics": self._metrics,
            "/queue": self._queue,
        }

    async def serve(self, request: Request) -> None:
        """Answer one of our own routes; the public ones need no key."""
        if request.path.startswith(ADMIN_PREFIX):
            await self._admin.serve(request)
            return
        self._check_key(request)
        handler = self._handlers.get(request.path)
        if handler is None or request.method not in {"GET", "HEAD"}:
            raise ProblemError(Problem("not_found", f"{request.method} {request.path}"))
        await handler(request)

    async def preflight(self, request: Request) -> None:
        """Allow what llama-server allows, except credentials: keys travel in a header.

        And except what is the operator's.
        """
        if request.path.startswith(ADMIN_PREFIX):
            await request.reply(204, [])
            return
        headers = [
            (b"access-control-allow-methods", b"GET, POST, OPTIONS"),
            # For browsers, the asterisk does not cover this one.
            (b"access-control-allow-headers", b"*, authorization"),
        ]
        await request.reply(200, headers)

    def _check_key(self, request: Request) -> None:
        headers = request.raw_headers
        is_open = self.keyring.is_public(request.method, request.path)
        if not is_open and not self.keyring.may_observe(headers):
            raise UnauthorizedError("an API key is needed")

    # Liveness, readiness.

    async def _health(self, request: Request) -> None:
        counts = self._driver.counts()
        idle, processing = counts.idle, counts.processing
        if request.param("fail_on_no_slot") is not None and idle == 0:
            body = {
                "status": "no slot available",
                "slots_idle": 0,
                "slots_processing": processing,
            }
            await request.reply_json(503, _encode(body))
            return
        body = {
            "status": "ok",
            "slots_idle": idle,
            "slots_processing": processing,
            "queue": counts.waiting,
        }
        await request.reply_json(200, _encode(body))

    async def _ready(self, request: Request) -> None:
        states = self._driver.states()
        is_draining = self._driver.is_draining
        is_ready = not is_draining and any(state in _SERVING for state in states.values())
        body = {
            "status": "draining" if is_draining else "ready" if is_ready else "not ready",
            "backends": {
                name: {"state": state, "why": self._why(name, state)}
                for name, state in states.items()
            },
        }
        await request.reply_json(200 if is_ready else 503, _encode(body))

    def _why(self, name: str, state: State) -> str:
        probe = self._fleet.probes[name]
        if probe.is_quarantined:
            return probe.standing[1]
        if state is not probe.state and probe.state is State.READY:
            return "the operator says so" if state in _HOLDS else "its settings are being changed"
        return probe.why

    # Slots and queue.

    async def _slots(self, request: Request) -> None:
        for probe in self._fleet.probes.values():
            await probe.wait_fresh_slots(FRESH_SLOTS_SECONDS)
        if request.param("fail_on_no_slot") and self._driver.counts().idle == 0:
            await request.reply_json(503, NO_SLOT)
            return
        body = [slot for probe in self._fleet.probes.values() for slot in self._slots_of(probe)]
        await request.reply_json(200, _encode(body))

    def _slots_of(self, probe: Probe) -> list[dict[str, Any]]:
        """Show a backend's slots, corrected by our books: its own list lags by up to a batch."""
        name = probe.backend.name
        known = {slot.id: {**slot.raw, "is_processing": slot.is_processing} for slot in probe.slots}
        context = probe.props.ctx_per_slot if probe.props is not None else None
        slots = [
            {**_plain_slot(number, context), **known.get(number, {}), "backend": name}
            for number in range(probe.slot_count)
        ]
        _correct(slots, self._driver.books(name).width + probe.outside)
        return slots

    async def _queue(self, request: Request) -> None:
        """Say how long the queue is, and to who asks where its own requests stand in it."""
        counts, now = self._driver.counts(), self._clock.now()
        body: dict[str, Any] = {
            "waiting": counts.waiting,
            "waiting_bytes": counts.waiting_bytes,
            "slots": counts.slots,
            "slots_idle": counts.idle,
            "slots_processing": counts.processing,
        }
        headers = request.raw_headers
        if self.keyring.has_tenants and self.keyring.is_admin(headers):
            waiting = {name: self._driver.waiting_of(name) for name in self.keyring.names}
            body["tenants"] = {name: len(views) for name, views in waiting.items()}
            body["tickets"] = [
                {"tenant": name, **self._ticket(view, now)}
                for name, views in waiting.items()
                for view in views
            ]
        else:
            name = self.keyring.tenant_for(headers).name
            body["tickets"] = [self._ticket(view, now) for view in self._driver.waiting_of(name)]
        await request.reply_json(200, _encode(body))

    def _ticket(self, view: WaitingView, now: float) -> dict[str, Any]:
        """Show a waiting request to whom it belongs: how it stands, and nothing of what it says."""
        ticket, predicted = view.ticket, view.predicted_wait
        return {
            "id": ticket.id,
            "model": self._fleet.name_of(ticket.model),
            "class": ticket.priority_class,
            "position": view.position,
            "waited_seconds": round(now - view.since, 3),
            "predicted_wait_seconds": None if predicted is None else round(max(0.0, predicted), 3),
            "deadline_seconds": round(ticket.deadline - now, 3),
        }

    # For the operator.

    async def _metrics(self, request: Request) -> None:
        await request.reply(200, [(b"content-type", METRICS_TYPE)], self._telemetry.render())


def _plain_slot(number: int, context: int | None) -> dict[str, Any]:
    return {"id": number, "n_ctx": context or 0, "speculative": False, "is_processing": False}


def _correct(slots: list[dict[str, Any]], busy: int) -> None:
    """Make as many slots busy as we know to be; which ones is llama-server's to choose."""
    seen = [slot for slot in slots if slot["is_processing"]]
    idle = [slot for slot in slots if not slot["is_processing"]]
    for slot in idle[: max(0, busy - len(seen))]:
        slot["is_processing"] = True
    for slot in seen[busy:]:
        slot["is_processing"] = False
