"""Drills over two real llama.cpp servers, of which one seems to be stuck, forgetful or slow.

No signal stops only the loop of a server, so a relay of the drill's stands before each and plays
the fault.  Real are the servers, what they compute, their `/slots`, and the slots that are busy.
The relay's are, of one server,

- the wedge: it withholds every answer that llama-server's loop makes, `/slots` and streams in the
  middle included, while those of its HTTP threads (`/health`) pass;
- the zombie: it does not tell the server that a client has left, so the server truly writes on;
- the speed: it lets one event of a stream pass at a time, later at half of that pace.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.capacity.tiny_models import write_model
from tests.e2e.asking import wait_until
from tests.e2e.drills import Drill, drill, wait_seconds
from tests.e2e.processes import llama_server
from tests.e2e.relay import Relay

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.failing import Record

pytestmark = [pytest.mark.process, pytest.mark.llama]

NAMES = ("left", "right")
SLOTS = 2
ALL_SLOTS = SLOTS * len(NAMES)
OPTIONS = {
    "n_parallel": SLOTS,
    "n_ctx": 131_072,
    "n_batch": 256,
    "endpoint_slots": True,
    "endpoint_metrics": True,
}
# Written for longer than the drill lasts.
ENDLESS = 60_000
# A pace that the servers keep up with on any machine.
PACE_SECONDS = 0.05


@pytest.fixture(scope="module")
def relays(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Relay]]:
    """Relays before real servers; their model is made up: it knows nothing, but is fast."""
    model = write_model("llama", tmp_path_factory.mktemp("model"))
    with ExitStack() as stack:
        urls = [stack.enter_context(llama_server(model, OPTIONS)) for _ in NAMES]
        ports = [int(url.rpartition(":")[2]) for url in urls]
        yield {
            name: stack.enter_context(Relay(port)) for name, port in zip(NAMES, ports, strict=True)
        }


@pytest.fixture
def left(relays: dict[str, Relay]) -> Iterator[Relay]:
    """The one that is struck, healthy again after the test."""
    yield relays["left"]
    for relay in relays.values():
        relay.heal()


def over(relays: dict[str, Relay]) -> dict[str, str]:
    return {name: relay.url for name, relay in relays.items()}


def warm_up(it: Drill) -> int:
    """Have both asked once; return how many files and sockets are open afterwards."""
    assert all(each.is_whole for each in it.tell_all(4, at_once=4, tokens=100))
    it.wait_rest(ALL_SLOTS)
    return it.open_files()


def test_a_wedge_is_put_into_quarantine_and_nobody_without_a_byte_is_lost(
    relays: dict[str, Relay], left: Relay, tmp_path: Path, record: Record
) -> None:
    with drill(tmp_path, over(relays)) as it:
        files = warm_up(it)
        with ThreadPoolExecutor(8) as clients:
            stories = [clients.submit(it.tell, 1200) for _ in range(8)]
            wait_until(lambda: it.front.queue()["slots_processing"] == ALL_SLOTS)
            left.wedge()
            seconds = wait_seconds(lambda: it.state("left") == "down")
            record("seconds until it is left alone", seconds)
            told = [story.result() for story in stories]
        assert [each for each in told if not each.is_whole and not each.tokens] == []
        broken = [each for each in told if not each.is_whole]
        assert {(each.backend, each.errors) for each in broken} <= {("left", ("backend_timeout",))}
        assert len(broken) <= SLOTS
        record("requests", len(told))
        record("streams that broke off", len(broken))
        assert it.findings() == {("left", "wedged"): 1}

        left.heal()
        wait_until(lambda: it.state("left") == "ready")
        it.wait_rest(ALL_SLOTS)
        assert all(each.is_whole for each in it.tell_all(4, at_once=4, tokens=20))
        assert it.findings() == {("left", "wedged"): 1}, "a false alarm"
        it.wait_files(files)


def test_slots_that_are_busy_for_nobody_are_zombies_until_they_are_idle(
    relays: dict[str, Relay], left: Relay, tmp_path: Path, record: Record
) -> None:
    with drill(tmp_path, over(relays), settle_bound="3s") as it:
        files = warm_up(it)
        left.keep()
        with ExitStack() as leavers:
            for _ in range(ALL_SLOTS):
                leavers.enter_context(it.asking(ENDLESS)).readline()
        seconds = wait_seconds(lambda: ("left", "zombies") in it.findings())
        record("seconds until it is told", seconds)
        assert it.front.metrics("slotgate_slots")['backend="left",state="outside"'] == SLOTS
        # Its slots are nobody's; the others work.
        told = it.tell_all(6, at_once=3, tokens=30)
        assert all(each.is_whole for each in told)
        record("requests", len(told))
        record("streams that broke off", 0)

        left.heal()
        it.wait_rest(ALL_SLOTS)
        assert it.findings() == {("left", "zombies"): 1}
        it.wait_files(files)


def test_half_the_pace_is_told_of_and_costs_nobody_anything(
    relays: dict[str, Relay], left: Relay, tmp_path: Path, record: Record
) -> None:
    with drill(tmp_path, over(relays), slow_after="3s") as it:
        files = warm_up(it)
        for relay in relays.values():
            relay.pace(PACE_SECONDS)
        carried = left.events
        with ThreadPoolExecutor(ALL_SLOTS) as clients:
            stories = [clients.submit(it.tell, 400) for _ in range(ALL_SLOTS)]
            wait_until(lambda: it.state("left") == "ready" and left.events - carried >= 140)
            left.pace(2 * PACE_SECONDS)
            seconds = wait_seconds(lambda: ("left", "slow") in it.findings())
            record("seconds until it is told", seconds)
            for relay in relays.values():
                relay.heal()
            told = [story.result() for story in stories]
        assert all(each.is_whole for each in told)
        assert sorted(each.backend for each in told) == sorted(NAMES * SLOTS)
        record("requests", len(told))
        record("streams that broke off", 0)
        assert it.findings() == {("left", "slow"): 1}
        assert ("left", "quarantine") not in it.actions()
        assert it.state("left") == "ready"
        it.wait_rest(ALL_SLOTS)
        it.wait_files(files)
