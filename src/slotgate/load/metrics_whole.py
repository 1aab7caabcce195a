"""The numbers that only a whole run has: they compare its tenants, or look at the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slotgate.load.fairness import Ledger
from slotgate.load.metrics import View, measure, ordered
from slotgate.load.numbers import quantile, ratio

if TYPE_CHECKING:
    from collections.abc import Callable

    from slotgate.load.record import Record
    from slotgate.load.run import Costs

_QUIET_SECONDS: Final = 10.0
_CALM_WAIT: Final = 1.0


@dataclass(frozen=True, slots=True)
class WholeMetric:
    """A number that only a whole run has: `unit` as in `Metric`."""

    key: str
    unit: str
    help: str
    of: Callable[[View, Ledger], float | None]


def _light_attainment(view: View, ledger: Ledger) -> float | None:
    light = [r for r in view.records if r.arrival.tenant not in ledger.heavy]
    return ratio(sum(view.targets.are_met_by(r) for r in light), len(light))


def _light_inflation(view: View, ledger: Ledger) -> float | None:
    """The worst of the light tenants' 95th percentiles, in relation to running alone."""
    worst = None
    for tenant, alone in view.run.ttft_alone.items():
        if tenant in ledger.heavy or alone <= 0:
            continue
        ttfts = ordered(r.ttft for r in view.records if r.arrival.tenant == tenant)
        if (now := quantile(ttfts, 0.95)) is not None:
            worst = max(worst or 0.0, now / alone)
    return worst


def _utilisation(view: View, _: Ledger) -> float | None:
    run = view.run
    if run.busy_slot_seconds is None or run.slots is None:
        return None
    return ratio(run.busy_slot_seconds, run.slots * run.seconds)


def _recovery(view: View, _: Ledger) -> float | None:
    """From the burst's end until all who arrive in ten seconds wait less than one."""
    ended = view.run.burst_ended_at
    if ended is None:
        return None
    recovered = ended
    for record in sorted(view.records, key=lambda r: r.arrival.at):
        at = record.arrival.at
        if at < ended:
            continue
        if at - recovered >= _QUIET_SECONDS:
            break
        if not _is_calm(record):
            recovered = at
    return recovered - ended


def _is_calm(record: Record) -> bool:
    wait = record.waited if record.waited is not None else record.ttft
    return wait is not None and wait < _CALM_WAIT


WHOLE_METRICS: Final = (
    WholeMetric(
        "slot_utilisation",
        "share",
        "slot time that was used, while requests were offered",
        _utilisation,
    ),
    WholeMetric(
        "light_attainment",
        "share",
        "met the targets, of the tenants that ask for no more than their share",
        _light_attainment,
    ),
    WholeMetric(
        "light_inflation",
        "x",
        "such a tenant's 95th percentile of the time to first token, in relation to running "
        "alone: the worst tenant's",
        _light_inflation,
    ),
    WholeMetric(
        "jain",
        "",
        "Jain's index of service in relation to max-min fair shares; 1 is fair",
        lambda _, ledger: ledger.jain(),
    ),
    WholeMetric(
        "service_difference",
        "cost units",
        "most service that a tenant got ahead of another while both had waiters",
        lambda _, ledger: ledger.widest_lead(),
    ),
    WholeMetric(
        "recovery",
        "s",
        "from the end of the burst until waits stay below 1 s for 10 s",
        _recovery,
    ),
)


def measure_whole(view: View, costs: Costs) -> dict[str, float | None]:
    """Every number of a whole run."""
    ledger = Ledger(view.run, costs)
    return measure(view) | {metric.key: metric.of(view, ledger) for metric in WHOLE_METRICS}
