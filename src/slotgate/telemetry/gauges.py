"""The numbers that are read when somebody asks, not counted as things happen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from typing_extensions import override

from slotgate.core.deployment import State
from slotgate.telemetry import catalog


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendGauges:
    """One backend now.  `slots` is what it has; the others say what those are busy with."""

    name: str
    state: State
    slots: int
    is_held: bool = False
    running_slots: int = 0
    settling_slots: int = 0
    outside_slots: int = 0
    running_leases: int = 0
    settling_leases: int = 0

    @property
    def is_up(self) -> bool:
        return self.state in {State.READY, State.DEGRADED}

    @property
    def idle_slots(self) -> int:
        busy = self.running_slots + self.settling_slots + self.outside_slots
        return max(0, self.slots - busy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """Everything now, taken from the scheduler's snapshot."""

    waiting: int = 0
    waiting_bytes: int = 0
    backends: tuple[BackendGauges, ...] = ()


class GaugeCollector(Collector):
    """Asks for the gauges once at each scrape, so that all come from the same moment."""

    def __init__(self, read: Callable[[], Gauges]) -> None:
        self._read = read

    @override
    def collect(self) -> Iterator[Family]:
        now = self._read()
        yield _family(catalog.WAITING, [((), now.waiting)])
        yield _family(catalog.WAITING_BYTES, [((), now.waiting_bytes)])
        yield _family(catalog.LEASES, (item for b in now.backends for item in _leases(b)))
        yield _family(catalog.SLOTS, (item for b in now.backends for item in _slots(b)))
        yield _family(catalog.BACKEND_UP, (((b.name,), int(b.is_up)) for b in now.backends))
        yield _family(catalog.BACKEND_HELD, (((b.name,), int(b.is_held)) for b in now.backends))
        yield _family(catalog.BACKEND_STATE, (item for b in now.backends for item in _states(b)))


Sample = tuple[tuple[str, ...], int]


def _leases(backend: BackendGauges) -> Iterator[Sample]:
    yield (backend.name, "running"), backend.running_leases
    yield (backend.name, "settling"), backend.settling_leases


def _slots(backend: BackendGauges) -> Iterator[Sample]:
    yield (backend.name, "idle"), backend.idle_slots
    yield (backend.name, "running"), backend.running_slots
    yield (backend.name, "settling"), backend.settling_slots
    yield (backend.name, "outside"), backend.outside_slots


def _states(backend: BackendGauges) -> Iterator[Sample]:
    for state in State:
        yield (backend.name, state), int(backend.state is state)


def _family(metric: catalog.Metric, samples: Iterable[Sample]) -> Family:
    family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family
