"""Both event loops, and servers that play scripts."""

from __future__ import annotations

import logging
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.net.scripted import Script, ScriptedServer

ServerFactory = Callable[..., Awaitable[ScriptedServer]]


@pytest.fixture(
    params=[
        pytest.param(("asyncio", {"use_uvloop": False}), id="asyncio"),
        pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop"),
    ]
)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(autouse=True)
def _the_loop_has_nothing_to_complain_of(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Such as writing on after a connection is lost, or an exception that nobody takes."""
    yield
    complaints = [
        record.getMessage()
        for record in caplog.get_records("call")
        if record.name == "asyncio" and record.levelno >= logging.WARNING
    ]
    assert not complaints


@pytest.fixture
async def scripted_server(anyio_backend: Any) -> AsyncIterator[ServerFactory]:
    """Start servers: `await scripted_server(script, ...)`; `tls` and `unix_path` by keyword."""
    servers: list[ScriptedServer] = []

    async def start(*scripts: Script, **how: Any) -> ScriptedServer:
        server = ScriptedServer(scripts)
        await server.start(**how)
        servers.append(server)
        return server

    yield start
    for server in servers:
        await server.stop()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for 127.0.0.1 and its key, in one file."""
    directory = tmp_path_factory.mktemp("tls")
    key, certificate = directory / "key.pem", directory / "certificate.pem"
    subprocess.run(
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext "
        f"subjectAltName=IP:127.0.0.1 -keyout {key} -out {certificate}".split(),
        check=True,
        capture_output=True,
    )
    both = directory / "both.pem"
    both.write_bytes(key.read_bytes() + certificate.read_bytes())
    return both


@pytest.fixture
def server_tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


@pytest.fixture
def client_tls(certificate: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate))
