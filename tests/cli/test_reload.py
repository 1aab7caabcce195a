"""Reloading and restarting with real processes: nobody who waits or runs is lost."""

from __future__ import annotations

import json
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import (
    Command,
    Stream,
    ask,
    chat,
    children_of,
    command,
    free_port,
    stub,
    stub_at,
    wait_queue,
)

pytestmark = pytest.mark.process

DAY, NIGHT, NEW_NIGHT = "day-key-0123456789", "night-key-0123456789", "new-night-key-0123456789"


class File:
    """The configuration on disk; JSON is YAML too."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.path = directory / "slotgate.yaml"
        self.settings: dict[str, Any] = {"listen": "127.0.0.1:0"}
        self.write(**settings)

    def write(self, **settings: Any) -> None:
        self.settings |= settings
        self.path.write_text(json.dumps(self.settings))


def serve(file: File) -> Any:
    return command("serve", "--config", str(file.path))


def hang_up(gateway: Command, mark: str = "config_reloaded") -> str:
    gateway.signal(signal.SIGHUP)
    return gateway.wait_line(mark)


def test_forty_requests_outlive_a_reload_that_changes_everything_around_them(
    tmp_path: Path,
) -> None:
    """20 streams and 20 that wait; a backend comes, another goes, a weight and a key change."""
    night = tmp_path / "night"
    night.write_text(NIGHT)
    night.chmod(0o600)
    day = tmp_path / "day"
    day.write_text(DAY)
    day.chmod(0o600)
    tenants: list[dict[str, Any]] = [
        {"name": "day", "key_file": "day", "weight": 1},
        {"name": "night", "key_file": "night"},
    ]
    slots = ("--slots", "10", "--decode", "20", "--ctx", "100000")
    with stub(*slots) as left, stub(*slots) as right, stub(*slots) as added:
        file = File(
            tmp_path,
            backends=[{"name": "left", "url": left}, {"name": "right", "url": right}],
            tenants=tenants,
        )
        with serve(file) as gateway, ThreadPoolExecutor(20) as pool:
            port = gateway.wait_ready()
            streams = [Stream(port, 100, key=(DAY, NIGHT)[n % 2]) for n in range(20)]
            firsts = [stream.read_some() for stream in streams]
            waiting = [pool.submit(chat, port, key=(DAY, NIGHT)[n % 2]) for n in range(20)]
            wait_queue(port, 20)
            night.write_text(NEW_NIGHT)
            file.write(
                backends=[{"name": "right", "url": right}, {"name": "added", "url": added}],
                tenants=[{**tenants[0], "weight": 5}, tenants[1]],
            )
            hang_up(gateway)
            assert chat(port, key=NIGHT)[0] == 401
            assert [each.result()[0] for each in waiting] == [200] * 20
            ends = [first + s.read_rest() for first, s in zip(firsts, streams, strict=True)]
            assert all(end.endswith(b"data: [DONE]\n\n") for end in ends)
            assert not any(b'"error"' in end for end in ends)
            assert chat(port, key=NEW_NIGHT)[0] == 200
            gateway.wait_line("backend_gone")
            slots_now = ask(port, "GET", "/slots", key=DAY)[1]
            assert {slot["backend"] for slot in slots_now} == {"right", "added"}
            gateway.signal(signal.SIGTERM)
            assert gateway.wait() == 0


def test_who_waits_and_who_comes_outlive_the_restart_of_a_backend_that_others_started(
    tmp_path: Path,
) -> None:
    port = free_port()
    options = ("--slots", "1", "--decode", "50", "--ctx", "100000")
    file = File(tmp_path, backends=[{"name": "left", "url": f"http://127.0.0.1:{port}"}])
    with ThreadPoolExecutor(13) as pool, stub_at(port, *options) as backend:
        with serve(file) as gateway:
            ours = gateway.wait_ready()
            stream = Stream(ours, tokens=50_000)
            stream.read_some()
            waiting = [pool.submit(chat, ours) for _ in range(10)]
            wait_queue(ours, 10)
            backend.signal(signal.SIGKILL)
            backend.wait()
            gateway.wait_line("backend_down")
            newcomers = [pool.submit(chat, ours) for _ in range(3)]
            wait_queue(ours, 13)
            with stub_at(port, *options):
                assert [each.result()[0] for each in waiting] == [200] * 10
                assert [each.result()[0] for each in newcomers] == [200] * 3
                assert b'"error"' in stream.read_rest()


def test_a_file_with_faults_changes_nothing_and_the_log_names_them(tmp_path: Path) -> None:
    with stub() as url:
        file = File(tmp_path, backends=[{"name": "left", "url": url}])
        with serve(file) as gateway:
            port = gateway.wait_ready()
            file.write(queue={"max_waitng": 3})
            assert "max_waitng" in hang_up(gateway, "reload_failed")
            assert chat(port)[0] == 200
            gateway.signal(signal.SIGTERM)
            assert gateway.wait() == 0


def test_a_gateway_without_a_file_has_nothing_to_reload_and_serves_on() -> None:
    with stub() as url, command("serve", "--backend", url, "--listen", "127.0.0.1:0") as gateway:
        port = gateway.wait_ready()
        assert "nothing to reload" in hang_up(gateway, "reload_failed")
        assert chat(port)[0] == 200
        gateway.signal(signal.SIGTERM)
        assert gateway.wait() == 0


@pytest.mark.llama
def test_an_engine_comes_changes_and_goes_while_its_requests_wait(
    tmp_path: Path, small_model: Path
) -> None:
    with stub() as url:
        server = {"name": "stub", "url": url, "alias": "stub"}
        engine = {
            "name": "real", "alias": "real", "model": str(small_model),
            "parallel": 1, "ctx_per_slot": 512, "threads": 1,
        }  # fmt: skip
        file = File(tmp_path, backends=[server])
        with serve(file) as gateway, ThreadPoolExecutor(2) as pool:
            port = gateway.wait_ready()
            file.write(backends=[server, {**engine, "model": "missing.gguf"}])
            hang_up(gateway)
            gateway.wait_line("engine_failed")
            assert chat(port, model="real")[1]["error"]["code"] == "no_backend"
            file.write(backends=[server, engine])
            hang_up(gateway)
            assert chat(port, model="real")[0] == 200
            [first] = children_of(gateway.process.pid)
            stream = Stream(port, tokens=40, model="real")
            begun = stream.read_some()
            file.write(backends=[server, {**engine, "parallel": 2}])
            hang_up(gateway)
            waiting = pool.submit(chat, port, model="real")
            assert (begun + stream.read_rest()).endswith(b"data: [DONE]\n\n")
            assert waiting.result()[0] == 200
            [second] = children_of(gateway.process.pid)
            assert second != first
            names = [slot["backend"] for slot in ask(port, "GET", "/slots")[1]]
            assert names.count("real") == 2
            file.write(backends=[server])
            hang_up(gateway)
            gateway.wait_line("backend_gone")
            assert children_of(gateway.process.pid) == []
            assert chat(port, model="stub")[0] == 200
