"""Drills over real processes: one of several servers is stuck, swallows requests, or is slow."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.e2e.asking import wait_until
from tests.e2e.drills import Told, drill, wait_seconds
from tests.e2e.processes import read, stub

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.failing import Record

pytestmark = pytest.mark.process

NAMES = ("left", "middle", "right")
SLOTS = 2


def stubs(stack: ExitStack, *options: str, faulty: str = "") -> dict[str, str]:
    """Start three stubs; the first has a fault from the start, if one is named."""
    urls = {}
    for name in NAMES:
        fault = ("--fault", faulty) if faulty and name == NAMES[0] else ()
        running = stack.enter_context(stub("--slots", str(SLOTS), *options, *fault))
        urls[name] = running.url
    return urls


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def lost_without_a_byte(told: list[Told]) -> list[Told]:
    return [each for each in told if not each.is_whole and not each.tokens]


def note(record: Record, told: list[Told]) -> None:
    record("requests", len(told))
    record("streams that broke off", sum(not each.is_whole for each in told))


def test_a_wedged_server_is_put_into_quarantine_and_nobody_without_a_byte_is_lost(
    stack: ExitStack, tmp_path: Path, record: Record
) -> None:
    backends = stubs(stack, "--decode", "60")
    it = stack.enter_context(drill(tmp_path, backends))
    it.tell_all(6, at_once=6)
    files = it.open_files()

    with ThreadPoolExecutor(1) as clients:
        it.set_fault("left", {"set": "wedge:20"})
        telling = clients.submit(it.tell_all, 18, at_once=9)
        seconds = wait_seconds(lambda: it.state("left") == "down")
        record("seconds until it is left alone", seconds)
        told = telling.result()

    assert lost_without_a_byte(told) == []
    broken = [each for each in told if not each.is_whole]
    assert {(each.backend, each.errors) for each in broken} == {("left", ("backend_timeout",))}
    assert len(broken) == SLOTS
    note(record, told)
    assert it.state("left") == "down"
    assert it.findings() == {("left", "wedged"): 1}
    assert it.actions()["left", "quarantine"] == 1
    assert it.actions()["left", "end"] == SLOTS

    it.set_fault("left", {"clear": "all"})
    wait_until(lambda: it.state("left") == "ready")
    it.wait_rest(SLOTS * len(NAMES))
    assert all(each.is_whole for each in it.tell_all(6, at_once=6))
    it.wait_files(files)
    assert [each["finding"] for each in it.hooked()] == ["wedged"]


def test_a_server_that_swallows_requests_costs_nobody_an_answer(
    stack: ExitStack, tmp_path: Path, record: Record
) -> None:
    backends = stubs(stack, "--decode", "60", faulty="silent")
    it = stack.enter_context(drill(tmp_path, backends))
    files = it.open_files()

    with ThreadPoolExecutor(1) as clients:
        telling = clients.submit(it.tell_all, 18, at_once=6)
        seconds = wait_seconds(lambda: ("left", "swallows") in it.findings())
        record("seconds until it is left alone", seconds)
        told = telling.result()

    note(record, told)
    assert all(each.is_whole for each in told)
    assert set(it.findings()) == {("left", "leaked"), ("left", "swallows")}
    assert it.findings()["left", "swallows"] == 1
    it.set_fault("left", {"clear": "all"})
    wait_until(lambda: it.state("left") == "ready")
    it.wait_rest(SLOTS * len(NAMES))
    it.wait_files(files)


def test_slots_of_clients_that_left_are_zombies_until_they_are_idle(
    stack: ExitStack, tmp_path: Path, record: Record
) -> None:
    backends = stubs(stack, "--decode", "60", "--output-tokens", "0", faulty="zombie")
    it = stack.enter_context(drill(tmp_path, backends, settle_bound="3s"))
    files = it.open_files()

    with ThreadPoolExecutor(2) as clients:
        leavers = [clients.submit(it.leave_early, 500) for _ in range(2)]
        for leaver in leavers:
            leaver.result()
    seconds = wait_seconds(lambda: ("left", "zombies") in it.findings())
    record("seconds until it is told", seconds)
    assert it.findings() == {("left", "zombies"): 1}
    slots = it.front.metrics("slotgate_slots")
    assert slots['backend="left",state="outside"'] == 1
    # Its slot is nobody's; all others work, and nobody waits inside the server.
    told = it.tell_all(10, at_once=5, tokens=30)
    note(record, told)
    assert all(each.is_whole for each in told)

    it.wait_rest(SLOTS * len(NAMES))
    assert set(it.findings()) == {("left", "zombies")}
    it.wait_files(files)


def decodes(url: str) -> int:
    """How many batches a server has run."""
    [line] = [
        line
        for line in read(f"{url}/metrics").decode().splitlines()
        if line.startswith("llamacpp:n_decode_total ")
    ]
    return int(line.split()[1])


def test_a_server_at_half_its_speed_is_told_of_and_serves_on(
    stack: ExitStack, tmp_path: Path, record: Record
) -> None:
    backends = stubs(stack, "--decode", "80", "--output-tokens", "0")
    it = stack.enter_context(drill(tmp_path, backends, slow_after="3s"))
    files = it.open_files()

    with ThreadPoolExecutor(3) as clients:
        stories = [clients.submit(it.tell, 640) for _ in NAMES]
        wait_until(lambda: decodes(backends["left"]) >= 280)
        it.set_fault("left", {"set": "slow:2"})
        seconds = wait_seconds(lambda: ("left", "slow") in it.findings())
        record("seconds until it is told", seconds)
        told = [story.result() for story in stories]

    assert all(each.is_whole for each in told)
    note(record, told)
    assert sorted(each.backend for each in told) == sorted(NAMES)
    assert it.findings() == {("left", "slow"): 1}
    assert ("left", "quarantine") not in it.actions()
    assert it.state("left") == "ready"
    it.wait_rest(SLOTS * len(NAMES))
    it.wait_files(files)
