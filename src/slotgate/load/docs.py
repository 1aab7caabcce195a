"""What the documentation says of workloads, lengths and the numbers of a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.load.lengths import CLASSES
from slotgate.load.metrics import METRICS
from slotgate.load.metrics_whole import WHOLE_METRICS
from slotgate.load.workloads import RECIPES

if TYPE_CHECKING:
    from collections.abc import Iterator


def report_reference() -> str:
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield "## Workloads\n\n| `--workload` | load | what it is |\n| --- | --- | --- |"
    for name, recipe in RECIPES.items():
        yield f"| `{name}` | {recipe.load:g} | {recipe.help} |"
    yield "\n## Lengths\n"
    yield "| `--lengths` | what it is | mean prompt | mean answer |\n| --- | --- | --- | --- |"
    for kind in CLASSES.values():
        means = f"{kind.input.mean:.0f} | {kind.output.mean:.0f}"
        yield f"| `{kind.name}` | {kind.help} | {means} |"
    yield "\n## Numbers of all requests, of a tenant and of a class\n"
    yield "| key | unit | meaning |\n| --- | --- | --- |"
    for metric in METRICS:
        yield f"| `{metric.key}` | {metric.unit} | {metric.help} |"
    yield "\n## Numbers of all requests only\n"
    yield "| key | unit | meaning |\n| --- | --- | --- |"
    for whole in WHOLE_METRICS:
        yield f"| `{whole.key}` | {whole.unit} | {whole.help} |"
