"""What the scheduler is told of the settings."""

from __future__ import annotations

from typing import Any

import pytest

from slotgate.config import Settings, Sources
from slotgate.config.limits import limits_of, patience_of, policies_of, watch_rules_of
from slotgate.core import policies
from slotgate.core.health import Patience
from slotgate.core.limits import ClassLimits, Limits, TenantCaps
from slotgate.core.policies import Policies
from slotgate.core.watch_rules import ClockRules, WatchRules

BACKENDS = [{"url": "http://127.0.0.1:8081"}]
DIGEST = "0" * 64


def settings(**told: Any) -> Settings:
    data = {"backends": BACKENDS, **told}
    return Settings.model_validate(data, context=Sources())


def test_what_nobody_sets_is_what_the_scheduler_does_by_itself() -> None:
    assert limits_of(settings()) == Limits()
    assert patience_of(settings().health) == Patience()
    made, own = policies_of(settings().scheduling), Policies.named()
    assert (made.fairness, made.order, made.admission) == (own.fairness, own.order, own.admission)
    assert made.retry_after is own.retry_after


def test_numbers_reach_the_scheduler() -> None:
    made = limits_of(
        settings(
            queue={"max_waiting": 7, "max_waiting_bytes": "1KiB"},
            settle_bound="5s",
            classes={"batch": {"budget": "60s", "weight": 2, "holdback": 0.5}},
            scheduling={
                "max_bypass": 1,
                "bypass_seconds": "1s",
                "long_prefill_tokens": 100,
                "affinity_patience": "2s",
            },
            tenants=[
                {
                    "name": "a",
                    "key_sha256": DIGEST,
                    "weight": 3,
                    "max_in_flight": 2,
                    "max_waiting": 5,
                }
            ],
        )
    )
    assert (made.max_waiting, made.max_waiting_bytes, made.settle_bound_seconds) == (7, 1024, 5)
    assert (made.max_bypass, made.bypass_seconds, made.long_prefill_tokens) == (1, 1, 100)
    assert made.affinity_patience == 2
    assert made.classes["batch"] == ClassLimits(budget=60, weight=2, holdback=0.5)
    assert made.classes["interactive"] == ClassLimits(budget=10, weight=16, holdback=0)
    assert made.tenants == {"a": TenantCaps(max_in_flight=2, max_waiting=5, weight=3)}


def test_the_patience_with_backends_reaches_them() -> None:
    told = {"failures": 5, "first_pause": "2s", "longest_pause": "1m"}
    made = patience_of(settings(health=told).health)
    assert made == Patience(failures=5, first_pause=2, longest_pause=60)


TABLES = {
    "fairness": policies.FAIRNESS,
    "order": policies.ORDER,
    "admission": policies.ADMISSION,
    "retry_after": policies.RETRY_AFTER,
    "kv": policies.KV,
    "concurrency": policies.CONCURRENCY,
    "placement": policies.PLACEMENT,
}


@pytest.mark.parametrize(
    ("key", "name"), [(key, name) for key, table in TABLES.items() for name in table]
)
def test_every_rule_that_there_is_can_be_chosen_by_its_name(key: str, name: str) -> None:
    made = policies_of(settings(scheduling={key: name}).scheduling)
    maker: Any = getattr(made, "kv_budget" if key == "kv" else key)
    assert getattr(maker, "func", maker) is TABLES[key][name]


def test_the_numbers_of_a_rule_reach_it() -> None:
    scheduling = {"tpot_target": "50ms", "kv_confidence": 2, "kv_watermark": 0.1}
    made: Any = policies_of(settings(scheduling=scheduling).scheduling)
    assert made.concurrency.keywords == {"target_seconds": 0.05}
    assert made.kv_budget.keywords == {"z": 2, "watermark": 0.1}


def test_what_nobody_sets_is_how_patient_a_watchdog_is_by_itself() -> None:
    assert watch_rules_of(settings().watchdog, unknown=300.0) == WatchRules()


def test_patience_reaches_the_watchdog() -> None:
    told = {
        "action": "alert",
        "first_token_floor": "1s",
        "first_token_factor": 2,
        "gap_floor": "3s",
        "gap_factor": 4,
        "slow_factor": 5,
        "slow_after": "6s",
        "outside_after": "7s",
        "compute_errors": 8,
        "quarantine": "9s",
    }
    clocks = ClockRules(
        first_token_floor=1, first_token_factor=2, gap_floor=3, gap_factor=4, unknown=60
    )
    assert watch_rules_of(settings(watchdog=told).watchdog, unknown=60.0) == WatchRules(
        clocks=clocks,
        slow_factor=5,
        slow_after=6,
        outside_after=7,
        errors=8,
        shortest_quarantine=9,
        quarantines=False,
    )
