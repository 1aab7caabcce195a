"""One rehearsal: a load, a front and servers, run to its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from slotgate.load.run import Run
from slotgate.sim.agenda import Agenda
from slotgate.sim.clients import Clients
from slotgate.sim.clock import VirtualClock
from slotgate.sim.front import Stage
from slotgate.sim.metering import Meter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from slotgate.load.record import Record
    from slotgate.load.workloads import Workload
    from slotgate.sim.clients import BackOff
    from slotgate.sim.front import Front
    from slotgate.slotsim import ServerSpec


class MakesFront(Protocol):
    """A policy: how requests get to the servers."""

    def __call__(self, stage: Stage) -> Front: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """What came of it.

    `busy_seconds` are those of all slots while requests were offered.  `deferred` is how many
    requests have waited inside one server at worst.  `happened` counts all that came about, and
    `core_events` the calls into the scheduler; `core_seconds` is 0 without a stopwatch.
    """

    workload: Workload
    records: tuple[Record, ...]
    slots: int
    busy_seconds: float
    deferred: int
    happened: int
    core_events: int
    core_seconds: float

    def as_run(self, seed: int | None = None) -> Run:
        """What a report is made from."""
        return Run(
            records=self.records,
            seconds=self.workload.seconds,
            seed=seed,
            slots=self.slots,
            busy_slot_seconds=self.busy_seconds,
            heavy=self.workload.heavy,
            burst_ended_at=self.workload.burst_ended_at,
        )


def rehearse(
    workload: Workload,
    specs: Sequence[ServerSpec],
    make_front: MakesFront,
    *,
    back_off: BackOff | None = None,
    stopwatch: Callable[[], float] | None = None,
) -> Rehearsal:
    """Let the workload's requests come, and everything end.

    Without a `back_off` refused clients do not come back.
    """
    clock = VirtualClock()
    agenda = Agenda(clock)
    clients = Clients(agenda=agenda, clock=clock, back_off=back_off or (lambda *_: None))
    meter = Meter(stopwatch)
    front = make_front(
        Stage(
            specs=specs,
            agenda=agenda,
            clock=clock,
            audience=clients,
            until=workload.seconds,
            meter=meter,
        )
    )
    clients.front = front
    clients.expect(workload.arrivals)
    agenda.run()
    return Rehearsal(
        workload=workload,
        records=tuple(clients.records()),
        slots=sum(spec.slots for spec in specs),
        busy_seconds=front.slot_seconds.busy,
        deferred=front.backends.max_deferred(),
        happened=agenda.done,
        core_events=meter.events,
        core_seconds=meter.seconds,
    )
