"""Writes down what happens, in one place: decisions and backends, to the log and the metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.core.decision import Decision, Granted, Reason, Refused
from slotgate.core.deployment import State
from slotgate.core.findings import Due
from slotgate.telemetry.events import Event
from slotgate.telemetry.logs import is_logged, log
from slotgate.telemetry.metrics import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slotgate.config.changes import Changes
    from slotgate.core.deployment import DeploymentReport
    from slotgate.core.findings import Finding, Lifted, Over
    from slotgate.core.health import Signal
    from slotgate.core.ticket import Ticket
    from slotgate.runtime.kv_pool import Sharing
    from slotgate.telemetry.logs import Logger
    from slotgate.telemetry.metrics import Phase, Telemetry
    from slotgate.wire.usage import Usage

_STATE_EVENTS = {
    State.READY: Event.BACKEND_UP,
    State.DEGRADED: Event.BACKEND_DEGRADED,
    State.LOADING: Event.BACKEND_LOADING,
    State.STARTING: Event.BACKEND_LOADING,
    State.DOWN: Event.BACKEND_DOWN,
}
_OUTCOME_EVENTS = {
    Outcome.SERVED: Event.REQUEST_SERVED,
    Outcome.ABANDONED: Event.REQUEST_ABANDONED,
    Outcome.FAILED: Event.REQUEST_FAILED,
    Outcome.KILLED: Event.REQUEST_KILLED,
}


class Journal:
    """Observes the driver, the probes and the proxy."""

    def __init__(self, logger: Logger, telemetry: Telemetry, *, logs_access: bool) -> None:
        self._logger = logger
        self._telemetry = telemetry
        self._logs_access = logs_access
        # Asked once: what each request would log is else put together for nothing.
        self._logs_grants = is_logged(logger, Event.REQUEST_GRANTED)
        self._states: dict[str, DeploymentReport] = {}

    # The driver's.

    def decided(self, decision: Decision) -> None:
        """Count and log a decision."""
        if isinstance(decision, Granted):
            self._telemetry.queue_wait(decision.waited, predicted=decision.predicted_wait)
            self._telemetry.expected_cached(decision.deployment, decision.expected_cached)
            if self._logs_grants:
                log(
                    self._logger,
                    Event.REQUEST_GRANTED,
                    ticket=decision.ticket.id,
                    backend=decision.deployment,
                    waited=round(decision.waited, 3),
                )
        elif isinstance(decision, Refused):
            self._telemetry.refused(decision.reason)
            predicted = decision.predicted_wait
            log(
                self._logger,
                Event.REQUEST_REFUSED,
                ticket=decision.ticket.id,
                tenant=decision.ticket.tenant,
                reason=decision.reason,
                limit=decision.limit,
                value=decision.value,
                setting=decision.setting,
                waited=round(decision.waited, 3),
                predicted=None if predicted is None else round(predicted, 3),
            )

    # The probes'.

    def backend_changed(self, name: str, report: DeploymentReport, why: str) -> None:
        """Log a backend's change of state, of size, or of outside work."""
        before = self._states.get(name)
        self._states[name] = report
        if report.is_ejected and not (before is not None and before.is_ejected):
            self._telemetry.ejected(name)
        fields: dict[str, object] = {
            "backend": name,
            "slots": report.slots,
            "ctx_per_slot": report.ctx_per_slot,
        }
        if report.residence is not None:
            fields["loaded"] = report.residence.is_loaded
        if before is None or before.state is not report.state:
            event = _STATE_EVENTS.get(report.state, Event.BACKEND_CHANGED)
            log(self._logger, event, **fields, why=why)
        elif before.outside != report.outside:
            log(self._logger, Event.BACKEND_OUTSIDE, **fields, outside=report.outside)
        else:
            log(self._logger, Event.BACKEND_CHANGED, **fields)

    def backend_gone(self, name: str) -> None:
        """Forget a backend that was removed, now that its last request has ended."""
        self._states.pop(name, None)
        self._telemetry.relay.forget(name)
        log(self._logger, Event.BACKEND_GONE, backend=name)

    def backend_used(self, name: str, state: State) -> None:
        """Log that a backend is used though it fails, as nothing better serves its model."""
        report = self._states.get(name)
        if state is State.DEGRADED and report is not None and report.is_ejected:
            log(self._logger, Event.BACKEND_KEPT, backend=name, slots=report.slots)

    def backend_shares(self, name: str, report: DeploymentReport, how: Sharing) -> None:
        """Warn of slots that share their context, unless the operator has said so himself."""
        if how.is_guess:
            self._warn_of_sharing(Event.BACKEND_SHARES, name, report, how)

    def backend_overflowed(self, name: str, report: DeploymentReport, how: Sharing) -> None:
        """Warn of requests that were ended because the context that they shared was full."""
        self._warn_of_sharing(Event.BACKEND_OVERFLOWED, name, report, how)

    def _warn_of_sharing(
        self, event: Event, name: str, report: DeploymentReport, how: Sharing
    ) -> None:
        log(
            self._logger,
            event,
            backend=name,
            slots=report.slots,
            ctx_per_slot=report.ctx_per_slot,
            kv_pool=report.kv_pool_tokens,
            why=how,
            advice=how.advice(report.slots, report.ctx_per_slot),
        )

    def backend_metrics(self, name: str, text: bytes | None) -> None:
        """Keep a backend's own metrics for our page."""
        if text is None:
            self._telemetry.relay.forget(name)
        else:
            self._telemetry.relay.update(name, text)

    # The operator's.

    def operated(self, verb: str, target: str, *, by: str, result: str) -> None:
        """Log what the operator did: to which backend or ticket, and what came of it."""
        log(self._logger, Event.OPERATOR_ACTED, verb=verb, target=target, by=by, result=result)

    def reloaded(self, changes: Changes, *, by: str, warnings: Iterable[str]) -> None:
        """Count and log that the configuration was read anew, and what is different."""
        for warning in warnings:
            log(self._logger, Event.CONFIG_WARNING, message=warning)
        self._telemetry.reloaded("applied" if changes else "unchanged")
        backends, tenants = changes.backends, changes.tenants
        log(
            self._logger,
            Event.CONFIG_RELOADED,
            by=by,
            added=backends.added,
            changed=backends.changed,
            removed=backends.removed,
            tenants=[*tenants.added, *tenants.changed, *tenants.removed],
            settings=changes.settings,
            needs_restart=changes.needs_restart,
        )

    def reload_failed(self, why: str, *, by: str) -> None:
        """Count and log that the configuration cannot be loaded."""
        self._telemetry.reloaded("failed")
        log(self._logger, Event.RELOAD_FAILED, by=by, why=why)

    # The watchdog's.

    def watch_found(self, finding: Finding) -> None:
        """Log and count what the watchdog found, with the evidence."""
        self._telemetry.found(finding.deployment, finding.kind)
        log(
            self._logger,
            Event.WATCHDOG_FOUND,
            backend=finding.deployment,
            finding=finding.kind.value,
            lasts=round(finding.now - finding.since, 1),
            due=finding.due.value,
            **finding.figures,
        )

    def watch_over(self, over: Over) -> None:
        """Log that what was found is no longer so."""
        fields = {"backend": over.deployment, "finding": over.kind.value}
        log(self._logger, Event.WATCHDOG_OVER, **fields, lasted=round(over.now - over.since, 1))

    def quarantined(self, finding: Finding, *, is_restarting: bool) -> None:
        """Log and count that a backend gets no work for now."""
        self._telemetry.watch_acted(finding.deployment, Due.QUARANTINE)
        fields = {"backend": finding.deployment, "finding": finding.kind.value}
        log(self._logger, Event.BACKEND_QUARANTINED, **fields, restart=is_restarting)
        if is_restarting:
            self._telemetry.watch_acted(finding.deployment, "restart")

    def quarantine_lifted(self, lifted: Lifted) -> None:
        """Log that a backend gets work again."""
        lasted = round(lifted.now - lifted.since, 1)
        log(self._logger, Event.QUARANTINE_LIFTED, backend=lifted.deployment, lasted=lasted)

    def stream_ended(self, finding: Finding, ticket: str) -> None:
        """Log and count a stream that the watchdog ends."""
        self._telemetry.watch_acted(finding.deployment, Due.END)
        fields = {"backend": finding.deployment, "finding": finding.kind.value}
        log(self._logger, Event.STREAM_ENDED, ticket=ticket, **fields)

    def hook_ran(self, finding: Finding, failure: str | None) -> None:
        """Log and count a run of the operator's command."""
        self._telemetry.watch_acted(finding.deployment, "hook")
        event = Event.HOOK_RAN if failure is None else Event.HOOK_FAILED
        log(
            self._logger,
            event,
            backend=finding.deployment,
            finding=finding.kind.value,
            why=failure,
        )

    # The proxy's.

    def first_byte(self, ticket: Ticket, now: float) -> None:
        self._telemetry.ttft(now - ticket.arrival)

    def retried(self, ticket: Ticket, backend: str, cause: Signal, why: str) -> None:
        """A backend failed a request before its first byte; it is sent again."""
        self._telemetry.retried(backend, cause)
        fields = {"ticket": ticket.id, "backend": backend, "cause": cause, "why": why}
        log(self._logger, Event.REQUEST_RETRIED, **fields)

    def resumed(self, ticket: Ticket, backend: str, why: str, *, tokens: int) -> None:
        """A backend failed amid an answer; another shall go on with it."""
        self._telemetry.resumed(backend)
        fields = {"ticket": ticket.id, "backend": backend, "why": why, "tokens": tokens}
        log(self._logger, Event.REQUEST_RESUMED, **fields)

    def stopped(self, ticket: Ticket, backend: str, why: str) -> None:
        """The scheduler stopped a request that ran, to save the others there."""
        self._telemetry.stopped(backend)
        log(self._logger, Event.REQUEST_STOPPED, ticket=ticket.id, backend=backend, why=why)

    def used(self, ticket: Ticket, backend: str, usage: Usage) -> None:
        self._telemetry.tokens(backend, usage, tenant=ticket.tenant)

    def finished(
        self, ticket: Ticket, route: str, outcome: Outcome, *, reason: str, phase: Phase
    ) -> None:
        """Count the end of a call that took slots, or wanted to."""
        self._telemetry.request_finished(route, outcome, tenant=ticket.tenant)
        if outcome is Outcome.ABANDONED:
            self._telemetry.abandoned(phase)
        event = _OUTCOME_EVENTS.get(outcome)
        if event is None or (outcome is Outcome.SERVED and not self._logs_access):
            return
        fields = {"ticket": ticket.id, "tenant": ticket.tenant, "route": route}
        log(self._logger, event, **fields, reason=reason, phase=phase)

    def crashed(self, request_id: str, route: str) -> None:
        """A fault of ours; its trace goes to the log under the request's id."""
        log(self._logger, Event.REQUEST_CRASHED, request=request_id, route=route, exc_info=True)


def outcome_of(reason: Reason) -> Outcome:
    """Say whether a refusal came before or after waiting."""
    waited = reason in {Reason.QUEUE_TIMEOUT, Reason.LOADING}
    return Outcome.EXPIRED if waited else Outcome.REFUSED
