"""Every number of a set of requests, declared once: its key, unit, meaning, and how it is found.

The table, the JSON document, the page and the reference are all made from these declarations.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from slotgate.load.numbers import quantile, ratio
from slotgate.load.record import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from slotgate.load.record import Record
    from slotgate.load.run import Run, Targets


class View:
    """Some records of one run, with what several metrics ask of them."""

    def __init__(self, run: Run, records: Sequence[Record], targets: Targets) -> None:
        self.run = run
        self.records = records
        self.targets = targets

    @cached_property
    def good(self) -> list[Record]:
        return [record for record in self.records if self.targets.are_met_by(record)]

    def part(self, outcome: Outcome) -> float | None:
        return ratio(sum(r.outcome is outcome for r in self.records), len(self.records))

    @cached_property
    def refused(self) -> list[Record]:
        """Those that were refused at least once, whatever became of them."""
        return [record for record in self.records if _was_told_no(record)]

    @cached_property
    def ttfts(self) -> list[float]:
        return ordered(r.ttft for r in self.records)

    @cached_property
    def tpots(self) -> list[float]:
        return ordered(r.tpot for r in self.records)

    @cached_property
    def waits(self) -> list[float]:
        return ordered(r.waited for r in self.records)

    @cached_property
    def refusal_times(self) -> list[float]:
        return ordered(r.refused_after for r in self.records)

    @cached_property
    def tokens_done(self) -> int:
        return sum(r.input_done + r.output_done for r in self.records)

    @cached_property
    def tokens_wasted(self) -> int:
        # What was done twice for a good request is wasted too.
        good = {id(record) for record in self.good}
        return sum(
            r.input_done + r.output_done if id(r) not in good else _done_twice(r)
            for r in self.records
        )


@dataclass(frozen=True, slots=True)
class Metric:
    """A number of a report.  `unit` is "" for a ratio, "share" for one from 0 to 1."""

    key: str
    unit: str
    help: str
    of: Callable[[View], float | None]


def _share(outcome: Outcome) -> Callable[[View], float | None]:
    return lambda view: view.part(outcome)


def _percentiles(
    name: str, what: str, of: Callable[[View], list[float]]
) -> tuple[Metric, Metric, Metric]:
    return (
        Metric(f"{name}_p50", "s", f"{what}: median", lambda v: quantile(of(v), 0.5)),
        Metric(f"{name}_p95", "s", "its 95th percentile", lambda v: quantile(of(v), 0.95)),
        Metric(f"{name}_p99", "s", "its 99th percentile", lambda v: quantile(of(v), 0.99)),
    )


def _eventual(view: View) -> float | None:
    return ratio(sum(map(view.targets.are_met_at_last_by, view.records)), len(view.records))


def _goodput_requests(view: View) -> float:
    return len(view.good) / view.run.seconds


def _goodput_tokens(view: View) -> float:
    tokens = sum(min(r.output_done, r.arrival.wanted_tokens * r.arrival.width) for r in view.good)
    return tokens / view.run.seconds


def _output_tokens(view: View) -> float:
    return sum(r.output_done for r in view.records) / view.run.seconds


def _amplification(view: View) -> float | None:
    return ratio(sum(r.attempts for r in view.records), len(view.records))


def _calibration(view: View) -> float | None:
    pairs = [
        (r.waited, r.predicted_wait)
        for r in view.records
        if r.waited is not None and r.predicted_wait is not None and r.predicted_wait > 0
    ]
    return ratio(sum(waited <= predicted for waited, predicted in pairs), len(pairs))


def _honesty(view: View) -> float | None:
    """Each attempt but the first is a return; only the last of them can have been let in."""
    returned = [r for r in view.records if r.attempts > 1 and r.retry_after is not None]
    let_in = sum(r.outcome is Outcome.SERVED or r.ttft is not None for r in returned)
    return ratio(let_in, sum(r.attempts - 1 for r in returned))


def _retry_after(view: View) -> float | None:
    return ratio(sum(r.retry_after is not None for r in view.refused), len(view.refused))


METRICS: Final = (
    Metric("requests", "", "requests offered, each counted once", lambda v: len(v.records)),
    Metric("attainment", "share", "met the targets", lambda v: ratio(len(v.good), len(v.records))),
    Metric("eventual", "share", "met the first-token target in some attempt", _eventual),
    Metric("goodput_requests", "requests/s", "requests that met the targets", _goodput_requests),
    Metric("goodput_tokens", "tokens/s", "output tokens of those requests", _goodput_tokens),
    Metric("served", "share", "got their whole answer, in time or not", _share(Outcome.SERVED)),
    Metric("refused", "share", "were told no before they waited", _share(Outcome.REFUSED)),
    Metric("expired", "share", "were told no after they had waited", _share(Outcome.EXPIRED)),
    Metric("abandoned", "share", "were left by their client", _share(Outcome.ABANDONED)),
    Metric("failed", "share", "ended in an error or broke off", _share(Outcome.FAILED)),
    Metric(
        "wasted",
        "share",
        "tokens read and written for requests that missed the targets, or done twice, of all",
        lambda v: ratio(v.tokens_wasted, v.tokens_done),
    ),
    Metric("output_tokens", "tokens/s", "output tokens, wanted or not", _output_tokens),
    *_percentiles(
        "ttft",
        "time to first token from the first attempt, of those that got one",
        lambda v: v.ttfts,
    ),
    *_percentiles("tpot", "time per token after the first, of each request", lambda v: v.tpots),
    *_percentiles(
        "wait", "time in the queue of those that were let in, where it is known", lambda v: v.waits
    ),
    Metric("wait_calibration", "share", "waits no longer than was predicted", _calibration),
    *_percentiles("refusal", "time until a refusal came", lambda v: v.refusal_times),
    Metric("retry_after", "share", "refusals that said when to come back", _retry_after),
    Metric("retry_after_honesty", "share", "returns after one that were let in", _honesty),
    Metric("retry_amplification", "", "attempts for each request", _amplification),
)


def measure(view: View) -> dict[str, float | None]:
    """Every number that any set of records has."""
    return {metric.key: metric.of(view) for metric in METRICS}


def ordered(values: Iterable[float | None]) -> list[float]:
    return sorted(value for value in values if value is not None)


def _was_told_no(record: Record) -> bool:
    is_told = record.outcome in (Outcome.REFUSED, Outcome.EXPIRED)
    return is_told or record.retry_after is not None or record.refused_after is not None


def _done_twice(record: Record) -> int:
    arrival = record.arrival
    extra_input = max(0, record.input_done - arrival.input_tokens)
    # A prompt estimate may be a little off; only a whole second reading is one.
    extra_output = max(0, record.output_done - arrival.wanted_tokens * arrival.width)
    return (extra_input if record.attempts > 1 else 0) + extra_output
