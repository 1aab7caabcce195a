"""What is written down of a decision."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from slotgate.config import LogSettings
from slotgate.config.changes import Changes, NameChanges
from slotgate.core import Ticket
from slotgate.core.decision import Granted
from slotgate.core.deployment import DeploymentReport, State
from slotgate.runtime.journal import Journal
from slotgate.runtime.kv_pool import Sharing
from slotgate.telemetry import Telemetry
from slotgate.telemetry.logs import make_logger
from slotgate.telemetry.metrics import Outcome, Phase

if TYPE_CHECKING:
    from typing import Literal

GRANTED = Granted(
    ticket=Ticket(id="t1", arrival=0, deadline=9, model="m"),
    lease="t1#1",
    deployment="left",
    waited=1.5,
)


@pytest.mark.parametrize("level", ["debug", "info"])
def test_a_grant_is_counted_always_and_logged_where_everything_is(
    level: Literal["debug", "info"],
) -> None:
    out, telemetry = io.StringIO(), Telemetry()
    logger = make_logger(LogSettings(format="json", level=level), out)
    Journal(logger, telemetry, logs_access=True).decided(GRANTED)
    assert b"slotgate_queue_wait_seconds_sum 1.5" in telemetry.render()
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    if level == "info":
        assert lines == []
    else:
        [line] = lines
        assert (line["event"], line["ticket"], line["waited"]) == ("request_granted", "t1", 1.5)


def test_slots_that_share_are_warned_of_with_the_flags_that_mend_it() -> None:
    out = io.StringIO()
    logger = make_logger(LogSettings(format="json"), out)
    journal = Journal(logger, Telemetry(), logs_access=False)
    report = DeploymentReport(
        id="left", model="", slots=4, state=State.READY, ctx_per_slot=8192, kv_pool_tokens=8192
    )
    journal.backend_shares("left", report, Sharing.PRESUMED)
    [line] = [json.loads(line) for line in out.getvalue().splitlines()]
    assert (line["event"], line["level"]) == ("backend_shares", "warning")
    assert (line["backend"], line["kv_pool"]) == ("left", 8192)
    for word in ("-np 4 -no-kvu", "--kv-unified-per-slot 8192", "kv_pool: 32768"):
        assert word in line["advice"]


def test_a_pool_that_the_operator_has_named_is_not_news_until_it_overflows() -> None:
    out = io.StringIO()
    logger = make_logger(LogSettings(format="json"), out)
    journal = Journal(logger, Telemetry(), logs_access=False)
    report = DeploymentReport(
        id="left", model="", slots=4, state=State.READY, ctx_per_slot=8192, kv_pool_tokens=16384
    )
    journal.backend_shares("left", report, Sharing.CONFIGURED)
    assert out.getvalue() == ""
    journal.backend_overflowed("left", report, Sharing.CONFIGURED)
    [line] = [json.loads(line) for line in out.getvalue().splitlines()]
    assert (line["event"], line["why"]) == ("backend_overflowed", "as kv_pool says")


def heard(*reports: DeploymentReport, used: State | None = None) -> tuple[list[str], str]:
    """Return the events that these reports of a backend log, and the page of metrics."""
    out, telemetry = io.StringIO(), Telemetry(backends=["left"])
    journal = Journal(make_logger(LogSettings(format="json"), out), telemetry, logs_access=False)
    for report in reports:
        journal.backend_changed("left", report, "why")
    if used is not None:
        journal.backend_used("left", used)
    events = [json.loads(line)["event"] for line in out.getvalue().splitlines()]
    return events, telemetry.render().decode()


READY = DeploymentReport(id="left", model="", slots=4, state=State.READY)
DEGRADED = replace(READY, state=State.DEGRADED)
OUT = replace(READY, state=State.DOWN, is_ejected=True)


def test_a_backend_that_is_put_out_and_comes_back_on_trial_is_logged_and_counted() -> None:
    events, page = heard(READY, OUT, OUT, DEGRADED, OUT, READY)
    assert events == [
        "backend_up",
        "backend_down",
        "backend_changed",
        "backend_degraded",
        "backend_down",
        "backend_up",
    ]
    assert 'slotgate_ejections_total{backend="left"} 2.0' in page


def test_only_one_that_was_put_out_is_said_to_be_used_all_the_same() -> None:
    assert heard(READY, OUT, used=State.DEGRADED)[0][-1] == "backend_kept"
    assert "backend_kept" not in heard(READY, OUT, used=State.DOWN)[0]
    assert "backend_kept" not in heard(READY, DEGRADED, used=State.DEGRADED)[0]
    assert "backend_kept" not in heard(used=State.DEGRADED)[0]


class Told:
    """A journal, and the lines that it wrote."""

    def __init__(self) -> None:
        self._out = io.StringIO()
        self.telemetry = Telemetry()
        logger = make_logger(LogSettings(format="json"), self._out)
        self.journal = Journal(logger, self.telemetry, logs_access=False)

    @property
    def lines(self) -> list[dict[str, object]]:
        lines = [json.loads(line) for line in self._out.getvalue().splitlines()]
        return [{key: line[key] for key in line if key != "timestamp"} for line in lines]


def test_what_the_operator_did_is_one_line_with_who_and_what_came_of_it() -> None:
    told = Told()
    told.journal.operated("drain", "left", by="admin", result="draining")
    assert told.lines == [
        {
            "event": "operator_acted", "level": "info", "verb": "drain", "target": "left",
            "by": "admin", "result": "draining",
        }
    ]  # fmt: skip


def test_a_reload_is_one_line_with_all_that_is_different_and_is_counted() -> None:
    told = Told()
    changes = Changes(
        backends=NameChanges(added=("right",)),
        tenants=NameChanges(removed=("chat",)),
        settings=("queue.max_waiting",),
        needs_restart=("listen",),
    )
    told.journal.reloaded(changes, by="signal", warnings=("beware",))
    told.journal.reload_failed("a fault", by="signal")
    warning, reloaded, failed = told.lines
    assert (warning["event"], warning["message"]) == ("config_warning", "beware")
    assert (reloaded["added"], reloaded["tenants"]) == (["right"], ["chat"])
    assert (reloaded["settings"], reloaded["needs_restart"]) == (["queue.max_waiting"], ["listen"])
    assert (failed["event"], failed["level"], failed["why"]) == (
        "reload_failed",
        "error",
        "a fault",
    )
    page = told.telemetry.render().decode()
    assert 'slotgate_reloads_total{outcome="applied"} 1.0' in page
    assert 'slotgate_reloads_total{outcome="failed"} 1.0' in page


def test_a_killed_request_is_not_said_to_be_a_backends_fault() -> None:
    told = Told()
    route = "/v1/chat/completions"
    told.journal.finished(
        GRANTED.ticket, route, Outcome.KILLED, reason="killed", phase=Phase.DECODE
    )
    [line] = told.lines
    assert (line["event"], line["level"], line["reason"]) == ("request_killed", "info", "killed")
