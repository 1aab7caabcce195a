"""One rehearsal: a load, a front and servers, run to its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from slotgate.sim.agenda import Agenda
from slotgate.sim.clients import Clients, NoRetries
from slotgate.sim.clock import VirtualClock
from slotgate.sim.metering import Meter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from slotgate.load.arrival import Arrival
    from slotgate.load.record import Record
    from slotgate.sim.clients import BackOff
    from slotgate.sim.front import Front
    from slotgate.slotsim import ServerSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What a front is set up on."""

    specs: Sequence[ServerSpec]
    agenda: Agenda
    clock: VirtualClock
    clients: Clients
    until: float
    meter: Meter


class MakesFront(Protocol):
    """A policy: how requests get to the servers."""

    def __call__(self, stage: Stage) -> Front: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What came of a rehearsal.

    `busy_seconds` are those of all slots up to `duration`.  `deferred` is how many requests have
    waited inside one server at worst.  `core_seconds` is 0 without a stopwatch.
    """

    records: list[Record]
    duration: float
    slots: int
    busy_seconds: float
    deferred: int
    happened: int
    core_events: int
    core_seconds: float

    @property
    def utilisation(self) -> float:
        return self.busy_seconds / (self.slots * self.duration) if self.duration else 0.0


def rehearse(
    arrivals: Iterable[Arrival],
    specs: Sequence[ServerSpec],
    make_front: MakesFront,
    *,
    duration: float,
    back_off: BackOff | None = None,
    stopwatch: Callable[[], float] | None = None,
) -> Run:
    """Let the arrivals come, in order of time, and everything end; count slots up to `duration`."""
    clock = VirtualClock()
    agenda = Agenda(clock)
    clients = Clients(agenda=agenda, clock=clock, back_off=back_off or NoRetries())
    meter = Meter(stopwatch)
    front = make_front(
        Stage(
            specs=specs, agenda=agenda, clock=clock, clients=clients, until=duration, meter=meter
        )
    )
    clients.front = front
    clients.expect(arrivals)
    agenda.run()
    return Run(
        records=clients.records(),
        duration=duration,
        slots=sum(spec.slots for spec in specs),
        busy_seconds=front.slot_seconds.busy,
        deferred=front.backends.max_deferred(),
        happened=agenda.done,
        core_events=meter.events,
        core_seconds=meter.seconds,
    )
