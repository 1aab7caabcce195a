"""Counters and histograms that cost one addition.

The library's own take a lock for each, several times a request, and note when they were made.
Here one thread counts, and reads what it has counted, so they are plain numbers until a scrape.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from typing_extensions import override

from slotgate.telemetry.catalog import Metric

# More label sets than this in one family mean a fault; the rest is counted together.
MAX_LABEL_SETS = 1000
OTHER = "other"

Labels = tuple[str, ...]


class Counters(Collector):
    """One family of counters; those in `shown` are there from the start."""

    def __init__(self, metric: Metric, shown: Iterable[Labels] = ()) -> None:
        self._metric = metric
        self._values: dict[Labels, float] = dict.fromkeys(shown, 0)

    def add(self, labels: Labels, amount: float = 1) -> None:
        values = self._values
        if labels not in values:
            if len(values) >= MAX_LABEL_SETS:
                labels = (OTHER,) * len(labels)
            values.setdefault(labels, 0)
        values[labels] += amount

    @override
    def collect(self) -> Iterator[Family]:
        family = CounterMetricFamily(
            self._metric.name, self._metric.help, labels=self._metric.labels
        )
        for labels, value in self._values.items():
            family.add_metric(labels, value)
        yield family


class Histogram(Collector):
    """One histogram without labels."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        # How many values fell into each bucket and into none below it, the last without bound.
        self._counts = [0] * (len(metric.buckets) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._metric.buckets, value)] += 1
        self._sum += value

    @override
    def collect(self) -> Iterator[Family]:
        buckets = []
        total = 0
        for bound, count in zip((*self._metric.buckets, math.inf), self._counts, strict=True):
            total += count
            buckets.append(("+Inf" if bound == math.inf else str(bound), total))
        family = HistogramMetricFamily(self._metric.name, self._metric.help)
        family.add_metric((), buckets, self._sum)
        yield family
