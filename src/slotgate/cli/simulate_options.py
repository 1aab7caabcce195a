"""What `slotgate simulate` was asked for, and whether that makes sense together."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isinf, isnan
from typing import TYPE_CHECKING

from slotgate.errors import ConfigError
from slotgate.load.run import Targets
from slotgate.load.workloads import RECIPES
from slotgate.sim.policies import POLICIES
from slotgate.sim.setting import Servers, parse_pace
from slotgate.slotsim import ServerSpec

if TYPE_CHECKING:
    from pathlib import Path

    from slotgate.load.backoff import ClientKind

DEFAULT_WORKLOAD = "overload"
_FINITE = ("load", "duration")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The options, as they were given."""

    trace: Path | None
    workload: str | None
    policies: tuple[str, ...]
    load: float | None
    hog_share: float
    duration: float
    seeds: int
    slots: int
    backends: int
    pace: str
    ctx: int
    kv_pool: int | None
    batch: int
    ttft: float
    tpot: float | None
    patience: float
    client: ClientKind
    config: Path | None
    html: Path | None

    def check(self) -> None:
        """ConfigError for what is unknown, or contradicts itself."""
        if self.trace is not None and self.workload is not None:
            raise ConfigError("give a TRACE or a --workload, not both")
        if self.workload is not None and self.workload not in RECIPES:
            raise ConfigError(
                f"--workload {self.workload}: there are {', '.join(RECIPES)}, or a TRACE"
            )
        for name in self.policies:
            if name not in POLICIES:
                raise ConfigError(f"--policy {name}: there are {', '.join(POLICIES)}")
        if len(set(self.policies)) < len(self.policies):
            raise ConfigError("--policy: the same one is named twice")
        if self.html is not None and len(self.policies) > 1:
            raise ConfigError("--html takes one --policy: a page shows one")
        parse_pace(self.pace, self.slots)
        self._check_numbers()

    def _check_numbers(self) -> None:
        """What is no number slips through bounds."""
        for name in ("load", "hog_share", "duration", "ttft", "tpot", "patience"):
            value = getattr(self, name)
            if value is not None and (isnan(value) or (name in _FINITE and isinf(value))):
                raise ConfigError(f"--{name.replace('_', '-')} {value}: expected a number")

    @property
    def servers(self) -> Servers:
        spec = ServerSpec(
            slots=self.slots,
            ctx=self.ctx,
            pace=parse_pace(self.pace, self.slots),
            pool=self.kv_pool,
            batch=self.batch,
        )
        return Servers(spec, self.backends)

    @property
    def targets(self) -> Targets:
        return Targets(ttft=self.ttft, tpot=inf if self.tpot is None else self.tpot)

    @property
    def load_name(self) -> str:
        return self.trace.name if self.trace is not None else self.workload or DEFAULT_WORKLOAD
