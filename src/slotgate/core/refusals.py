"""How a refusal is put: its reason, the setting that refused, and when to come back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.core.calendar import soon
from slotgate.core.decision import Reason, Refused

if TYPE_CHECKING:
    from slotgate.core.clock import Dice
    from slotgate.core.limits import Limits
    from slotgate.core.model import Misfit, Model
    from slotgate.core.room import Overflow
    from slotgate.core.tenants import Tenants
    from slotgate.core.ticket import Ticket
    from slotgate.core.waiter import Waiter

_DEADLINE_HEADER = "x-slotgate-deadline-ms"
# Deadlines are sums of floats.
_EPSILON_SECONDS = 1e-6


class Refusals:
    """Makes refusals; changes nothing but the return calendars."""

    def __init__(self, *, limits: Limits, dice: Dice, tenants: Tenants) -> None:
        self.limits = limits
        self._dice = dice
        self._tenants = tenants

    def unknown_model(self, ticket: Ticket, *, waited: float = 0.0) -> Refused:
        """No deployment serves the model."""
        return Refused(ticket=ticket, reason=Reason.MODEL_NOT_FOUND, waited=waited)

    def stopping(self, ticket: Ticket) -> Refused:
        """The gateway takes nobody any more."""
        delay = soon(self._dice)
        return Refused(ticket=ticket, reason=Reason.DRAINING, retry_after=delay)

    def unavailable(self, ticket: Ticket, reason: Reason, *, waited: float = 0.0) -> Refused:
        """There is nothing to serve with, whatever the load."""
        return Refused(
            ticket=ticket,
            reason=reason,
            waited=waited,
            retry_after=soon(self._dice),
            setting="backends",
        )

    def misfit(self, ticket: Ticket, misfit: Misfit, *, waited: float = 0.0) -> Refused:
        """It could not run even if nobody else did; coming back does not help."""
        if misfit.reason is Reason.MODEL_NOT_FOUND:
            return self.unknown_model(ticket, waited=waited)
        is_too_long = misfit.reason is Reason.CONTEXT_LENGTH_EXCEEDED
        return Refused(
            ticket=ticket,
            reason=misfit.reason,
            waited=waited,
            limit=misfit.limit,
            value=ticket.input_tokens if is_too_long else ticket.width,
            setting="ctx_per_slot" if is_too_long else "slots",
        )

    def overflow(self, waiter: Waiter, overflow: Overflow, model: Model, now: float) -> Refused:
        """The waiting room, or the tenant's part of it, is full."""
        ticket = waiter.ticket
        return Refused(
            ticket=ticket,
            reason=overflow.reason,
            waited=now - waiter.since,
            predicted_wait=waiter.predicted_wait,
            retry_after=self._return_date(waiter, model, now),
            limit=overflow.limit,
            value=overflow.value,
            setting=overflow.setting,
        )

    def timed_out(self, waiter: Waiter, model: Model, now: float) -> Refused:
        """Its deadline has come."""
        ticket, waited = waiter.ticket, now - waiter.since
        absence = model.absence()
        if absence is not None:
            return self.unavailable(ticket, absence, waited=waited)
        limit, value, setting = self._what_took_too_long(waiter, waited)
        return Refused(
            ticket=ticket,
            reason=Reason.QUEUE_TIMEOUT,
            waited=waited,
            predicted_wait=waiter.predicted_wait,
            retry_after=self._return_date(waiter, model, now),
            limit=limit,
            value=value,
            setting=setting,
        )

    def in_vain(self, waiter: Waiter, model: Model, now: float) -> Refused:
        """It is not expected to start in time."""
        ticket, predicted = waiter.ticket, waiter.predicted_wait
        limit = waiter.start_by - waiter.since
        return Refused(
            ticket=ticket,
            reason=Reason.WAIT_TOO_LONG,
            predicted_wait=predicted,
            retry_after=self._return_date(waiter, model, now),
            limit=limit,
            value=predicted,
            setting=self._budget_setting(ticket),
        )

    def _what_took_too_long(self, waiter: Waiter, waited: float) -> tuple[float, float, str]:
        ticket = waiter.ticket
        cap = self._tenants.cap(ticket.tenant)
        if cap is not None and not self._tenants.is_open(ticket.tenant):
            in_flight = self._tenants.in_flight(ticket.tenant)
            return cap, in_flight, f"tenants.{ticket.tenant}.max_in_flight"
        return ticket.deadline - ticket.arrival, waited, self._budget_setting(ticket)

    def _budget_setting(self, ticket: Ticket) -> str:
        if ticket.deadline - ticket.arrival < self._budget(ticket) - _EPSILON_SECONDS:
            return _DEADLINE_HEADER
        return f"classes.{ticket.priority_class}.budget"

    def _return_date(self, waiter: Waiter, model: Model, now: float) -> float:
        ticket, predicted_wait = waiter.ticket, waiter.predicted_wait
        rate = model.drain_rate.per_second(now, slots=model.slots)
        if predicted_wait is None or waiter.since < now:
            # Nothing was foretold, or that was another queue: as if it went to the end of this one.
            predicted_wait = (len(model.queue) + 1) / rate
        # A newcomer is served in time once the queue is within its budget; half of it for safety.
        base = max(1.0, predicted_wait - self._budget(ticket) / 2)
        weight = self.limits.of_tenant(ticket.tenant).weight
        return model.calendar.book(now, tenant=ticket.tenant, weight=weight, base=base, rate=rate)

    def _budget(self, ticket: Ticket) -> float:
        return self.limits.of_class(ticket.priority_class).budget
