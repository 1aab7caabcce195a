"""The rows of the operator's tables, from one snapshot of the scheduler."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from slotgate.config import ManagedSettings
from slotgate.core.deployment import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from slotgate.config import Settings
    from slotgate.core.snapshot import DeploymentView, LeaseView, Snapshot, WaitingView
    from slotgate.http.auth import Keyring
    from slotgate.runtime.fleet import Fleet

Row = dict[str, Any]


class Tables:
    """Every table, by its name.  `settings` and `keyring` are those in force."""

    def __init__(self, settings: Settings, keyring: Keyring, fleet: Fleet) -> None:
        self.settings = settings
        self.keyring = keyring
        self._fleet = fleet

    def rows(self, name: str, now: Snapshot) -> list[Row]:
        """Return the rows of a table of `wire.tables`."""
        makers = {
            "pools": self._pools,
            "backends": self._backends,
            "tickets": self._tickets,
            "leases": self._leases,
            "tenants": self._tenants,
        }
        return list(makers[name](now))

    def backend(self, view: DeploymentView, now: Snapshot) -> Row:
        """Return the row of one backend."""
        probe = self._fleet.probes.get(view.id)
        return {
            "name": view.id,
            "model": view.model,
            "kind": self._kind(view),
            "state": view.state,
            "reported": view.reported,
            "hold": "removed" if view.is_removed else view.hold,
            "slots": view.slots,
            "limit": view.limit,
            "idle": view.headroom,
            "running": len(view.running),
            "settling": len(view.settling),
            "outside": view.outside,
            "loaded": view.is_loaded,
            "awaits_turn": view.awaits_turn,
            "ctx_per_slot": view.ctx_per_slot,
            "kv_pool_tokens": view.kv_pool_tokens,
            "expected_seconds": _until(view.expected_until, now.now)
            if view.reported is State.DOWN
            else None,
            "why": probe.why if probe is not None else "",
        }

    def _kind(self, view: DeploymentView) -> str:
        if view.is_loaded is not None:
            return "model"
        engines = {b.name for b in self.settings.backends if isinstance(b, ManagedSettings)}
        return "engine" if view.id in engines else "server"

    def ticket(self, ticket_id: str, now: Snapshot) -> Row | None:
        """Return the row of one ticket, None if it neither waits nor runs."""
        return next((row for row in self._tickets(now) if row["id"] == ticket_id), None)

    def _pools(self, now: Snapshot) -> Iterator[Row]:
        serving = [view for view in now.deployments if not view.is_removed]
        models = dict.fromkeys([v.model for v in serving] + [w.ticket.model for w in now.waiting])
        for model in models:
            views = [view for view in serving if view.model == model]
            waiting = [each for each in now.waiting if each.ticket.model == model]
            yield {
                "model": model,
                "backends": len(views),
                "ready": sum(view.state is State.READY for view in views),
                "slots": sum(view.slots for view in views),
                "idle": sum(view.headroom for view in views),
                "running": sum(len(view.running) for view in views),
                "settling": sum(len(view.settling) for view in views),
                "outside": sum(view.outside for view in views),
                "waiting": len(waiting),
                "oldest_seconds": _oldest(waiting, now.now),
            }

    def _backends(self, now: Snapshot) -> Iterator[Row]:
        return (self.backend(view, now) for view in now.deployments)

    def _tickets(self, now: Snapshot) -> Iterator[Row]:
        for waiting in now.waiting:
            yield _waiting_ticket(waiting, now.now)
        for view in now.deployments:
            for lease in view.running:
                yield _running_ticket(lease, view, now.now)

    def _leases(self, now: Snapshot) -> Iterator[Row]:
        for view in now.deployments:
            for lease in (*view.running, *view.settling):
                yield {
                    "id": lease.id,
                    "ticket": lease.ticket.id,
                    "tenant": lease.ticket.tenant,
                    "backend": view.id,
                    "state": "running" if lease.settles_by is None else "settling",
                    "age_seconds": round(now.now - lease.since, 3),
                    "free_in_seconds": _until(lease.settles_by, now.now),
                    "width": lease.ticket.width,
                    "input_tokens": lease.input_tokens,
                    "cached_tokens": lease.cached_tokens,
                    "output_tokens": lease.output_tokens,
                }

    def _tenants(self, now: Snapshot) -> Iterator[Row]:
        waiting = Counter(each.ticket.tenant for each in now.waiting)
        in_flight = Counter(lease.ticket.tenant for lease in _all_leases(now))
        configured = {tenant.name: tenant for tenant in self.settings.tenants}
        names = dict.fromkeys([*self.keyring.names, *waiting, *in_flight])
        for name in names:
            its = configured.get(name)
            yield {
                "name": name,
                "class": its.priority_class if its else self.settings.default_class,
                "weight": its.weight if its else 1.0,
                "in_flight": in_flight[name],
                "max_in_flight": its.max_in_flight if its else None,
                "waiting": waiting[name],
                "max_waiting": its.max_waiting if its else None,
                "is_configured": name in self.keyring.names,
            }


def _all_leases(now: Snapshot) -> Iterator[LeaseView]:
    for view in now.deployments:
        yield from view.running
        yield from view.settling


def _waiting_ticket(view: WaitingView, now: float) -> Row:
    wait = view.predicted_wait
    return {
        **_ticket(view, now, state="waiting", backend=None),
        "position": view.position,
        "deadline_seconds": round(view.ticket.deadline - now, 3),
        "predicted_wait_seconds": None
        if wait is None
        else round(max(0.0, view.since + wait - now), 3),
    }


def _running_ticket(lease: LeaseView, view: DeploymentView, now: float) -> Row:
    return _ticket(lease, now, state="running", backend=view.id)


def _ticket(view: WaitingView | LeaseView, now: float, *, state: str, backend: str | None) -> Row:
    ticket = view.ticket
    return {
        "id": ticket.id,
        "state": state,
        "tenant": ticket.tenant,
        "class": ticket.priority_class,
        "model": ticket.model,
        "backend": backend,
        "position": None,
        "age_seconds": round(now - ticket.arrival, 3),
        "deadline_seconds": None,
        "predicted_wait_seconds": None,
        "width": ticket.width,
        "input_tokens": ticket.input_tokens,
        "max_output_tokens": ticket.output_tokens,
        "body_bytes": ticket.size_bytes,
    }


def _oldest(waiting: Iterable[WaitingView], now: float) -> float | None:
    return max((round(now - each.since, 3) for each in waiting), default=None)


def _until(moment: float | None, now: float) -> float | None:
    return None if moment is None else round(max(0.0, moment - now), 3)
