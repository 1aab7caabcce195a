"""The same rules as the scheduler's, with nothing but lists: slow, short and plainly right.

Each method returns the decisions as pairs of words, ("a", "left") for a grant on a deployment and
("a", "queue_full") for a refusal.  All times come in as arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf, nextafter
from typing import TYPE_CHECKING

from slotgate.core.deployment import State
from slotgate.core.ticket import Ticket

if TYPE_CHECKING:
    from slotgate.core.deployment import DeploymentReport
    from slotgate.core.limits import Limits

Outcome = tuple[str, str]
Measure = Callable[[Ticket], int]
# What an output token costs until speeds are known, in prompt tokens.
OUTPUT_COST = 10.0


@dataclass(eq=False)
class Asking:
    ticket: Ticket
    number: int
    weight: float
    overtaken: list[float] = field(default_factory=list)
    failed_on: tuple[str, int] = ("", 0)


Outgoing = tuple[Asking, str]


@dataclass(eq=False)
class Holding:
    asking: Asking
    place: Place
    free_at: float | None = None
    wrote: bool = False


@dataclass(eq=False)
class Place:
    report: DeploymentReport
    was_ready: bool = False
    hold: State | None = None
    is_removed: bool = False

    is_best: bool = False
    revivals: int = 0
    was_up: bool = False

    @property
    def name(self) -> tuple[str, int]:
        return self.report.id, self.revivals

    @property
    def learned(self) -> State:
        is_kept = self.is_best and self.report.is_ejected
        return State.DEGRADED if is_kept else self.report.state

    @property
    def state(self) -> State:
        if self.is_removed or self.learned is State.DOWN:
            return State.DOWN
        return self.hold or self.learned

    @property
    def standing(self) -> int:
        if self.hold:
            return 0
        if self.report.is_ejected:
            return 1
        return {State.DEGRADED: 2, State.READY: 3}.get(self.report.state, 0)

    @property
    def is_on_trial(self) -> bool:
        return self.state is State.DEGRADED and not self.is_best

    def usable(self) -> int:
        if self.state not in {State.READY, State.DEGRADED}:
            return 0
        slots = self.report.slots - self.report.outside
        return min(1, slots) if self.is_on_trial else slots

    def has_context(self, ticket: Ticket) -> bool:
        ctx = self.report.ctx_per_slot
        return ctx is None or ticket.input_tokens < ctx


class NaiveScheduler:
    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        # How many may wait, and how many bytes: the limits, or what did when they were lowered.
        self.most = (limits.max_waiting, limits.max_waiting_bytes)
        self.places: dict[str, Place] = {}
        self.waiting: list[Asking] = []
        self.holding: list[Holding] = []
        self.count = 0
        self.is_draining = False
        # (model, tenant) -> its service; model -> the tenant that waited last.
        self.service: dict[tuple[str, str], float] = {}
        self.last: dict[str, str] = {}

    # Events.

    def submit(self, ticket: Ticket, now: float) -> list[Outcome]:
        outcomes = self.due(now)
        self.count += 1
        asking = Asking(ticket, self.count, self.weight(ticket))
        reason = self.useless(ticket) or (self.why_late(ticket) if ticket.deadline <= now else "")
        if reason:
            return [*outcomes, (ticket.id, reason), *self.dispatch(now)]
        self.enter(asking)
        outcomes += self.dispatch(now)
        if asking in self.waiting:
            victims = self.victims(asking)
            self.let_go([victim for victim, _ in victims])
            outcomes += [(victim.ticket.id, reason) for victim, reason in victims]
        return outcomes + self.dispatch(now)

    def leave(self, ticket_id: str, now: float, *, is_free: bool) -> list[Outcome]:
        self.let_go([a for a in self.waiting if a.ticket.id == ticket_id])
        self.stop(ticket_id, now, is_free=is_free)
        return self.due(now) + self.dispatch(now)

    def settled(self, ticket_id: str, nth: int, now: float) -> list[Outcome]:
        """Free the nth settling lease of the ticket."""
        outcomes = self.due(now)
        settling = [h for h in self.holding if h.asking.ticket.id == ticket_id and h.free_at]
        for holding in settling[nth : nth + 1]:
            self.release(holding)
        return outcomes + self.dispatch(now)

    def requeue(self, ticket_id: str, now: float, *, is_free: bool) -> list[Outcome]:
        outcomes = self.due(now)
        holding = self.stop(ticket_id, now, is_free=is_free)
        if holding is not None:
            ticket = holding.asking.ticket
            if not holding.wrote and not holding.place.is_removed:
                self.charge(holding.asking, -ticket.input_tokens)
            number, failed_on = holding.asking.number, holding.place.name
            again = Asking(ticket, number, self.weight(ticket), failed_on=failed_on)
            if reason := self.misfit(ticket):
                outcomes.append((ticket.id, reason))
            elif ticket.deadline <= now:
                outcomes.append((ticket.id, self.why_late(ticket)))
            else:
                self.enter(again)
        return outcomes + self.dispatch(now)

    def deployment(self, report: DeploymentReport, now: float) -> list[Outcome]:
        outcomes = self.due(now)
        place = self.places.get(report.id) or Place(report)
        if place.is_removed:
            del self.places[report.id]
        self.places[report.id] = place
        place.report, place.is_removed = report, False
        place.was_ready = place.was_ready or report.state in {State.READY, State.DEGRADED}
        self.keep_the_best()
        return outcomes + self.dismiss() + self.dispatch(now)

    def remove(self, deployment_id: str, now: float) -> list[Outcome]:
        outcomes = self.due(now)
        place = self.places[deployment_id]
        place.is_removed, place.was_ready, place.hold = True, False, None
        self.forget()
        self.keep_the_best()
        return outcomes + self.dismiss() + self.dispatch(now)

    def hold(self, deployment_id: str, hold: State | None, now: float) -> list[Outcome]:
        outcomes = self.due(now)
        self.places[deployment_id].hold = hold
        self.keep_the_best()
        return outcomes + self.dispatch(now)

    def reconfigure(self, limits: Limits, now: float) -> list[Outcome]:
        outcomes = self.due(now)
        pairs = sorted({(a.ticket.tenant, a.ticket.model) for a in self.waiting})
        were_open = {tenant for tenant, _ in pairs if self.is_open(tenant)}
        self.limits = limits
        size = sum(a.ticket.size_bytes for a in self.waiting)
        self.most = (
            max(limits.max_waiting, len(self.waiting)),
            max(limits.max_waiting_bytes, size),
        )
        for asking in self.waiting:
            asking.weight = self.weight(asking.ticket)
        for tenant, model in pairs:
            if self.is_open(tenant) and tenant not in were_open:
                self.lift(model, tenant, nextafter(self.floor(model, but=tenant), -inf))
            elif tenant in were_open and not self.is_open(tenant):
                self.last[model] = tenant
        return outcomes + self.dispatch(now)

    def begin_draining(self, now: float) -> list[Outcome]:
        self.is_draining = True
        return self.tick(now)

    def tick(self, now: float) -> list[Outcome]:
        return self.due(now) + self.dispatch(now)

    def stream(self, ticket_id: str, tokens: int, now: float) -> list[Outcome]:
        outcomes = self.due(now)
        for holding in self.holding:
            if holding.asking.ticket.id == ticket_id and holding.free_at is None:
                holding.wrote = True
                self.charge(holding.asking, OUTPUT_COST * tokens)
        return outcomes + self.dispatch(now)

    # Fairness: the tenant with the least service is next, and who comes back is lifted.

    def enter(self, asking: Asking) -> None:
        model, tenant = asking.ticket.model, asking.ticket.tenant
        if tenant not in self.tenants(model) and self.is_open(tenant):
            self.lift(model, tenant, self.floor(model))
        self.waiting.append(asking)

    def let_go(self, leaving: list[Asking]) -> None:
        for asking in leaving:
            self.waiting.remove(asking)
            model, tenant = asking.ticket.model, asking.ticket.tenant
            if tenant not in self.tenants(model) and self.is_open(tenant):
                self.last[model] = tenant
        self.most = self.lowered(self.waiting)

    def lowered(self, staying: list[Asking]) -> tuple[int, int]:
        """What may wait once no more do than these."""
        size = sum(a.ticket.size_bytes for a in staying)
        return (
            max(self.limits.max_waiting, min(self.most[0], len(staying))),
            max(self.limits.max_waiting_bytes, min(self.most[1], size)),
        )

    def begin(self, holding: Holding) -> None:
        self.holding.append(holding)
        tenant = holding.asking.ticket.tenant
        for model in self.models_of(tenant) if not self.is_open(tenant) else ():
            self.last[model] = tenant

    def release(self, holding: Holding) -> None:
        tenant = holding.asking.ticket.tenant
        was_open = self.is_open(tenant)
        self.holding.remove(holding)
        for model in self.models_of(tenant) if self.is_open(tenant) and not was_open else ():
            self.lift(model, tenant, nextafter(self.floor(model, but=tenant), -inf))

    def floor(self, model: str, but: str = "") -> float:
        """The least service of those that wait and are below their caps, or of the last of them."""
        among = {each for each in self.tenants(model) if self.is_open(each)} - {but}
        if not among and model not in self.last:
            return 0.0
        return min(self.service.get((model, each), 0.0) for each in among or {self.last[model]})

    def lift(self, model: str, tenant: str, floor: float) -> None:
        self.service[model, tenant] = max(self.service.get((model, tenant), 0.0), floor)

    def tenants(self, model: str) -> set[str]:
        return {a.ticket.tenant for a in self.waiting if a.ticket.model == model}

    def models_of(self, tenant: str) -> set[str]:
        return {a.ticket.model for a in self.waiting if a.ticket.tenant == tenant}

    def weight(self, ticket: Ticket) -> float:
        of_class = self.limits.of_class(ticket.priority_class)
        return self.limits.of_tenant(ticket.tenant).weight * of_class.weight

    def charge(self, asking: Asking, cost: float) -> None:
        key = (asking.ticket.model, asking.ticket.tenant)
        self.service[key] = self.service.get(key, 0.0) + cost / asking.weight

    def turn(self, asking: Asking) -> tuple[float, int]:
        ticket = asking.ticket
        return self.service.get((ticket.model, ticket.tenant), 0.0), asking.number

    # Rules.

    def due(self, now: float) -> list[Outcome]:
        late = [a for a in self.waiting if a.ticket.deadline <= now]
        late.sort(key=lambda a: (a.ticket.deadline, a.number))
        self.let_go(late)
        outcomes = [(a.ticket.id, self.why_late(a.ticket)) for a in late]
        over = [h for h in self.holding if h.free_at is not None and h.free_at <= now]
        for holding in over:
            self.release(holding)
        return outcomes

    def stop(self, ticket_id: str, now: float, *, is_free: bool) -> Holding | None:
        for holding in self.holding:
            if holding.asking.ticket.id == ticket_id and holding.free_at is None:
                holding.free_at = now + self.limits.settle_bound_seconds
                if is_free:
                    self.release(holding)
                return holding
        return None

    def keep_the_best(self) -> None:
        for place in self.places.values():
            best = max((other.standing for other in self.serving(place.report.model)), default=0)
            place.is_best = place.standing == best
        for place in self.places.values():
            is_up = place.state in {State.READY, State.DEGRADED}
            place.revivals += is_up and not place.was_up
            place.was_up = is_up

    def failed_on(self, ticket_id: str) -> str:
        return next((a.failed_on[0] for a in self.waiting if a.ticket.id == ticket_id), "")

    def serving(self, model: str) -> list[Place]:
        return [p for p in self.places.values() if p.report.model == model and not p.is_removed]

    def useless(self, ticket: Ticket) -> str:
        if self.is_draining:
            return "draining"
        if not self.serving(ticket.model):
            return "model_not_found"
        absence = self.absence(self.serving(ticket.model))
        return self.misfit(ticket) or ("" if absence == "loading" else absence)

    def absence(self, places: list[Place]) -> str:
        states = [place.state for place in places]
        if {State.READY, State.DEGRADED, State.PAUSED} & set(states):
            return ""
        if State.STARTING in states or State.LOADING in states:
            return "loading"
        return "draining" if State.DRAINING in states else "no_backend"

    def why_late(self, ticket: Ticket) -> str:
        return self.absence(self.serving(ticket.model)) or "queue_timeout"

    def misfit(self, ticket: Ticket) -> str:
        places = self.serving(ticket.model)
        if not places:
            return "model_not_found"
        if not any(place.has_context(ticket) for place in places):
            return "context_length_exceeded"
        known = [p.report.slots for p in places if p.was_ready and p.has_context(ticket)]
        return "invalid_request_error" if any(known) and max(known) < ticket.width else ""

    def hopeless(self, ticket: Ticket) -> str:
        """Why no deployment that might fit the ticket is there, nor comes."""
        places = [
            place
            for place in self.serving(ticket.model)
            if place.has_context(ticket)
            and (not place.was_ready or place.report.slots >= ticket.width)
        ]
        absence = self.absence(places)
        return "" if absence == "loading" else absence

    def shed(self) -> list[Outcome]:
        outcomes = [(a.ticket.id, self.hopeless(a.ticket)) for a in self.waiting]
        self.let_go([a for a in self.waiting if self.hopeless(a.ticket)])
        return [outcome for outcome in outcomes if outcome[1]]

    def dismiss(self) -> list[Outcome]:
        """Refuse those that can never fit, those of the smallest number first."""
        unfit = sorted((a for a in self.waiting if self.misfit(a.ticket)), key=lambda a: a.number)
        self.let_go(unfit)
        return [(a.ticket.id, self.misfit(a.ticket)) for a in unfit]

    def victims(self, newcomer: Asking) -> list[Outgoing]:
        """Who must go for the newcomer: the last of the tenants that have most, or itself."""
        caps = self.limits.tenants.get(newcomer.ticket.tenant)
        own = [a for a in self.waiting if a.ticket.tenant == newcomer.ticket.tenant]
        if caps and caps.max_waiting is not None and len(own) > caps.max_waiting:
            return [(newcomer, "tenant_limit")]
        staying, victims = list(self.waiting), []
        bounds = (self.limits.max_waiting, self.limits.max_waiting_bytes)
        while measure := self.overfull(staying, bounds):
            tenants = sorted({a.ticket.tenant for a in staying})
            parts = {tenant: self.part(staying, tenant, measure) for tenant in tenants}
            largest = max(parts, key=parts.__getitem__)
            if parts[newcomer.ticket.tenant] >= parts[largest]:
                return [(newcomer, "queue_full")]
            last = max((a for a in staying if a.ticket.tenant == largest), key=lambda a: a.number)
            staying.remove(last)
            bounds = self.lowered(staying)
            victims.append((last, "queue_full"))
        return victims

    def overfull(self, staying: list[Asking], bounds: tuple[int, int]) -> Measure | None:
        if len(staying) > bounds[0]:
            return lambda ticket: 1
        size = sum(a.ticket.size_bytes for a in staying)
        return (lambda ticket: ticket.size_bytes) if size > bounds[1] else None

    def part(self, staying: list[Asking], tenant: str, measure: Measure) -> float:
        total = sum(measure(a.ticket) for a in staying if a.ticket.tenant == tenant)
        return total / self.limits.of_tenant(tenant).weight

    def is_open(self, tenant: str) -> bool:
        caps = self.limits.tenants.get(tenant)
        in_flight = sum(h.asking.ticket.tenant == tenant for h in self.holding)
        return caps is None or caps.max_in_flight is None or in_flight < caps.max_in_flight

    def free(self, place: Place) -> int:
        held = sum(h.asking.ticket.width for h in self.holding if h.place is place)
        return max(0, place.usable() - held)

    def dispatch(self, now: float) -> list[Outcome]:
        outcomes = []
        self.waiting.sort(key=lambda a: a.number)
        for model in dict.fromkeys(a.ticket.model for a in self.waiting):
            while outcome := self.grant_one(model, now):
                outcomes.append(outcome)
        if self.is_draining:
            outcomes += self.shed()
        self.forget()
        return outcomes

    def able(self, asking: Asking, slots: Callable[[Place], int]) -> list[Place]:
        """The deployments that would fit the ticket, had they so many slots."""
        ticket = asking.ticket
        places = [
            place
            for place in self.serving(ticket.model)
            if place.has_context(ticket) and place.usable() >= ticket.width
        ]
        others = [place for place in places if place.name != asking.failed_on]
        return [place for place in others or places if slots(place) >= ticket.width]

    def grant_one(self, model: str, now: float) -> Outcome | None:
        line = [a for a in self.waiting if a.ticket.model == model]
        line = [a for a in line if self.is_open(a.ticket.tenant)]
        line.sort(key=self.turn)
        line = [a for a in line if self.able(a, Place.usable)]
        held = self.held(line, now)
        for asking in line:
            fits = self.able(asking, self.free)
            if asking is not line[0]:
                fits = [place for place in fits if place is not held]
            if fits:
                trusted = [place for place in fits if not place.is_on_trial]
                place = max(trusted or fits, key=self.free)
                if asking is not line[0] and place in self.able(line[0], Place.usable):
                    line[0].overtaken.append(now)
                self.let_go([asking])
                self.begin(Holding(asking, place))
                self.charge(asking, asking.ticket.input_tokens)
                return asking.ticket.id, place.report.id
        return None

    def held(self, line: list[Asking], now: float) -> Place | None:
        """The deployment that is kept for the first in line, who has been overtaken too much."""
        if not line or self.able(line[0], self.free):
            return None
        times = line[0].overtaken
        is_patient = len(times) < self.limits.max_bypass and (
            not times or now - times[0] < self.limits.bypass_seconds
        )
        return None if is_patient else max(self.able(line[0], Place.usable), key=self.free)

    def forget(self) -> None:
        for model in {model for model, _ in self.service}:
            if not self.serving(model) and all(a.ticket.model != model for a in self.waiting):
                self.service = {key: s for key, s in self.service.items() if key[0] != model}
                self.last.pop(model, None)
        in_use = {holding.place for holding in self.holding}
        self.places = {
            name: place
            for name, place in self.places.items()
            if place in in_use or not place.is_removed
        }
