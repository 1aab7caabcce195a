"""The report on a load: one tree of values, which `render` writes as table, JSON or page."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slotgate.load.metrics import View, measure
from slotgate.load.metrics_whole import measure_whole
from slotgate.load.numbers import Estimate, estimate
from slotgate.load.run import Costs, Targets
from slotgate.load.timeline import Timeline, timeline

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from slotgate.load.record import Record
    from slotgate.load.run import Run

TARGETS: Final = Targets()
COSTS: Final = Costs()


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The numbers of some requests, by the keys of `metrics`; what is unknown is left out."""

    name: str
    values: Mapping[str, Estimate]

    def mean(self, key: str) -> float | None:
        found = self.values.get(key)
        return None if found is None else found.mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What several runs of one load gave.

    `notes` are sentences for the reader, such as what cut a run short.  `facts` say what was run:
    names and values that are shown as they are.
    """

    title: str
    facts: Mapping[str, str]
    notes: tuple[str, ...]
    targets: Targets
    seeds: tuple[int | None, ...]
    seconds: float
    whole: Group
    tenants: tuple[Group, ...]
    classes: tuple[Group, ...]
    timeline: Timeline


def make_report(
    runs: Sequence[Run],
    *,
    title: str,
    targets: Targets = TARGETS,
    costs: Costs = COSTS,
    facts: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
) -> Report:
    """Compare the runs' records with the targets; ValueError without a run."""
    if not runs:
        raise ValueError("a report needs a run")
    whole = [measure_whole(View(run, run.records, targets), costs) for run in runs]
    return Report(
        title=title,
        facts=dict(facts or {}),
        notes=tuple(notes),
        targets=targets,
        seeds=tuple(run.seed for run in runs),
        seconds=max(run.seconds for run in runs),
        whole=_group("all", whole),
        tenants=_groups(runs, targets, lambda record: record.arrival.tenant),
        classes=_groups(runs, targets, lambda record: record.arrival.priority_class),
        timeline=timeline(runs, targets),
    )


def _groups(
    runs: Sequence[Run], targets: Targets, key: Callable[[Record], str]
) -> tuple[Group, ...]:
    """The requests by a key, in its order."""
    measured: dict[str, list[dict[str, float | None]]] = defaultdict(list)
    for run in runs:
        parts: dict[str, list[Record]] = defaultdict(list)
        for record in run.records:
            parts[key(record)].append(record)
        for name, records in parts.items():
            measured[name].append(measure(View(run, records, targets)))
    return tuple(_group(name, measured[name]) for name in sorted(measured))


def _group(name: str, measured: Sequence[Mapping[str, float | None]]) -> Group:
    keys = measured[0]
    found = {key: estimate(values[key] for values in measured) for key in keys}
    return Group(name=name, values={k: value for k, value in found.items() if value is not None})
