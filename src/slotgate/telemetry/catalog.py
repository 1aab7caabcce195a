"""Every metric that Slotgate exposes, declared once: name, labels, meaning, and what to do.

The reference page, the dashboard's hints and the Prometheus objects are made from this list.
Labels are bounded: routes, reasons and phases are fixed lists; backends and tenants come from the
configuration.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What Prometheus calls the type."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One family.  `advice` says what it means when the number grows, and what to do then."""

    name: str
    kind: Kind
    help: str
    advice: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


# From what nobody notices to the longest budget of the default classes.
WAIT_BUCKETS = (
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0,
    120.0, 300.0,
)  # fmt: skip
TOKEN_BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0)

REQUESTS = Metric(
    name="slotgate_requests_total",
    kind=Kind.COUNTER,
    labels=("route", "outcome"),
    help="Finished requests that take slots, by route and by how they ended.",
    advice="The sum is the load. A growing share of anything but `served` is explained by "
    "`slotgate_refused_total`, `slotgate_abandoned_total` and the log.",
)
REFUSED = Metric(
    name="slotgate_refused_total",
    kind=Kind.COUNTER,
    labels=("reason",),
    help="Requests that were refused before their first byte, by reason.",
    advice="`queue_full`, `wait_too_long` and `queue_timeout` mean more load than slots: add slots "
    "or backends, or send less. `no_backend` and `loading` mean that a backend is missing. "
    "`tenant_limit` is one tenant's own doing.",
)
ABANDONED = Metric(
    name="slotgate_abandoned_total",
    kind=Kind.COUNTER,
    labels=("phase",),
    help="Requests whose client left before the answer was complete, by what was happening then.",
    advice="Growing in `waiting`, clients are less patient than the class budgets: lower the "
    "budgets, so that they are refused at once. Growing in `prefill`, prompts are long for this "
    "hardware.",
)
RETRIES = Metric(
    name="slotgate_retries_total",
    kind=Kind.COUNTER,
    labels=("backend", "cause"),
    help="Requests sent again because a backend failed before the first byte, by that backend and "
    "by the signal that it gave (see the explanation of health).",
    advice="A backend that restarts causes a few. A steady rate means that it drops connections or "
    "answers with errors: look at its own log.",
)
EJECTIONS = Metric(
    name="slotgate_ejections_total",
    kind=Kind.COUNTER,
    labels=("backend",),
    help="How often a backend was put out for a pause because requests failed there in a row.",
    advice="The event `backend_down` in the log says what the last failure was. Growing for one "
    "backend, it is broken though its health check is not; growing for all, look for what they "
    "share.",
)
RESUMPTIONS = Metric(
    name="slotgate_resumptions_total",
    kind=Kind.COUNTER,
    labels=("backend",),
    help="Answers that broke after their first byte and were asked for elsewhere from there on, as "
    "their clients wished, by the backend that failed.",
    advice="Each is a stream that would have ended with an error: look at that backend's own log.",
)
QUEUE_WAIT = Metric(
    name="slotgate_queue_wait_seconds",
    kind=Kind.HISTOGRAM,
    buckets=WAIT_BUCKETS,
    help="Time from a request's arrival to its slot, of requests that got one.",
    advice='While `slotgate_slots{state="idle"}` is 0 this is the price of too few slots. '
    "With idle slots it should be near 0.",
)
# Right at 1; the prediction aims at three quarters of the waits at or under it.
RATIO_BUCKETS = (0.1, 0.25, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0)
WAIT_RATIO = Metric(
    name="slotgate_wait_ratio",
    kind=Kind.HISTOGRAM,
    buckets=RATIO_BUCKETS,
    help="The wait of a request that got a slot, divided by what was predicted when it came.",
    advice="About three quarters should be at or under 1. If more are above it, requests that "
    "cannot make their deadline are let in; if fewer, some are refused that could. Both mend "
    "themselves while answers end; a lasting error means that lengths change faster than they "
    "are learned.",
)
TTFT = Metric(
    name="slotgate_ttft_seconds",
    kind=Kind.HISTOGRAM,
    buckets=WAIT_BUCKETS,
    help="Time from a request's arrival to the first token of its answer, the wait included.",
    advice="What a person feels. Minus the queue wait it is prefill: long prompts, a cold prompt "
    "cache, or too many slots on one machine.",
)
TPOT = Metric(
    name="slotgate_tpot_seconds",
    kind=Kind.HISTOGRAM,
    buckets=TOKEN_BUCKETS,
    help="Time per output token after the first, one value a request, as its backend measured it.",
    advice="Above about 0.1 s people read faster than the model writes: use fewer slots, a smaller "
    "model, or more hardware.",
)
INPUT_TOKENS = Metric(
    name="slotgate_input_tokens_total",
    kind=Kind.COUNTER,
    labels=("backend",),
    help="Prompt tokens of answered requests, cached ones included.",
    advice="Its rate, less the cached ones, is the prefill load of a backend.",
)
CACHED_TOKENS = Metric(
    name="slotgate_cached_tokens_total",
    kind=Kind.COUNTER,
    labels=("backend",),
    help="Prompt tokens that the backend found in its cache.",
    advice="A falling share of the input tokens means that conversations lose their slots to each "
    "other.",
)
EXPECTED_CACHED_TOKENS = Metric(
    name="slotgate_expected_cached_tokens_total",
    kind=Kind.COUNTER,
    labels=("backend",),
    help="Prompt tokens that the backend was expected to have in its cache when it was chosen.",
    advice="Compare it with `slotgate_cached_tokens_total`. Much above it, sessions lose their "
    "cache unseen: others use the backend too, or `--cache-ram` is small. Near 0 with several "
    "backends, clients do not say their sessions, or each request is one of its own.",
)
OUTPUT_TOKENS = Metric(
    name="slotgate_output_tokens_total",
    kind=Kind.COUNTER,
    labels=("backend",),
    help="Tokens of answers.",
    advice="Its rate is the decode throughput of a backend.",
)
STOPPED = Metric(
    name="slotgate_stopped_total",
    kind=Kind.COUNTER,
    labels=("backend",),
    help="Running requests that were stopped so that a context which all slots share did not "
    "overflow.",
    advice="Each lost the rest of its answer, and all would have lost theirs. Give the backend "
    "more context, fewer slots, or slots with a context of their own (-no-kvu).",
)
WATCHDOG_FINDINGS = Metric(
    name="slotgate_watchdog_findings_total",
    kind=Kind.COUNTER,
    labels=("backend", "finding"),
    help="What the watchdog found: stuck or leaked streams, wedged backends, and the rest.",
    advice="The event `watchdog_found` has the evidence. What each finding means, and what to do, "
    "is in `how-to/watch-for-stuck-servers.md`.",
)
WATCHDOG_ACTIONS = Metric(
    name="slotgate_watchdog_actions_total",
    kind=Kind.COUNTER,
    labels=("backend", "action"),
    help="What the watchdog did: `end` a stream, `quarantine` or `restart` a backend, run a "
    "`hook`.",
    advice="`restart` that comes back every hour means a server that wedges under this load: look "
    "for a newer build, and at its own log.",
)
TENANT_REQUESTS = Metric(
    name="slotgate_tenant_requests_total",
    kind=Kind.COUNTER,
    labels=("tenant", "outcome"),
    help="Finished requests of each configured tenant, by how they ended.",
    advice="Shows who brings the load, and who is refused because of it.",
)
TENANT_TOKENS = Metric(
    name="slotgate_tenant_tokens_total",
    kind=Kind.COUNTER,
    labels=("tenant", "kind"),
    help="Tokens of each configured tenant: input, cached or output.",
    advice="Shows who uses the model's time; requests alone do not.",
)
WAITING = Metric(
    name="slotgate_waiting",
    kind=Kind.GAUGE,
    help="Requests that wait for a slot now.",
    advice="Near `queue.max_waiting` newcomers are refused. Always above 0 means more load than "
    "slots.",
)
WAITING_BYTES = Metric(
    name="slotgate_waiting_bytes",
    kind=Kind.GAUGE,
    help="Memory that the bodies of waiting requests take now.",
    advice="Near `queue.max_waiting_bytes` newcomers are refused; long prompts or images do that.",
)
LEASES = Metric(
    name="slotgate_leases",
    kind=Kind.GAUGE,
    labels=("backend", "state"),
    help="Leases now: `running`, or `settling` after their client left.",
    advice="Many `settling` for long: the backend is slow to notice closed connections, or hangs.",
)
SLOTS = Metric(
    name="slotgate_slots",
    kind=Kind.GAUGE,
    labels=("backend", "state"),
    help="Slots now: `idle`, `running`, `settling`, or `outside`: busy with work not ours.",
    advice="`outside` above 0 means that somebody uses the backend behind the gateway's back. "
    "`idle` above 0 while `slotgate_waiting` is above 0 for long is a fault worth reporting.",
)
BACKEND_UP = Metric(
    name="slotgate_backend_up",
    kind=Kind.GAUGE,
    labels=("backend",),
    help="1 while a backend can be given work, 0 while it cannot.",
    advice="The event `backend_down` in the log says why.",
)
BACKEND_HELD = Metric(
    name="slotgate_backend_held",
    kind=Kind.GAUGE,
    labels=("backend",),
    help="1 while the operator keeps a backend paused, drained or disabled.",
    advice="Above 0 for hours, somebody has forgotten to `slotgate enable` it.",
)
RELOADS = Metric(
    name="slotgate_reloads_total",
    kind=Kind.COUNTER,
    labels=("outcome",),
    help="How often the configuration was read anew: `applied`, `unchanged` or `failed`.",
    advice="Any `failed` means that the file on disk is not what is in force: the event "
    "`reload_failed` names its faults.",
)
BACKEND_STATE = Metric(
    name="slotgate_backend_state",
    kind=Kind.GAUGE,
    labels=("backend", "state"),
    help="1 for the state that a backend is in, 0 for the others.",
    advice="`degraded` is on trial after failures, with one request at a time, or used although it "
    "fails because nothing better serves its model: the events `backend_degraded` and "
    "`backend_kept` say which. `/ready` shows why.",
)
RELAY_SKIPPED = Metric(
    name="slotgate_relay_skipped_lines_total",
    kind=Kind.COUNTER,
    labels=("backend",),
    help="Lines of a backend's own metrics that could not be understood and were left out.",
    advice="Any number above 0 means that the backend is no llama-server of a known build, or that "
    "something answers in its place.",
)

CATALOG = (
    REQUESTS, REFUSED, ABANDONED, RETRIES, EJECTIONS, RESUMPTIONS, QUEUE_WAIT, WAIT_RATIO, TTFT,
    TPOT, INPUT_TOKENS, CACHED_TOKENS, EXPECTED_CACHED_TOKENS, OUTPUT_TOKENS, STOPPED,
    WATCHDOG_FINDINGS, WATCHDOG_ACTIONS,
    TENANT_REQUESTS, TENANT_TOKENS, WAITING, WAITING_BYTES, LEASES, SLOTS, BACKEND_UP, BACKEND_HELD,
    BACKEND_STATE, RELOADS, RELAY_SKIPPED,
)  # fmt: skip
