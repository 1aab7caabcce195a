"""A report as rows of words and numbers, for a terminal or a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slotgate.load.metrics import METRICS
from slotgate.load.metrics_whole import WHOLE_METRICS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slotgate.load.numbers import Estimate
    from slotgate.load.report import Group, Report

Rows = list[tuple[str, ...]]

# How the numbers are put together: a name, and the metrics that stand in its row.
_SUMMARY: Final = (
    ("met the targets", ("attainment",)),
    ("goodput", ("goodput_requests", "goodput_tokens")),
    ("served", ("served",)),
    ("refused at once", ("refused",)),
    ("expired in the queue", ("expired",)),
    ("abandoned", ("abandoned",)),
    ("failed", ("failed",)),
    ("wasted tokens", ("wasted",)),
    ("slots in use", ("slot_utilisation",)),
    ("first token p50, p95, p99", ("ttft_p50", "ttft_p95", "ttft_p99")),
    ("per token p50, p95, p99", ("tpot_p50", "tpot_p95", "tpot_p99")),
    ("queue wait p50, p95, p99", ("wait_p50", "wait_p95", "wait_p99")),
    ("waits at or under the prediction", ("wait_calibration",)),
    ("refusal after p50, p95, p99", ("refusal_p50", "refusal_p95", "refusal_p99")),
    ("refusals with Retry-After", ("retry_after",)),
    ("let in when they came back then", ("retry_after_honesty",)),
    ("in time in some attempt", ("eventual",)),
    ("attempts for each request", ("retry_amplification",)),
    ("light tenants met the targets", ("light_attainment",)),
    ("their first token, against alone", ("light_inflation",)),
    ("Jain's index of fair shares", ("jain",)),
    ("most service ahead", ("service_difference",)),
    ("recovered after", ("recovery",)),
)
_GROUP: Final = (
    ("requests", "requests"),
    ("in target", "attainment"),
    ("served", "served"),
    ("refused", "refused"),
    ("expired", "expired"),
    ("left", "abandoned"),
    ("failed", "failed"),
    ("TTFT p50", "ttft_p50"),
    ("p95", "ttft_p95"),
    ("wasted", "wasted"),
)
_MOST_GROUPS: Final = 12
_UNITS: Final = {metric.key: metric.unit for metric in (*METRICS, *WHOLE_METRICS)}


def summary(report: Report) -> Rows:
    """The numbers of all requests together, those that are known."""
    return [
        (name, ", ".join(shown))
        for name, keys in _SUMMARY
        if (
            shown := [
                show(key, report.whole.values[key]) for key in keys if key in report.whole.values
            ]
        )
    ]


def groups(found: Sequence[Group]) -> Rows:
    """A row for each tenant or class, the largest first, and how many are not shown."""
    largest = sorted(found, key=lambda group: -(group.mean("requests") or 0))
    rows = [("", *(title for title, _ in _GROUP))]
    for group in sorted(largest[:_MOST_GROUPS], key=lambda each: each.name):
        cells = ((key, group.values.get(key)) for _, key in _GROUP)
        rows.append((group.name, *("-" if v is None else show(key, v) for key, v in cells)))
    if len(largest) > _MOST_GROUPS:
        rows.append((f"and {len(largest) - _MOST_GROUPS} more", *([""] * len(_GROUP))))
    return rows


def show(key: str, value: Estimate) -> str:
    """A number as people read it, with its margin if several runs gave one."""
    unit = _UNITS[key]
    if unit == "share":
        return _shown(value, 100.0, 1, " %")
    if unit == "s":
        return _shown(value, 1000.0, 1, " ms") if value.mean < 0.1 else _shown(value, 1.0, 2, " s")
    digits = 0 if key == "requests" or abs(value.mean) >= 100 else 2
    return _shown(value, 1.0, digits, f" {unit}" if unit else "")


def _shown(value: Estimate, factor: float, digits: int, unit: str) -> str:
    margin = "" if value.margin is None else f" ±{value.margin * factor:.{digits}f}"
    return f"{value.mean * factor:.{digits}f}{margin}{unit}"
