"""Engines of ours that come, change and go while the gateway serves; a program stands for them."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from slotgate.stub import StubOptions
from tests.capacity.tiny_models import META, write_model
from tests.http.by_hand import served_by
from tests.http.rig import CHAT, Rig, chat, gateway
from tests.polling import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.anyio

PROGRAM = Path(__file__).parents[1] / "backends" / "fake_llama_server.py"


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Settings of an engine that looks like one from outside."""
    directory = tmp_path_factory.mktemp("engine")
    program = directory / "llama-server"
    program.write_text(f"#!{sys.executable}\n{PROGRAM.read_text()}")
    program.chmod(0o755)
    model = write_model(next(iter(META)), directory)
    return {
        "name": "real", "alias": "real", "model": str(model), "llama_server": str(program),
        "parallel": 1, "ctx_per_slot": 64,
    }  # fmt: skip


async def reload(rig: Rig, *backends: dict[str, Any]) -> None:
    rig.overrides["backends"] = list(backends)
    answer = await rig.post("/-/reload", None)
    assert answer.status == 200, answer.body


def stub_of(rig: Rig) -> dict[str, Any]:
    return {"name": "stub", "url": rig.stub.url, "alias": "stub"}


async def wait_states(rig: Rig, **wanted: str) -> None:
    """Wait until the backends are as wanted, and there are no others."""
    async with asyncio.timeout(40):
        while rig.app.driver.states() != wanted:
            await asyncio.sleep(0)


def pid_of(rig: Rig) -> int:
    pid = rig.app.roster.engines["real"].pid
    assert pid is not None
    return pid


async def test_an_engine_is_started_anew_for_what_is_its_own_and_kept_for_the_rest(
    engine: dict[str, Any], wait_gone: Callable[[int], None]
) -> None:
    async with gateway(backend={"alias": "stub"}) as rig:
        stub = stub_of(rig)
        await reload(rig, stub, engine)
        assert rig.app.driver.states() == {"stub": "ready", "real": "starting"}
        await wait_states(rig, stub="ready", real="ready")
        first = pid_of(rig)
        kept = {**engine, "timeouts": {"idle": "9s"}, "restart_grace": "1s"}
        await reload(rig, stub, kept)
        await wait_states(rig, stub="ready", real="ready")
        assert pid_of(rig) == first
        await reload(rig, stub, {**kept, "parallel": 2})
        assert rig.app.driver.states()["real"] == "starting"
        await wait_states(rig, stub="ready", real="ready")
        second = pid_of(rig)
        assert second != first
        wait_gone(first)
        await reload(rig, stub)
        await wait_states(rig, stub="ready")
        async with asyncio.timeout(20):
            while "real" in rig.app.fleet.probes:
                await asyncio.sleep(0)
        wait_gone(second)


async def test_an_engine_that_cannot_be_started_is_down_until_its_settings_are_mended(
    engine: dict[str, Any],
) -> None:
    async with gateway(backend={"alias": "stub"}) as rig:
        stub = stub_of(rig)
        await reload(rig, stub, {**engine, "llama_server": "/does/not/exist"})
        await wait_states(rig, stub="ready", real="down")
        assert (await rig.post(CHAT, chat(2, model="real"))).code == "no_backend"
        rows = (await rig.get("/-/backends")).json()["backends"]
        assert "/does/not/exist" in {row["name"]: row["why"] for row in rows}["real"]
        await reload(rig, stub, engine)
        await wait_states(rig, stub="ready", real="ready")


async def test_an_engine_that_is_removed_while_it_starts_leaves_nothing_behind(
    engine: dict[str, Any], wait_gone: Callable[[int], None]
) -> None:
    async with gateway(backend={"alias": "stub"}) as rig:
        stub = stub_of(rig)
        await reload(rig, stub, {**engine, "alias": "never"})
        # Its process is there, but serves nothing, and so is no engine yet.
        await wait_until(lambda: bool(children_with("never")), within=40)
        children = children_with("never")
        await reload(rig, stub)
        await wait_states(rig, stub="ready")
        for pid in children:
            wait_gone(pid)
        assert rig.app.roster.engines == {}


async def test_of_two_changes_in_a_row_the_last_counts(engine: dict[str, Any]) -> None:
    async with gateway(backend={"alias": "stub"}) as rig:
        stub = stub_of(rig)
        await reload(rig, stub, engine)
        await wait_states(rig, stub="ready", real="ready")
        await reload(rig, stub, {**engine, "parallel": 2})
        await reload(rig, stub, {**engine, "parallel": 3})
        # Back to what it is now, but that is being stopped already.
        await reload(rig, stub, engine)
        await reload(rig, stub, {**engine, "timeouts": {"idle": "9s"}})
        await wait_states(rig, stub="ready", real="ready")
        assert rig.app.roster.engines["real"].options.parallel == 1


async def test_what_runs_on_a_server_ends_before_an_engine_takes_its_name_and_back(
    engine: dict[str, Any], wait_gone: Callable[[int], None]
) -> None:
    slow = StubOptions(decode=100, slots=2, ctx=1 << 16)
    async with gateway(slow, backend={"alias": "stub"}) as rig:
        server = stub_of(rig)
        async with rig.open("POST", CHAT, chat(30, stream=True)) as held:
            await held.open()
            await reload(rig, {**engine, "name": "stub", "alias": "stub"})
            assert rig.app.driver.states() == {"stub": "starting"}
            received = b""
            while data := await held.read():
                received += data
            assert received.endswith(b"[DONE]\n\n")
        await wait_states(rig, stub="ready")
        pid = rig.app.roster.engines["stub"].pid
        assert pid is not None
        await reload(rig, server)
        await wait_states(rig, stub="ready")
        wait_gone(pid)
        assert rig.app.roster.engines == {}
        assert (await rig.post(CHAT, chat(2))).status == 200


async def test_a_late_word_of_the_place_before_does_not_end_a_change(
    engine: dict[str, Any],
) -> None:
    asked, may_answer = asyncio.Event(), asyncio.Event()

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await may_answer.wait()
        body = b'{"status":"ok"}'
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        writer.close()

    slow = StubOptions(decode=100, slots=2, ctx=1 << 16)
    async with gateway(slow) as rig, served_by(answer) as url:
        async with rig.open("POST", CHAT, chat(10_000, stream=True)) as held:
            await held.open()
            await reload(rig, {"name": "stub", "url": url})
            probe = rig.app.fleet.probes["stub"]
            await asked.wait()
            await reload(rig, {**engine, "name": "stub"})
            may_answer.set()
            while probe.why == "not heard of yet":
                await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert rig.app.driver.states() == {"stub": "starting"}
            assert await held.read()


async def test_an_engine_that_comes_back_while_it_is_being_removed_is_started_anew(
    engine: dict[str, Any],
) -> None:
    async with gateway(backend={"alias": "stub"}) as rig:
        stub = stub_of(rig)
        await reload(rig, stub, engine)
        await wait_states(rig, stub="ready", real="ready")
        await reload(rig, stub)
        await reload(rig, stub, engine)
        await wait_states(rig, stub="ready", real="ready")
        assert rig.app.roster.engines["real"].is_running


def children_with(word: str) -> list[int]:
    """Processes whose command line has the word as an argument."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            arguments = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if word.encode() in arguments and b"--alias" in arguments:
            found.append(int(path.parent.name))
    return found
