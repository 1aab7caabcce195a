"""Starting and stopping, as a user or a service manager does it."""

from __future__ import annotations

import os
import select
import signal
import socket
from pathlib import Path

import pytest

from tests.cli.processes import (
    PATIENCE_SECONDS,
    Stream,
    ask,
    chat,
    children_of,
    command,
    free_port,
    is_alive,
    stub,
)

pytestmark = pytest.mark.process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_gateway_says_where_it_serves_and_ends_with_0(number: signal.Signals) -> None:
    with stub() as url, command("serve", "--backend", url, "--listen", "127.0.0.1:0") as gateway:
        port = gateway.wait_ready()
        assert chat(port)[0] == 200
        gateway.signal(number)
        assert gateway.wait() == 0


def test_the_first_signal_lets_a_stream_end_and_refuses_newcomers() -> None:
    with (
        stub("--decode", "100") as url,
        command("serve", "--backend", url, "--listen", "127.0.0.1:0") as gateway,
    ):
        port = gateway.wait_ready()
        stream = Stream(port, tokens=100)
        first = stream.read_some()
        gateway.signal(signal.SIGTERM)
        gateway.wait_line("draining")
        status, answer = chat(port)
        assert status == 503
        assert answer["error"]["code"] == "draining"
        rest = first + stream.read_rest()
        assert rest.endswith(b"data: [DONE]\n\n")
        assert gateway.wait() == 0


def test_the_second_signal_ends_a_stream_with_an_error_event() -> None:
    with (
        stub("--decode", "10", "--ctx", "100000") as url,
        command("serve", "--backend", url, "--listen", "127.0.0.1:0") as gateway,
    ):
        port = gateway.wait_ready()
        stream = Stream(port, tokens=50_000)
        first = stream.read_some()
        gateway.signal(signal.SIGINT)
        gateway.wait_line("draining")
        gateway.signal(signal.SIGINT)
        rest = first + stream.read_rest()
        assert rest.count(b'"code":"draining"') == 1
        assert gateway.wait() == 0


def test_a_drain_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with stub("--decode", "10", "--ctx", "100000") as url:
        config = tmp_path / "slotgate.yaml"
        config.write_text(f"backends: [{{url: '{url}'}}]\ndrain_timeout: 200ms\n")
        with command("serve", "--config", str(config), "--listen", "127.0.0.1:0") as gateway:
            stream = Stream(gateway.wait_ready(), tokens=50_000)
            stream.read_some()
            gateway.signal(signal.SIGTERM)
            assert b'"code":"draining"' in stream.read_rest()
            assert gateway.wait() == 0


def test_an_address_in_use_is_said_in_words() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with command("serve", "--backend", "http://127.0.0.1:9", "--listen", address) as gateway:
            assert gateway.wait() == 1
            assert "Address already in use" in gateway.output
            assert "Traceback" not in gateway.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["serve"], "backends"),
        (["serve", "--backend", "nonsense"], "http://"),
        (["serve", "--backend", "http://127.0.0.1:9", "--listen", "nowhere"], "host:port"),
        (["serve", "--backend", "http://127.0.0.1:9", "--listen", "0.0.0.0:0"], "insecure"),
        (["serve", "--config", "/does/not/exist.yaml"], "exist.yaml"),
        (["serve", "--backend", "http://127.0.0.1:9", "--max-waiting", "-3"], "max_waiting"),
    ],
)
def test_bad_options_are_said_in_words_and_exit_2(arguments: list[str], words: str) -> None:
    with command(*arguments) as gateway:
        assert gateway.wait() == 2
        assert words in gateway.output
        assert "Traceback" not in gateway.output


def test_a_model_that_is_not_there_is_said_in_words() -> None:
    with command("up", "/does/not/exist.gguf", "--listen", "127.0.0.1:0") as gateway:
        assert gateway.wait() == 1
        assert "exist.gguf" in gateway.output
        assert "Traceback" not in gateway.output


def test_a_gateway_on_a_unix_socket_serves(tmp_path: Path) -> None:
    path = tmp_path / "gateway.sock"
    with stub() as url, command("serve", "--backend", url, "--listen", f"unix://{path}") as gateway:
        gateway.wait_line("ready on unix://")
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(PATIENCE_SECONDS)
            client.connect(str(path))
            client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert b'"slots_idle":4' in b"".join(iter(lambda: client.recv(4096), b""))
        gateway.signal(signal.SIGTERM)
        assert gateway.wait() == 0


# A real engine.


def up(model: Path) -> list[str]:
    return ["up", str(model), "--listen", f"127.0.0.1:{free_port()}", "--threads", "1"]


@pytest.mark.llama
def test_up_serves_a_real_model_and_takes_its_engine_along(small_model: Path) -> None:
    with command(*up(small_model), "--parallel", "2", "--ctx-size", "1024") as gateway:
        port = gateway.wait_ready()
        assert "2 slots of 512 tokens" in gateway.output
        status, answer = chat(port)
        assert status == 200
        assert answer["usage"]["completion_tokens"] == 4
        assert [slot["n_ctx"] for slot in ask(port, "GET", "/slots")[1]] == [512, 512]
        [engine] = children_of(gateway.process.pid)
        gateway.signal(signal.SIGTERM)
        assert gateway.wait() == 0
        assert not is_alive(engine)


@pytest.mark.llama
def test_no_engine_survives_a_gateway_that_is_killed(small_model: Path) -> None:
    with command(*up(small_model)) as gateway:
        gateway.wait_ready()
        [engine] = children_of(gateway.process.pid)
        gateway.signal(signal.SIGKILL)
        gateway.wait()
        assert wait_gone(engine), "the engine is still there"


@pytest.mark.llama
def test_an_engine_that_dies_is_started_again_and_who_waited_is_served(small_model: Path) -> None:
    with command(*up(small_model), "--log-level", "info") as gateway:
        port = gateway.wait_ready()
        [engine] = children_of(gateway.process.pid)
        os.kill(engine, signal.SIGKILL)
        gateway.wait_line("engine_exited")
        assert chat(port)[0] == 200
        [again] = children_of(gateway.process.pid)
        assert again != engine
        gateway.signal(signal.SIGTERM)
        assert gateway.wait() == 0


def wait_gone(pid: int) -> bool:
    """Wait for the end of a process that is not our child, through the kernel, with a bound."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        ready, _, _ = select.select([descriptor], [], [], PATIENCE_SECONDS)
        return bool(ready)
    finally:
        os.close(descriptor)
