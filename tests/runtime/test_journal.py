"""What is written down of a decision."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import pytest

from slotgate.config import LogSettings
from slotgate.core import Ticket
from slotgate.core.decision import Granted
from slotgate.runtime.journal import Journal
from slotgate.telemetry import Telemetry
from slotgate.telemetry.logs import make_logger

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
