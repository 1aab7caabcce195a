"""Records for tests: what is not said is as it is when all goes well."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from slotgate.load.arrival import Arrival
from slotgate.load.record import Outcome, Record

ARRIVAL = Arrival(at=0.0, input_tokens=100, output_tokens=10)


def record(
    at: float = 0.0, *, tenant: str = "default", outcome: Outcome = Outcome.SERVED, **fields: Any
) -> Record:
    """A request that was served at once unless something else is said."""
    arrival = replace(ARRIVAL, at=at, tenant=tenant)
    served = outcome is Outcome.SERVED
    values: dict[str, Any] = {
        "attempts": 1,
        "ended_at": at + 1.0,
        "ttft": 0.1 if served else None,
        "tpot": 0.01 if served else None,
        "waited": 0.0 if served else None,
        "input_done": 100 if served else 0,
        "output_done": 10 if served else 0,
    }
    return Record(arrival=arrival, outcome=outcome, **(values | fields))
