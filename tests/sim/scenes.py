"""Small rehearsals: two slots that write ten tokens a second and read a hundred."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from slotgate.core import Limits
from slotgate.load.arrival import Arrival
from slotgate.load.workloads import Workload
from slotgate.sim.policies import BareServers, Scheduled
from slotgate.sim.rehearsal import Rehearsal, rehearse
from slotgate.slotsim import Pace, ServerSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slotgate.load.record import Record
    from slotgate.sim.clients import BackOff
    from slotgate.sim.rehearsal import MakesFront

BARE = BareServers()


def spec(slots: int = 2, *, pool: int | None = None, batch: int = 2048) -> ServerSpec:
    pace = Pace.constant(10, slots=slots, prefill=100)
    return ServerSpec(slots=slots, ctx=1000, pace=pace, pool=pool, batch=batch)


def arrival(at: float, read: int = 10, write: int = 10, **more: Any) -> Arrival:
    return Arrival(at=at, input_tokens=read, output_tokens=write, **more)


def gateway(
    budget: float | None = None, *, limits: Mapping[str, Any] | None = None, **more: Any
) -> Scheduled:
    """A scheduler; with a budget, deadlines."""
    budgets = {} if budget is None else {"standard": budget}
    return Scheduled(
        dice=random.Random(1), limits=Limits(**(limits or {})), budgets=budgets, **more
    )


def play(
    front: MakesFront,
    *arrivals: Arrival,
    servers: list[ServerSpec] | None = None,
    seconds: float = 60.0,
    back_off: BackOff | None = None,
) -> Rehearsal:
    workload = Workload(name="scene", seconds=seconds, arrivals=arrivals)
    return rehearse(workload, servers or [spec()], front, back_off=back_off)


def ttft(record: Record) -> float:
    assert record.ttft is not None
    return record.ttft


def told(rehearsal: Rehearsal) -> list[str]:
    """Each request as `OUTCOME ENDED_AT`."""
    return [_line(record) for record in rehearsal.records]


def _line(record: Record) -> str:
    return f"{record.outcome} {record.ended_at:.2f}"
