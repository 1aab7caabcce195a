"""A llama.cpp that we start: it serves, it ends, it can be started again."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from slotgate.backends.managed import EngineOptions, ManagedServer
from slotgate.errors import BackendError, ConfigError
from slotgate.net.address import Address
from slotgate.net.client import Client

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.llama]


@pytest.fixture(
    params=[
        pytest.param(("asyncio", {"use_uvloop": False}), id="asyncio"),
        pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop"),
    ]
)
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    backend: tuple[str, dict[str, Any]] = request.param
    return backend


@pytest.fixture
def options(small_model: Path, llama_server: Path | None) -> Callable[..., EngineOptions]:
    def make(**changes: Any) -> EngineOptions:
        told = {"model": small_model, "alias": "small", "parallel": 2, "ctx_size": 1024}
        return EngineOptions(**{**told, "llama_server": llama_server, **changes})

    return make


async def ask(url: str, method: str, target: str, body: object = None, key: str = "") -> Any:
    client = Client(Address.parse(url))
    headers = ((b"authorization", f"Bearer {key}".encode()),) if key else ()
    raw = b"" if body is None else json.dumps(body).encode()
    exchange = client.exchange(method, target, headers, raw, single_use=True)
    try:
        await exchange.open()
        answer = await exchange.read_all(1 << 20)
        return exchange.status, json.loads(answer)
    finally:
        exchange.close()
        client.close()


async def test_it_serves_what_was_asked_for_when_start_returns(
    options: Callable[..., EngineOptions],
) -> None:
    said: list[str] = []
    server = ManagedServer(options(), said.append)
    await server.start()
    try:
        status, props = await ask(server.url, "GET", "/props")
        assert status == 200
        assert props["total_slots"] == 2
        assert props["default_generation_settings"]["n_ctx"] == 512
        assert props["model_alias"] == "small"
        assert props["endpoint_slots"] is True
        assert props["endpoint_metrics"] is True
        body = {"prompt": "Once", "n_predict": 4, "seed": 1}
        status, answer = await ask(server.url, "POST", "/completion", body)
        assert (status, answer["tokens_predicted"]) == (200, 4)
    finally:
        await server.stop(5)
    assert said[0].startswith("loading ")
    assert said[-1].startswith("loaded small in ")


async def test_it_is_gone_with_all_it_had_when_stop_returns(
    options: Callable[..., EngineOptions], wait_gone: Callable[[int], None]
) -> None:
    server = ManagedServer(options())
    await server.start()
    pid = server.pid
    assert pid is not None
    assert server.is_running
    socket_path = Address.parse(server.url).unix_path
    assert socket_path is not None
    await server.stop(5)
    assert not server.is_running
    assert server.pid is None
    wait_gone(pid)
    assert not exists(parent_of(socket_path))
    with pytest.raises(BackendError):
        await ask(server.url, "GET", "/health")
    await server.stop(5)  # again does no harm


async def test_its_socket_is_for_us_alone(options: Callable[..., EngineOptions]) -> None:
    server = ManagedServer(options())
    await server.start()
    path = Address.parse(server.url).unix_path
    assert path is not None
    try:
        assert mode_of(parent_of(path)) == 0o700
    finally:
        await server.stop(5)


async def test_it_is_out_of_reach_of_the_terminals_ctrl_c(
    options: Callable[..., EngineOptions],
) -> None:
    server = ManagedServer(options())
    await server.start()
    try:
        assert server.pid is not None
        assert os.getsid(server.pid) != os.getsid(0)
    finally:
        await server.stop(5)


async def test_a_restart_keeps_the_address_and_changes_the_process(
    options: Callable[..., EngineOptions],
) -> None:
    server = ManagedServer(options())
    await server.start()
    try:
        before = (server.url, server.pid)
        await server.restart()
        assert server.url == before[0]
        assert server.pid != before[1]
        assert (await ask(server.url, "GET", "/health"))[0] == 200
    finally:
        await server.stop(5)


async def test_after_a_crash_it_can_be_started_again(
    options: Callable[..., EngineOptions],
) -> None:
    server = ManagedServer(options())
    await server.start()
    try:
        url, pid = server.url, server.pid
        assert pid is not None
        os.kill(pid, 9)
        assert await server.wait_exit() == -9
        assert not server.is_running
        await server.start()
        assert server.url == url
        assert (await ask(url, "GET", "/health"))[0] == 200
    finally:
        await server.stop(5)


async def test_any_free_port_and_a_given_one_can_be_had(
    options: Callable[..., EngineOptions],
) -> None:
    server = ManagedServer(options(port=0))
    await server.start()
    port = Address.parse(server.url).port
    assert (await ask(server.url, "GET", "/health"))[0] == 200
    await server.stop(5)
    again = ManagedServer(options(port=port))
    await again.start()
    assert again.url == f"http://127.0.0.1:{port}"
    await again.stop(5)


async def test_a_taken_port_is_refused_before_anything_is_started(
    options: Callable[..., EngineOptions],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        server = ManagedServer(options(port=port))
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port}.*choose another port"):
            await server.start()
        assert server.pid is None


async def test_a_key_and_a_prefix_guard_it_and_the_key_is_not_shown(
    options: Callable[..., EngineOptions],
) -> None:
    server = ManagedServer(options(api_key="secret-key", api_prefix="/llm"))
    await server.start()
    try:
        assert server.url.endswith(":/llm")
        assert (await ask(server.url, "GET", "/props"))[0] == 401
        assert (await ask(server.url, "GET", "/props", key="secret-key"))[0] == 200
        assert "secret-key" not in " ".join(server.command)
        assert "secret-key" not in command_line_of(server.pid)
    finally:
        await server.stop(5)


def parent_of(path: str) -> Path:
    return Path(path).parent


def exists(path: Path) -> bool:
    return path.exists()


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def command_line_of(pid: int | None) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text() if pid else ""


async def test_switches_reach_the_engine(options: Callable[..., EngineOptions]) -> None:
    server = ManagedServer(
        options(slots=False, metrics=False, kv_unified=True, cache_type_k="q8_0", batch=64)
    )
    await server.start()
    try:
        assert (await ask(server.url, "GET", "/slots"))[0] == 501
        _, props = await ask(server.url, "GET", "/props")
        assert props["default_generation_settings"]["n_ctx"] == 1024
        assert props["endpoint_metrics"] is False
    finally:
        await server.stop(5)


async def test_its_log_says_that_it_serves_and_quotes_no_request(
    options: Callable[..., EngineOptions], tmp_path: Path
) -> None:
    log_file = tmp_path / "engine.log"
    server = ManagedServer(options(log_file=log_file))
    await server.start()
    secret = "SECRETWORD"
    try:
        chat = {"messages": [{"role": "user", "content": secret}], "max_tokens": 2}
        await ask(server.url, "POST", "/v1/chat/completions", chat)
        for extra in ({"grammar": f"root ::= {secret}"}, {"json_schema": {"type": secret}}):
            body = {"prompt": "a", "n_predict": 2, **extra}
            await ask(server.url, "POST", "/completion", body)
        await ask(server.url, "POST", "/v1/chat/completions", {**chat, "reasoning_format": secret})
        await ask(server.url, "POST", "/completion", {"prompt": secret * 2000})
        # llama.cpp logs from a thread of its own, which its end does not wait for.
        async with asyncio.timeout(20):
            while "print_timing" not in "".join(server.log_tail()):
                await asyncio.sleep(0)
    finally:
        await server.stop(5)
    kept = "\n".join(server.log_tail())
    assert "listening on" in kept
    assert "print_timing" in kept
    assert secret not in kept
    assert secret not in log_file.read_text()
    assert "print_timing" in log_file.read_text()


async def test_a_start_that_is_cancelled_leaves_nothing(
    options: Callable[..., EngineOptions], wait_gone: Callable[[int], None]
) -> None:
    spawned = asyncio.Event()
    server = ManagedServer(options(), lambda _: spawned.set())
    starting = asyncio.ensure_future(server.start())
    await spawned.wait()
    pid = server.pid
    assert pid is not None
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    wait_gone(pid)
    assert not server.is_running


async def test_nothing_of_the_engine_reaches_our_standard_output(
    options: Callable[..., EngineOptions], capfd: pytest.CaptureFixture[str]
) -> None:
    server = ManagedServer(options())
    await server.start()
    await server.stop(5)
    assert capfd.readouterr() == ("", "")


async def test_it_cannot_be_started_twice(options: Callable[..., EngineOptions]) -> None:
    server = ManagedServer(options())
    await server.start()
    try:
        with pytest.raises(ValueError, match="running already"):
            await server.start()
    finally:
        await server.stop(5)
