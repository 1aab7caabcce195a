"""A llama.cpp that does not come up, or does not go down."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from slotgate.backends.managed import EngineOptions, ManagedServer
from slotgate.errors import ConfigError, ModelError
from slotgate.net.address import Address
from slotgate.net.client import Client

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.anyio, pytest.mark.process]

START = """
import asyncio, sys
from pathlib import Path
from slotgate.backends.managed import EngineOptions, ManagedServer
from slotgate.errors import ModelError
model, binary, ctx_size = sys.argv[1:]
options = EngineOptions(model=Path(model), alias="m", parallel=1, ctx_size=int(ctx_size),
                        llama_server=Path(binary) if binary else None)
try:
    asyncio.run(ManagedServer(options).start())
except ModelError as error:
    sys.exit(str(error))
"""


@pytest.fixture
def fake(
    fake_llama_server: Path, tmp_path: Path, make_gguf: Callable[..., bytes]
) -> Callable[..., EngineOptions]:
    """Options to start the program that misbehaves in this way."""
    model = tmp_path / "m.gguf"
    model.write_bytes(make_gguf())

    def make(mode: str, **changes: Any) -> EngineOptions:
        told = {"model": model, "parallel": 1, "ctx_size": 512, "llama_server": fake_llama_server}
        return EngineOptions(**{**told, "alias": mode, **changes})

    return make


@pytest.mark.llama
async def test_too_little_memory_is_called_that(
    small_model: Path, llama_server: Path | None
) -> None:
    # 9 GB of KV cache in an address space of 4 GB.
    start = [sys.executable, "-c", START, str(small_model), str(llama_server or ""), "400000"]
    done = await asyncio.to_thread(
        subprocess.run,
        ["/bin/sh", "-c", 'ulimit -v 4000000; exec "$@"', "sh", *start],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "there is not enough memory; take fewer slots or a shorter context" in done.stderr


@pytest.mark.llama
async def test_a_model_cut_short_is_called_damaged(
    small_model: Path, llama_server: Path | None, tmp_path: Path
) -> None:
    path = tmp_path / "cut.gguf"
    with small_model.open("rb") as file:
        path.write_bytes(file.read(10_000_000))
    options = EngineOptions(
        model=path, alias="m", parallel=1, ctx_size=512, llama_server=llama_server
    )
    server = ManagedServer(options)
    with pytest.raises(ModelError, match="cut short or damaged; fetch it again") as caught:
        await server.start()
    assert "its last lines:\n  | " in str(caught.value)
    assert not server.is_running


async def test_a_model_that_is_none_is_refused_before_anything_is_started(
    tmp_path: Path, fake: Callable[..., EngineOptions]
) -> None:
    with pytest.raises(ModelError, match="no such file"):
        await ManagedServer(fake("never", model=tmp_path / "none.gguf")).start()


async def test_a_binary_that_is_no_llama_server_is_refused_before_the_model_is_loaded(
    fake: Callable[..., EngineOptions],
) -> None:
    with pytest.raises(ConfigError, match="not a llama-server"):
        await ManagedServer(fake("x", llama_server=Path("/bin/sh"))).start()


async def test_one_that_is_never_ready_is_ended_after_the_bound(
    fake: Callable[..., EngineOptions],
) -> None:
    server = ManagedServer(fake("never"))
    with pytest.raises(ModelError, match=r"not ready after 1 s; its last line: still thinking"):
        await server.start(load_seconds=1)
    assert not server.is_running


async def test_one_that_ignores_sigterm_is_killed_after_the_grace(
    fake: Callable[..., EngineOptions], wait_gone: Callable[[int], None]
) -> None:
    server = ManagedServer(fake("stubborn"))
    await server.start()
    pid = server.pid
    assert pid is not None
    loop = asyncio.get_running_loop()
    began = loop.time()
    await server.stop(0.3)
    assert loop.time() - began >= 0.3
    assert await server.wait_exit() == -9
    wait_gone(pid)


async def test_its_own_children_end_with_it(
    fake: Callable[..., EngineOptions], wait_gone: Callable[[int], None]
) -> None:
    server = ManagedServer(fake("family"))
    await server.start()
    child = int(next(line for line in server.log_tail() if "child" in line).split()[1])
    await server.stop(5)
    wait_gone(child)


async def test_a_stop_that_is_cancelled_still_ends_it(
    fake: Callable[..., EngineOptions], wait_gone: Callable[[int], None]
) -> None:
    server = ManagedServer(fake("stubborn"))
    await server.start()
    pid = server.pid
    assert pid is not None
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await server.stop(60)
    wait_gone(pid)


async def test_its_death_is_seen_by_whoever_waits_for_it(
    fake: Callable[..., EngineOptions],
) -> None:
    server = ManagedServer(fake("dying"))
    await server.start()
    client = Client(Address.parse(server.url))
    exchange = client.exchange("GET", "/props", single_use=True)
    async with asyncio.TaskGroup() as group:
        waiters = [group.create_task(server.wait_exit()) for _ in range(2)]
        group.create_task(fails(exchange.open()))
    assert [waiter.result() for waiter in waiters] == [7, 7]
    assert not server.is_running
    await server.stop(0)


async def fails(awaitable: Any) -> None:
    with pytest.raises(Exception, match=r".*"):
        await awaitable


async def test_one_that_does_not_say_where_it_listens_cannot_quote_requests_either(
    fake: Callable[..., EngineOptions],
) -> None:
    server = ManagedServer(fake("quiet"))
    await server.start()
    client = Client(Address.parse(server.url))
    for _ in range(2):  # the answer to the second follows the line about the first
        exchange = client.exchange("GET", "/SECRET", single_use=True)
        await exchange.open()
        exchange.close()
    await server.stop(5)
    assert "/health" in server.log_tail()[0]
    assert "SECRET" not in "".join(server.log_tail())


async def test_giving_up_waiting_for_its_death_leaves_it_alone(
    fake: Callable[..., EngineOptions],
) -> None:
    server = ManagedServer(fake("plain"))
    await server.start()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await server.wait_exit()
    assert server.is_running
    await server.stop(5)


async def test_a_line_without_end_costs_no_memory(fake: Callable[..., EngineOptions]) -> None:
    server = ManagedServer(fake("chatty"))
    await server.start()
    assert max(map(len, server.log_tail())) <= 8192
    await server.stop(5)


async def test_a_key_in_our_environment_is_not_handed_on(
    fake: Callable[..., EngineOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_API_KEY", "somebody-elses")
    monkeypatch.setenv("LLAMA_SERVER_SLOTS_DEBUG", "1")
    server = ManagedServer(fake("plain"))
    await server.start()
    environ = environ_of(server.pid)
    await server.stop(5)
    assert "LLAMA_API_KEY" not in environ
    assert "LLAMA_SERVER_SLOTS_DEBUG" not in environ
    assert "PATH=" in environ


def environ_of(pid: int | None) -> str:
    return Path(f"/proc/{pid}/environ").read_text(encoding="utf-8")


async def test_a_socket_left_over_is_replaced(fake: Callable[..., EngineOptions]) -> None:
    server = ManagedServer(fake("plain"))
    await server.start()
    pid = server.pid
    assert pid is not None
    os.kill(pid, 9)  # leaves its socket behind
    await server.wait_exit()
    await server.start()
    assert server.is_running
    await server.stop(5)


@pytest.mark.llama
async def test_files_in_the_current_directory_do_not_stand_in_for_modules(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json.py", "signal.py", "xllamacpp.py"):
        (tmp_path / name).write_text("raise SystemExit('taken from the current directory')")
    monkeypatch.chdir(tmp_path)
    options = EngineOptions(model=small_model, alias="m", parallel=1, ctx_size=256)
    server = ManagedServer(options)
    await server.start()
    await server.stop(5)


async def test_a_log_file_that_cannot_be_written_is_named(
    fake: Callable[..., EngineOptions], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"log_file: .*none"):
        await ManagedServer(fake("plain", log_file=tmp_path / "none" / "x.log")).start()


async def test_waiting_for_one_that_was_never_started_is_an_error(
    fake: Callable[..., EngineOptions],
) -> None:
    server = ManagedServer(fake("plain"))
    with pytest.raises(ValueError, match="never started"):
        await server.wait_exit()
    await server.stop(1)
    assert server.log_tail() == ()
