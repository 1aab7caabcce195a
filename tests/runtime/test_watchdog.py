"""What is done about what the watchdog finds; and what it is shown."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from slotgate.core.findings import Due, Finding, Kind, Lifted, News, Over
from slotgate.core.vitals import Signs
from slotgate.runtime.journal import Journal
from slotgate.runtime.watchdog import BackendWatch, WatchOptions
from slotgate.stub import StubOptions
from tests.http.rig import CHAT, Rig, chat, gateway

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.anyio

ENDLESS = StubOptions(decode=100, slots=2, ctx=1 << 18, output_tokens=None)
PATHS = (CHAT, "/v1/completions", "/completion", "/v1/messages", "/v1/responses")


@dataclass
class Scripted:
    """A dog that says what it was told to say, once."""

    says: list[News] = field(default_factory=list)
    seen: list[Signs] = field(default_factory=list)

    def tick(self, signs: Signs) -> list[News]:
        self.seen.append(signs)
        says, self.says = self.says, []
        return says


@dataclass
class FakeEngine:
    is_running: bool = True
    ended: list[float] = field(default_factory=list)

    async def end_process(self, grace_seconds: float) -> None:
        self.ended.append(grace_seconds)


@dataclass
class Watched:
    rig: Rig
    dog: Scripted
    watch: BackendWatch
    engine: FakeEngine

    def find(self, kind: Kind, now: float = 0.0, tickets: tuple[str, ...] | None = None) -> Finding:
        """Have that found in the streams that run, and what is due done."""
        if tickets is None:
            tickets = tuple(stream.ticket for stream in self.look().streams)
        finding = Finding(
            kind=kind, deployment="stub", now=now, since=now - 5, figures={"quiet": 5.0},
            tickets=tickets,
        )  # fmt: skip
        self.dog.says = [finding]
        self.watch.tick()
        return finding

    def look(self) -> Signs:
        self.watch.tick()
        return self.dog.seen[-1]

    def counted(self, action: str) -> bool:
        page = self.rig.app.telemetry.render().decode()
        return f'slotgate_watchdog_actions_total{{action="{action}",backend="stub"}}' in page

    @property
    def standing(self) -> str:
        return self.rig.app.fleet.probes["stub"].standing[0].value


@asynccontextmanager
async def watched(stub: StubOptions = ENDLESS, **options: Any) -> AsyncIterator[Watched]:
    backend = {"restart_grace": "0s"}
    settings: dict[str, Any] = {"watchdog__enabled": False, "backend": backend}
    async with gateway(stub, **settings) as rig, asyncio.TaskGroup() as group:
        journal = Journal(rig.app.logger, rig.app.telemetry, logs_access=False)
        watch = BackendWatch(rig.app.driver, journal, WatchOptions(**options))
        dog, engine = Scripted(), FakeEngine()
        watch.add(rig.app.fleet.probes["stub"], dog, engine)
        running = group.create_task(watch.run())
        await asyncio.sleep(0)
        yield Watched(rig, dog, watch, engine)
        running.cancel()


# Streams.


@pytest.mark.parametrize("path", PATHS)
async def test_a_stuck_stream_ends_with_one_error_in_its_own_shape(path: str) -> None:
    async with watched() as it:
        body = chat(9999, stream=True) | {"prompt": "hello", "input": "hello"}
        async with it.rig.open("POST", path, body) as stream:
            await stream.open()
            got = b""
            while got.count(b"\n\n") < 8:
                got += await stream.read()
            it.find(Kind.STUCK_WRITING)
            while data := await stream.read():
                got += data
        assert got.count(b'"error"') - got.count(b'"type":"error"') == 1
        assert got.count(b"the watchdog ended it: its next token is overdue") >= 1
        assert got.endswith(b"\n\n")
        assert it.counted("end")
        await it.rig.wait_until(lambda counts: counts.processing == 0)


async def test_a_stuck_request_without_a_byte_runs_again() -> None:
    async with watched(StubOptions(decode=100, slots=1)) as it, asyncio.TaskGroup() as group:
        answer = group.create_task(it.rig.post(CHAT, chat(50)))
        await it.rig.wait_until(lambda counts: counts.processing == 1)
        while not it.look().streams[0].received:
            await asyncio.sleep(0)
        it.find(Kind.LEAKED)
        assert (await answer).status == 200
        assert len(it.rig.stub.observed.records) == 2
        page = it.rig.app.telemetry.render().decode()
        assert 'slotgate_retries_total{backend="stub",cause="timeout"} 1.0' in page
        assert 'slotgate_stopped_total{backend="stub"} 0.0' in page


async def test_one_that_is_stuck_a_second_time_gets_an_error() -> None:
    async with watched() as it, asyncio.TaskGroup() as group:
        answer = group.create_task(it.rig.post(CHAT, chat(9999)))
        for records in (1, 2):
            while len(it.rig.stub.observed.records) < records or not it.look().streams:
                await asyncio.sleep(0)
            it.find(Kind.STUCK_READING)
        got = await answer
        assert (got.status, got.code) == (504, "backend_timeout")


async def test_a_stream_is_ended_once() -> None:
    async with watched() as it, it.rig.open("POST", CHAT, chat(9999, stream=True)) as stream:
        await stream.open()
        tickets = tuple(stream.ticket for stream in it.look().streams)
        it.find(Kind.STUCK_WRITING, tickets=tickets)
        it.find(Kind.STUCK_WRITING, tickets=(*tickets, "nobody's"))
        page = it.rig.app.telemetry.render().decode()
        assert 'slotgate_watchdog_actions_total{action="end",backend="stub"} 1.0' in page


# Backends.


async def test_a_wedged_backend_gets_no_work_until_that_is_lifted() -> None:
    async with watched(restarts=False) as it:
        it.find(Kind.WEDGED)
        assert it.standing == "down"
        assert it.rig.counts.idle == 0
        ready = (await it.rig.get("/ready")).json()["backends"]["stub"]
        assert ready == {"state": "down", "why": "the watchdog found it wedged"}
        assert (await it.rig.post(CHAT, chat())).code == "no_backend"
        assert 'slotgate_backend_up{backend="stub"} 0.0' in it.rig.app.telemetry.render().decode()
        it.dog.says = [
            Over(kind=Kind.WEDGED, deployment="stub", now=9.0, since=1.0),
            Lifted(deployment="stub", now=9.0, since=1.0),
        ]
        it.watch.tick()
        assert it.standing == "ready"
        assert (await it.rig.post(CHAT, chat())).status == 200


async def test_a_quarantined_backend_is_still_looked_at() -> None:
    async with watched(restarts=False) as it:
        probe = it.rig.app.fleet.probes["stub"]
        it.find(Kind.WEDGED)
        before = probe.asked.look
        assert before is not None
        await probe.wait_fresh_slots(0)
        while probe.asked.look is before:
            await probe.look()
        assert it.look().look == probe.asked.look


async def test_an_engine_of_ours_is_ended_for_its_keeper_to_start_it_again() -> None:
    async with watched(restart_grace_seconds=0.5, cooldown_seconds=100.0) as it:
        it.find(Kind.WEDGED, now=0.0)
        assert it.standing == "starting"
        await asyncio.sleep(0)
        assert it.engine.ended == [0.5]
        it.find(Kind.WEDGED, now=50.0)
        assert it.standing == "down"
        it.find(Kind.WEDGED, now=100.0)
        await asyncio.sleep(0)
        assert it.engine.ended == [0.5, 0.5]
        assert it.counted("restart")


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.WEDGED])
async def test_only_what_concerns_all_of_a_backend_restarts_it(kind: Kind) -> None:
    async with watched() as it:
        finding = it.find(kind)
        await asyncio.sleep(0)
        assert bool(it.engine.ended) is (finding.due is Due.QUARANTINE)


async def test_an_engine_that_has_ended_by_itself_is_left_to_its_keeper() -> None:
    async with watched() as it:
        it.engine.is_running = False
        it.find(Kind.WEDGED)
        await asyncio.sleep(0)
        assert it.engine.ended == []


async def test_who_wants_no_more_than_to_be_told_is_told() -> None:
    async with watched(ends_streams=False) as it:
        async with it.rig.open("POST", CHAT, chat(9999, stream=True)) as stream:
            await stream.open()
            it.find(Kind.WEDGED)
            assert it.standing == "ready"
            assert await stream.read()
        page = it.rig.app.telemetry.render().decode()
        assert 'findings_total{backend="stub",finding="wedged"} 1.0' in page
        assert not it.counted("end")


async def test_the_command_gets_each_finding_once_within_its_cooldown(tmp_path: Path) -> None:
    target = tmp_path / "told"
    hook = ("/bin/sh", "-c", f"cat >> '{target}'")
    async with watched(hook=hook, cooldown_seconds=100.0) as it:
        for now in (0.0, 50.0):
            it.find(Kind.SLOW, now=now)
            it.find(Kind.OUTSIDE, now=now)
        while not (target.exists() and target.read_text().count("\n") == 2):
            await asyncio.sleep(0)
        told = [json.loads(line) for line in target.read_text().splitlines()]
        assert sorted(each["finding"] for each in told) == ["outside", "slow"]
        assert told[0] == told[0] | {
            "backend": "stub", "due": "alert", "lasts_seconds": 5.0, "requests": [],
            "evidence": {"quiet": 5.0},
        }  # fmt: skip
        while not it.counted("hook"):
            await asyncio.sleep(0)


# Evidence.


async def test_what_runs_is_shown_with_its_bytes_and_tokens() -> None:
    async with watched() as it:
        assert it.look().streams == ()
        async with it.rig.open("POST", CHAT, chat(9999, stream=True)) as stream:
            await stream.open()
            while not (signs := it.look()).streams[0].is_writing:
                await asyncio.sleep(0)
            [shown] = signs.streams
            assert (shown.received or 0) > 0
            assert shown.prompt_tokens > 0
            assert not shown.is_held
        await it.rig.wait_until(lambda counts: counts.processing == 0)
        assert it.look().streams == ()


async def test_an_answer_that_comes_whole_shows_nothing_before() -> None:
    stub = StubOptions(decode=0, prefill=1, slots=1, embeddings=True)
    async with watched(stub) as it, asyncio.TaskGroup() as group:
        answer = group.create_task(it.rig.post("/v1/embeddings", {"input": "hello there"}))
        while not (signs := it.look()).streams:
            await asyncio.sleep(0)
        assert signs.streams[0].received is None
        answer.cancel()


async def test_answers_and_compute_errors_are_counted() -> None:
    async with watched(StubOptions(decode=0)) as it:
        await it.rig.post(CHAT, chat())
        assert (it.look().served, it.look().errors) == (1, 0)
        it.rig.stub.set_fault("errors500")
        for _ in range(2):
            assert (await it.rig.post(CHAT, chat())).status == 500
        assert (it.look().served, it.look().errors) == (1, 2)
        it.rig.stub.clear_faults()
        await it.rig.post(CHAT, chat())
        assert (it.look().served, it.look().errors) == (2, 0)


async def test_a_server_without_slots_has_none_to_show() -> None:
    async with watched(StubOptions(decode=0, has_slots=False)) as it:
        signs = it.look()
        assert (signs.has_slots, signs.look) == (False, None)
