"""One run of a load, as it was measured, and what it is held against."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from slotgate.load.record import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slotgate.load.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """What a request must meet to count as good.

    `ttft` is in seconds to the first token, from the first attempt; `tpot` in seconds a token
    after it.  A request is good that was served whole and met both.
    """

    ttft: float = 10.0
    tpot: float = inf

    def are_met_by(self, record: Record) -> bool:
        return (
            record.outcome is Outcome.SERVED
            and record.ttft is not None
            and record.ttft <= self.ttft
            and (record.tpot is None or record.tpot <= self.tpot)
        )

    def are_met_at_last_by(self, record: Record) -> bool:
        """Whether its last attempt met the first-token target, however late after the first."""
        since_last = record.ttft if record.last_ttft is None else record.last_ttft
        is_served = record.outcome is Outcome.SERVED
        return is_served and since_last is not None and since_last <= self.ttft


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What a token costs, in units of one prompt token: service is counted in these."""

    input: float = 1.0
    output: float = 10.0

    def of(self, input_tokens: int, output_tokens: int) -> float:
        return self.input * input_tokens + self.output * output_tokens


@dataclass(frozen=True, slots=True)
class Service:
    """The server worked so many cost units for a tenant, at this time."""

    at: float
    tenant: str
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one run gave; several of the same load differ in their seed.

    `seconds` is how long requests were offered: rates are over this time, though some end later.
    `busy_slot_seconds` is the time that slots worked until `seconds`, all together.  `services`,
    if given, are in order of time; else they are taken from the records.  `heavy` are the tenants
    that ask for more than their share; None: those that max-min shares say.  `weights` are the
    tenants' shares, 1 for who is missing.  `burst_ended_at` asks how long the recovery took.
    `ttft_alone` is the 95th percentile of a tenant's time to first token when it runs alone.
    """

    records: tuple[Record, ...]
    seconds: float
    seed: int | None = None
    slots: int | None = None
    busy_slot_seconds: float | None = None
    services: tuple[Service, ...] = ()
    heavy: frozenset[str] | None = None
    weights: Mapping[str, float] = field(default_factory=dict)
    burst_ended_at: float | None = None
    ttft_alone: Mapping[str, float] = field(default_factory=dict)
