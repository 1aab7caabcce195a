"""The reference tables of metrics and events, made from their declarations."""

from __future__ import annotations

from collections.abc import Iterator

from slotgate.telemetry.catalog import CATALOG, Metric
from slotgate.telemetry.events import Event


def metrics_reference() -> str:
    """Return one section for each metric, in Markdown."""
    return "\n".join(part for metric in CATALOG for part in _section(metric))


def events_reference() -> str:
    """Return the table of events, in Markdown."""
    head = "| event | level | meaning |\n|---|---|---|\n"
    return head + "".join(f"| `{e}` | {e.level} | {e.sentence} |\n" for e in Event)


def _section(metric: Metric) -> Iterator[str]:
    labels = f" by {' and '.join(f'`{label}`' for label in metric.labels)}" if metric.labels else ""
    yield f"### `{metric.name}`\n"
    yield f"{metric.kind.value.capitalize()}{labels}.\n{metric.help}\n"
    yield f"*If it grows*: {metric.advice}\n"
    if metric.buckets:
        unit = ", in seconds" if metric.name.endswith("_seconds") else ""
        yield f"Buckets{unit}: {', '.join(f'{bound:g}' for bound in metric.buckets)}.\n"
