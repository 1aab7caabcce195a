"""How a load went over time, by when the requests came: what the plots of a report show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slotgate.load.numbers import quantile
from slotgate.load.record import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slotgate.load.record import Record
    from slotgate.load.run import Run, Targets

BINS: Final = 60
# What a request came to, in the order in which a plot stacks it.
KINDS: Final = ("good", "late", "refused", "expired", "abandoned", "failed")
_POINTS: Final = 101


@dataclass(frozen=True, slots=True)
class Timeline:
    """Bins of equal length; all rates are means over the runs.

    `rates` has requests a second by kind, then by bin; `ttfts` the median and the 95th percentile
    of the time to first token by bin, over all runs, None where nobody got one.  `ttft_quantiles`
    are 101 quantiles from 0 to 1 of the whole load.
    """

    bin_seconds: float
    rates: dict[str, tuple[float, ...]]
    ttfts: tuple[tuple[float, float] | None, ...]
    ttft_quantiles: tuple[float, ...]


def kind_of(record: Record, targets: Targets) -> str:
    """One of `KINDS`."""
    if record.outcome is not Outcome.SERVED:
        return record.outcome.value
    return "good" if targets.are_met_by(record) else "late"


def timeline(runs: Sequence[Run], targets: Targets) -> Timeline:
    seconds = max(run.seconds for run in runs)
    each = seconds / BINS
    rates = {kind: [0.0] * BINS for kind in KINDS}
    ttfts: list[list[float]] = [[] for _ in range(BINS)]
    for run in runs:
        for record in run.records:
            place = min(int(record.arrival.at / each), BINS - 1)
            rates[kind_of(record, targets)][place] += 1 / (each * len(runs))
            if record.ttft is not None:
                ttfts[place].append(record.ttft)
    return Timeline(
        each,
        {kind: tuple(values) for kind, values in rates.items()},
        tuple(_middle_and_tail(values) for values in ttfts),
        _quantiles([value for values in ttfts for value in values]),
    )


def _middle_and_tail(values: list[float]) -> tuple[float, float] | None:
    values.sort()
    middle, tail = quantile(values, 0.5), quantile(values, 0.95)
    return None if middle is None or tail is None else (middle, tail)


def _quantiles(values: list[float]) -> tuple[float, ...]:
    values.sort()
    found = (quantile(values, i / (_POINTS - 1)) for i in range(_POINTS))
    return tuple(value for value in found if value is not None)
