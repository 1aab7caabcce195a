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
        self._limits = limits
        self._dice = dice
        self._tenants = tenants

    def unknown_model(self, ticket: Ticket) -> Refused:
        """No deployment serves the model."""
        return Refused(ticket=ticket, reason=Reason.MODEL_NOT_FOUND)

    def unavailable(self, ticket: Ticket, reason: Reason, *, waited: float = 0.0) -> Refused:
        """There is nothing to serve with, whatever the load."""
        return Refused(
            ticket=ticket,
            reason=reason,
            waited=waited,
            retry_after=soon(self._dice),
            setting="" if reason is Reason.DRAINING else "backends",
        )

    def misfit(self, ticket: Ticket, misfit: Misfit, *, waited: float = 0.0) -> Refused:
        """It could not run even if nobody else did; coming back does not help."""
        is_too_long = misfit.reason is Reason.CONTEXT_LENGTH_EXCEEDED
        return Refused(
            ticket=ticket,
            reason=misfit.reason,
            waited=waited,
            limit=misfit.limit,
            value=ticket.input_tokens if is_too_long else ticket.width,
            setting="ctx_per_slot" if is_too_long else "slots",
        )

    def overflow(self, ticket: Ticket, overflow: Overflow, model: Model, now: float) -> Refused:
        """The waiting room, or the tenant's part of it, is full."""
        return Refused(
            ticket=ticket,
            reason=overflow.reason,
            retry_after=self._return_date(ticket, model, now),
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
            retry_after=self._return_date(ticket, model, now),
            limit=limit,
            value=value,
            setting=setting,
        )

    def _what_took_too_long(self, waiter: Waiter, waited: float) -> tuple[float, float, str]:
        ticket = waiter.ticket
        cap = self._tenants.cap(ticket.tenant)
        if cap is not None and not self._tenants.is_open(ticket.tenant):
            in_flight = self._tenants.in_flight(ticket.tenant)
            return cap, in_flight, f"tenants.{ticket.tenant}.max_in_flight"
        allowed = ticket.deadline - ticket.arrival
        if allowed < self._budget(ticket) - _EPSILON_SECONDS:
            return allowed, waited, _DEADLINE_HEADER
        return allowed, waited, f"classes.{ticket.priority_class}.budget"

    def _return_date(self, ticket: Ticket, model: Model, now: float) -> float:
        rate = model.drain_rate.per_second(now, slots=model.slots)
        predicted_wait = (len(model.queue) + 1) / rate
        # A newcomer is served in time once the queue is within its budget; half of it for safety.
        base = max(1.0, predicted_wait - self._budget(ticket) / 2)
        return model.calendar.book(now, base=base, rate=rate)

    def _budget(self, ticket: Ticket) -> float:
        return self._limits.class_budget_seconds.get(ticket.priority_class, 0.0)
