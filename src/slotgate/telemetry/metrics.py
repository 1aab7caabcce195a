"""The counters and histograms, and the page that Prometheus reads.

Rule: a method called for each request does one dictionary look-up and one addition.  There are
never more label sets than a fixed number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Protocol

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

from slotgate.core.decision import Reason
from slotgate.core.health import Signal
from slotgate.telemetry import catalog
from slotgate.telemetry.counts import OTHER, Counters, Histogram
from slotgate.telemetry.gauges import GaugeCollector, Gauges
from slotgate.telemetry.relay import BackendMetrics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

MAX_TENANTS = 100


class Outcome(StrEnum):
    """How a request that takes slots ended."""

    SERVED = "served"
    REFUSED = "refused"  # before it waited
    EXPIRED = "expired"  # it waited to its deadline
    ABANDONED = "abandoned"  # by its client
    FAILED = "failed"  # by a backend, after it had a slot
    KILLED = "killed"  # by the operator, or to save others
    INVALID = "invalid"  # malformed, too large, or without a key


class Phase(StrEnum):
    """What was happening when a client left."""

    WAITING = "waiting"
    PREFILL = "prefill"
    DECODE = "decode"


class Tokens(Protocol):
    """What a request used.

    Cached tokens are part of the input tokens.  `predicted_ms` is the time from the first token of
    the answer to its last, 0 where the backend did not tell.
    """

    @property
    def input_tokens(self) -> int: ...
    @property
    def cached_tokens(self) -> int: ...
    @property
    def output_tokens(self) -> int: ...
    @property
    def predicted_ms(self) -> float: ...


class Telemetry:
    """Everything that is measured.

    `read_gauges` is called at each scrape.  `tenants` are the configured ones; others, and all
    beyond the first hundred, get no series of their own.  `relay` holds the backends' own metrics.
    """

    def __init__(
        self,
        *,
        read_gauges: Callable[[], Gauges] = Gauges,
        tenants: Iterable[str] = (),
        backends: Iterable[str] = (),
    ) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._tenants = frozenset(list(tenants)[:MAX_TENANTS])
        self._has_tenants = bool(self._tenants)
        backends = list(backends)
        self._requests = self._counter(catalog.REQUESTS)
        self._refused = self._counter(catalog.REFUSED, ((reason.value,) for reason in Reason))
        self._abandoned = self._counter(catalog.ABANDONED, ((phase.value,) for phase in Phase))
        named = [(name,) for name in backends]
        causes = [(name, cause) for name in backends for cause in Signal if cause.causes_retries]
        self._retries = self._counter(catalog.RETRIES, causes)
        self._ejections = self._counter(catalog.EJECTIONS, named)
        self._resumptions = self._counter(catalog.RESUMPTIONS, named)
        self._queue_wait = self._histogram(catalog.QUEUE_WAIT)
        self._wait_ratio = self._histogram(catalog.WAIT_RATIO)
        self._ttft = self._histogram(catalog.TTFT)
        self._tpot = self._histogram(catalog.TPOT)
        self._input = self._counter(catalog.INPUT_TOKENS, named)
        self._cached = self._counter(catalog.CACHED_TOKENS, named)
        self._expected = self._counter(catalog.EXPECTED_CACHED_TOKENS, named)
        self._output = self._counter(catalog.OUTPUT_TOKENS, named)
        self._stopped = self._counter(catalog.STOPPED, named)
        self._findings = self._counter(catalog.WATCHDOG_FINDINGS)
        self._actions = self._counter(catalog.WATCHDOG_ACTIONS)
        self._tenant_requests = self._counter(catalog.TENANT_REQUESTS)
        self._tenant_tokens = self._counter(catalog.TENANT_TOKENS)
        outcomes = ("applied", "unchanged", "failed")
        self._reloads = self._counter(catalog.RELOADS, ((outcome,) for outcome in outcomes))
        self._relay_skipped = self._counter(catalog.RELAY_SKIPPED, named)
        self._registry.register(GaugeCollector(read_gauges))
        ProcessCollector(registry=self._registry)
        self.relay = BackendMetrics(on_skipped=self._relay_skipped.add)

    def know(self, tenants: Iterable[str]) -> None:
        """Give series of their own to tenants that the configuration names now."""
        self._tenants = frozenset(list(tenants)[:MAX_TENANTS])
        self._has_tenants = bool(self._tenants)

    def reloaded(self, outcome: str) -> None:
        """Count a reload: applied, unchanged or failed."""
        self._reloads.add((outcome,))

    # What happens to requests.

    def request_finished(self, route: str, outcome: Outcome, *, tenant: str | None = None) -> None:
        """Count the end of a request.  `route` is a path of the route table, not of a client."""
        self._requests.add((route, outcome))
        if self._has_tenants and tenant is not None:
            self._tenant_requests.add((self._shown(tenant), outcome))

    def refused(self, reason: str) -> None:
        """Count a refusal; `reason` is its public `error.code`."""
        self._refused.add((reason,))

    def abandoned(self, phase: Phase) -> None:
        self._abandoned.add((phase,))

    def retried(self, backend: str, cause: str) -> None:
        """Count a request that is sent again because `backend` failed it in this way."""
        self._retries.add((backend, cause))

    def ejected(self, backend: str) -> None:
        """Count that `backend` was put out because its requests failed."""
        self._ejections.add((backend,))

    def resumed(self, backend: str) -> None:
        """Count an answer whose rest is asked for elsewhere because `backend` failed amid it."""
        self._resumptions.add((backend,))

    def stopped(self, backend: str) -> None:
        """Count a running request that was ended to save the others there."""
        self._stopped.add((backend,))

    def found(self, backend: str, finding: str) -> None:
        """Count what the watchdog found."""
        self._findings.add((backend, finding))

    def watch_acted(self, backend: str, action: str) -> None:
        """Count what the watchdog did."""
        self._actions.add((backend, action))

    def queue_wait(self, seconds: float, *, predicted: float | None = None) -> None:
        """Note a wait, and against it what was predicted of it."""
        self._queue_wait.observe(seconds)
        if predicted:
            self._wait_ratio.observe(seconds / predicted)

    def expected_cached(self, backend: str, tokens: float) -> None:
        """Count what a backend should have of a prompt, by which it was chosen."""
        if tokens:
            self._expected.add((backend,), round(tokens))

    def ttft(self, seconds: float) -> None:
        self._ttft.observe(seconds)

    def tokens(self, backend: str, usage: Tokens, *, tenant: str | None = None) -> None:
        """Count what a request used, and how fast its answer was written."""
        key = (backend,)
        self._input.add(key, usage.input_tokens)
        self._cached.add(key, usage.cached_tokens)
        self._output.add(key, usage.output_tokens)
        if usage.output_tokens > 1 and usage.predicted_ms > 0:
            self._tpot.observe(usage.predicted_ms / 1000 / (usage.output_tokens - 1))
        if self._has_tenants and tenant is not None:
            name = self._shown(tenant)
            self._tenant_tokens.add((name, "input"), usage.input_tokens)
            self._tenant_tokens.add((name, "cached"), usage.cached_tokens)
            self._tenant_tokens.add((name, "output"), usage.output_tokens)

    # Questions.

    def render(self) -> bytes:
        """Return the page for Prometheus: our own families, then the backends'."""
        return generate_latest(self._registry) + self.relay.render()

    # Construction.

    def _shown(self, tenant: str) -> str:
        return tenant if tenant in self._tenants else OTHER

    def _counter(self, metric: catalog.Metric, shown: Iterable[tuple[str, ...]] = ()) -> Counters:
        counters = Counters(metric, shown)
        self._registry.register(counters)
        return counters

    def _histogram(self, metric: catalog.Metric) -> Histogram:
        histogram = Histogram(metric)
        self._registry.register(histogram)
        return histogram
