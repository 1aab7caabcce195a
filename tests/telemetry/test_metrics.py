"""What is counted, and the page that shows it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from prometheus_client.parser import text_string_to_metric_families

from slotgate.core.decision import Reason
from slotgate.core.deployment import State
from slotgate.core.health import Signal
from slotgate.telemetry.catalog import CATALOG, Kind, Metric
from slotgate.telemetry.counts import MAX_LABEL_SETS
from slotgate.telemetry.gauges import BackendGauges, Gauges
from slotgate.telemetry.metrics import MAX_TENANTS, Outcome, Phase, Telemetry


@dataclass(frozen=True)
class Used:
    """What a request used."""

    input_tokens: int = 10
    cached_tokens: int = 4
    output_tokens: int = 7
    predicted_ms: float = 0.0


def page(telemetry: Telemetry) -> dict[str, float]:
    """Samples as `name{label="value"}` -> number."""
    text = telemetry.render().decode()
    lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {series: float(value) for series, _, value in lines}


def test_the_end_of_a_request_is_counted_by_route_and_outcome() -> None:
    telemetry = Telemetry()
    telemetry.request_finished("/v1/chat/completions", Outcome.SERVED)
    telemetry.request_finished("/v1/chat/completions", Outcome.SERVED)
    telemetry.request_finished("/completion", Outcome.EXPIRED)
    shown = page(telemetry)
    series = 'slotgate_requests_total{outcome="served",route="/v1/chat/completions"}'
    assert shown[series] == 2
    assert shown['slotgate_requests_total{outcome="expired",route="/completion"}'] == 1


def test_refusals_are_counted_by_reason_and_shown_before_the_first() -> None:
    telemetry = Telemetry()
    telemetry.refused(Reason.QUEUE_FULL)
    telemetry.refused("authentication_error")
    shown = page(telemetry)
    assert shown['slotgate_refused_total{reason="queue_full"}'] == 1
    assert shown['slotgate_refused_total{reason="authentication_error"}'] == 1
    assert shown['slotgate_refused_total{reason="draining"}'] == 0


def test_clients_that_leave_are_counted_by_phase() -> None:
    telemetry = Telemetry()
    telemetry.abandoned(Phase.PREFILL)
    shown = page(telemetry)
    assert [shown[f'slotgate_abandoned_total{{phase="{phase}"}}'] for phase in Phase] == [0, 1, 0]


def test_retries_are_counted_by_the_backend_that_failed_and_by_how() -> None:
    telemetry = Telemetry(backends=["left", "right"])
    telemetry.retried("left", Signal.RESET)
    shown = page(telemetry)
    assert shown['slotgate_retries_total{backend="left",cause="reset"}'] == 1
    assert shown['slotgate_retries_total{backend="left",cause="error"}'] == 0
    assert shown['slotgate_retries_total{backend="right",cause="reset"}'] == 0
    assert not any('cause="served"' in name for name in shown), "nothing is tried again for that"


def test_ejections_are_counted_by_backend() -> None:
    telemetry = Telemetry(backends=["left", "right"])
    telemetry.ejected("left")
    shown = page(telemetry)
    assert shown['slotgate_ejections_total{backend="left"}'] == 1
    assert shown['slotgate_ejections_total{backend="right"}'] == 0


@pytest.mark.parametrize("state", State)
def test_a_backend_is_in_one_state_and_up_where_it_serves(state: State) -> None:
    backend = BackendGauges(name="left", state=state, slots=4)
    shown = page(Telemetry(read_gauges=lambda: Gauges(backends=(backend,))))
    states = {s: shown[f'slotgate_backend_state{{backend="left",state="{s}"}}'] for s in State}
    assert states == {s: int(s is state) for s in State}
    is_up = state in {State.READY, State.DEGRADED}
    assert shown['slotgate_backend_up{backend="left"}'] == is_up


def test_times_fall_into_buckets_of_seconds_to_minutes() -> None:
    telemetry = Telemetry()
    telemetry.queue_wait(7.0)
    telemetry.ttft(45.0)
    telemetry.tokens("left", Used(output_tokens=101, predicted_ms=4000.0))
    shown = page(telemetry)
    assert shown['slotgate_queue_wait_seconds_bucket{le="5.0"}'] == 0
    assert shown['slotgate_queue_wait_seconds_bucket{le="10.0"}'] == 1
    assert shown['slotgate_ttft_seconds_bucket{le="30.0"}'] == 0
    assert shown['slotgate_ttft_seconds_bucket{le="60.0"}'] == 1
    assert shown['slotgate_tpot_seconds_bucket{le="0.05"}'] == 1
    assert shown["slotgate_ttft_seconds_sum"] == 45.0


def test_an_answer_of_one_token_has_no_time_per_token() -> None:
    telemetry = Telemetry()
    telemetry.tokens("left", Used(output_tokens=1, predicted_ms=5.0))
    telemetry.tokens("left", Used(output_tokens=9, predicted_ms=0.0))
    assert page(telemetry)["slotgate_tpot_seconds_count"] == 0


def test_tokens_are_counted_by_backend_and_by_configured_tenant() -> None:
    telemetry = Telemetry(tenants=["chat"], backends=["left"])
    telemetry.tokens("left", Used(), tenant="chat")
    telemetry.tokens("left", Used(), tenant="default")
    shown = page(telemetry)
    assert shown['slotgate_input_tokens_total{backend="left"}'] == 20
    assert shown['slotgate_cached_tokens_total{backend="left"}'] == 8
    assert shown['slotgate_output_tokens_total{backend="left"}'] == 14
    assert shown['slotgate_tenant_tokens_total{kind="input",tenant="chat"}'] == 10
    assert shown['slotgate_tenant_tokens_total{kind="output",tenant="other"}'] == 7
    assert not any('tenant="default"' in series for series in shown)


def test_without_configured_tenants_nothing_is_shown_by_tenant() -> None:
    telemetry = Telemetry()
    telemetry.request_finished("/completion", Outcome.SERVED, tenant="default")
    telemetry.tokens("left", Used(), tenant="default")
    assert not any("tenant=" in series for series in page(telemetry))


def test_of_very_many_tenants_the_last_share_a_line() -> None:
    names = [f"t{n}" for n in range(MAX_TENANTS + 5)]
    telemetry = Telemetry(tenants=names)
    for name in names:
        telemetry.request_finished("/completion", Outcome.SERVED, tenant=name)
    shown = page(telemetry)
    assert shown['slotgate_tenant_requests_total{outcome="served",tenant="other"}'] == 5


def test_a_fault_that_makes_labels_without_end_cannot_fill_the_memory() -> None:
    telemetry = Telemetry()
    for n in range(MAX_LABEL_SETS + 20):
        telemetry.request_finished(f"/{n}", Outcome.SERVED)
    shown = page(telemetry)
    assert shown['slotgate_requests_total{outcome="other",route="other"}'] == 20
    assert (
        sum(series.startswith("slotgate_requests_total") for series in shown) <= MAX_LABEL_SETS + 1
    )


def test_gauges_are_read_once_at_each_scrape() -> None:
    reads: list[Gauges] = []

    def read() -> Gauges:
        reads.append(
            Gauges(
                waiting=len(reads),
                waiting_bytes=100,
                backends=(
                    BackendGauges(
                        name="left",
                        state=State.READY,
                        slots=4,
                        running_slots=2,
                        settling_slots=1,
                        running_leases=1,
                        settling_leases=1,
                    ),
                    BackendGauges(name="right", state=State.DOWN, slots=0, outside_slots=3),
                ),
            )
        )
        return reads[-1]

    telemetry = Telemetry(read_gauges=read)
    assert reads == []
    page(telemetry)
    shown = page(telemetry)
    assert len(reads) == 2
    assert shown["slotgate_waiting"] == 1
    assert shown["slotgate_waiting_bytes"] == 100
    assert shown['slotgate_slots{backend="left",state="idle"}'] == 1
    assert shown['slotgate_slots{backend="left",state="running"}'] == 2
    assert shown['slotgate_slots{backend="left",state="settling"}'] == 1
    assert shown['slotgate_slots{backend="right",state="idle"}'] == 0
    assert shown['slotgate_slots{backend="right",state="outside"}'] == 3
    assert shown['slotgate_leases{backend="left",state="running"}'] == 1
    assert shown['slotgate_backend_up{backend="left"}'] == 1
    assert shown['slotgate_backend_up{backend="right"}'] == 0


def test_two_gateways_in_one_process_count_for_themselves() -> None:
    first, second = Telemetry(), Telemetry()
    first.refused("queue_full")
    assert page(second)['slotgate_refused_total{reason="queue_full"}'] == 0


def test_the_page_ends_with_what_the_backends_say() -> None:
    telemetry = Telemetry(backends=["left"])
    telemetry.relay.update("left", b"llamacpp:x 1\nrubbish\n")
    shown = page(telemetry)
    assert shown['llamacpp:x{backend="left"}'] == 1
    assert shown['slotgate_relay_skipped_lines_total{backend="left"}'] == 1


def test_the_page_holds_every_declared_metric_as_declared() -> None:
    telemetry = Telemetry(tenants=["a"], backends=["left"])
    telemetry.request_finished("/completion", Outcome.SERVED, tenant="a")
    telemetry.tokens("left", Used(), tenant="a")
    families = {f.name: f for f in text_string_to_metric_families(telemetry.render().decode())}
    for metric in CATALOG:
        family = families.pop(metric.name.removesuffix("_total"))
        assert (family.type, family.documentation) == (metric.kind, metric.help)
        labels = {label for sample in family.samples for label in sample.labels}
        assert labels - {"le"} <= set(metric.labels)
    assert [name for name in families if not name.startswith("process_")] == []


def test_the_times_at_which_counters_were_made_are_left_out() -> None:
    assert b"_created" not in Telemetry().render()


def test_the_process_itself_is_measured() -> None:
    assert page(Telemetry())["process_resident_memory_bytes"] > 1 << 20


@pytest.mark.parametrize("metric", CATALOG, ids=lambda metric: metric.name)
def test_a_declaration_keeps_prometheus_customs(metric: Metric) -> None:
    assert metric.name.startswith("slotgate_")
    assert metric.name.endswith("_total") is (metric.kind is Kind.COUNTER)
    assert metric.name.endswith(("_seconds", "_ratio")) is (metric.kind is Kind.HISTOGRAM)
    assert list(metric.buckets) == sorted(set(metric.buckets))
    assert bool(metric.buckets) is (metric.kind is Kind.HISTOGRAM)
    for sentence in (metric.help, metric.advice):
        assert sentence.endswith(".")


def test_no_metric_is_declared_twice() -> None:
    assert len({metric.name for metric in CATALOG}) == len(CATALOG)


def test_what_backends_should_have_in_their_caches_is_counted_in_whole_tokens() -> None:
    telemetry = Telemetry(backends=["left", "right"])
    telemetry.expected_cached("left", 99.6)
    telemetry.expected_cached("left", 0.0)
    shown = page(telemetry)
    assert shown['slotgate_expected_cached_tokens_total{backend="left"}'] == 100
    assert shown['slotgate_expected_cached_tokens_total{backend="right"}'] == 0
