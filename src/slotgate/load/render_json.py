"""A report as JSON.  Its keys are those of `metrics`, which docs/reference/load-report.md lists."""

from __future__ import annotations

import json
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from slotgate.load.report import Group, Report

# Grows when a key is renamed or changes its meaning, not when one is added.
FORMAT: Final = 1
_DIGITS: Final = 6


def as_document(report: Report) -> dict[str, Any]:
    """The report as plain values; what is unknown is left out or null."""
    timeline = report.timeline
    return {
        "format": FORMAT,
        "title": report.title,
        "facts": dict(report.facts),
        "notes": list(report.notes),
        "targets": {"ttft": _number(report.targets.ttft), "tpot": _number(report.targets.tpot)},
        "seeds": list(report.seeds),
        "seconds": report.seconds,
        "all": _values(report.whole),
        "tenants": {group.name: _values(group) for group in report.tenants},
        "classes": {group.name: _values(group) for group in report.classes},
        "timeline": {
            "bin_seconds": _number(timeline.bin_seconds),
            "rates": {k: list(map(_number, values)) for k, values in timeline.rates.items()},
            "ttft_p50": [None if each is None else _number(each[0]) for each in timeline.ttfts],
            "ttft_p95": [None if each is None else _number(each[1]) for each in timeline.ttfts],
            "ttft_quantiles": list(map(_number, timeline.ttft_quantiles)),
        },
    }


def as_json(report: Report) -> str:
    return json.dumps(as_document(report), indent=2, allow_nan=False) + "\n"


def _values(group: Group) -> dict[str, Any]:
    """Each number as its mean over the runs, and half of its 95 % confidence interval."""
    return {
        key: {"mean": _number(value.mean), "margin": _number(value.margin)}
        for key, value in group.values.items()
    }


def _number(value: float | None) -> float | None:
    if value is None or not isfinite(value):
        return None
    return round(value, _DIGITS)
