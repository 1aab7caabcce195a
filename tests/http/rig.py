"""A gateway in this process, on real sockets, in front of a stub llama-server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from slotgate import app as application
from slotgate.config import load_settings
from slotgate.core import Scheduler
from slotgate.http.server import listen
from slotgate.net.address import Address
from slotgate.net.client import Client
from slotgate.stub import StubOptions, StubServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from slotgate.config import Settings
    from slotgate.core.snapshot import Counts
    from slotgate.net.exchange import Exchange

CHAT = "/v1/chat/completions"
PATIENCE_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> Any:
        return self.json()["error"]["code"]


def chat(tokens: int = 4, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "hello"}], "max_tokens": tokens, **fields}


class Rig:
    """A running gateway.  `stub` is what stands behind it, where that is a stub.

    `overrides` are its settings by their paths, as a reload reads them again.
    """

    def __init__(self, app: application.App, port: int, overrides: dict[str, Any]) -> None:
        self.app = app
        self.overrides = overrides
        self.port = port
        self.stub = StubServer()
        self.stubs: dict[str, StubServer] = {}
        self.client = Client(Address.parse(f"http://127.0.0.1:{port}"))

    @property
    def counts(self) -> Counts:
        return self.app.driver.counts()

    async def wait_until(self, condition: Callable[[Counts], bool]) -> None:
        """Wait for an observed state of the scheduler, with a bound."""
        loop = asyncio.get_running_loop()
        seen: asyncio.Future[None] = loop.create_future()

        def look() -> None:
            if not seen.done() and condition(self.counts):
                seen.set_result(None)

        self.app.driver.change_hooks.append(look)
        try:
            look()
            async with asyncio.timeout(PATIENCE_SECONDS):
                await seen
        finally:
            self.app.driver.change_hooks.remove(look)

    @contextlib.asynccontextmanager
    async def open(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> AsyncIterator[Exchange]:
        data = body if isinstance(body, bytes) else b"" if body is None else _encode(body)
        head = [*headers, *([(b"content-type", b"application/json")] if data else [])]
        exchange = self.client.exchange(method, path, head, data, single_use=True)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                yield exchange
        finally:
            exchange.close()

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> Answer:
        async with self.open(method, path, body, headers) as exchange:
            await exchange.open()
            data = await exchange.read_all(1 << 28)
            pairs = {name.decode(): value.decode() for name, value in exchange.headers}
            return Answer(exchange.status, pairs, data)

    async def get(self, path: str, headers: Sequence[tuple[bytes, bytes]] = ()) -> Answer:
        return await self.ask("GET", path, None, headers)

    async def post(
        self, path: str, body: Any, headers: Sequence[tuple[bytes, bytes]] = ()
    ) -> Answer:
        return await self.ask("POST", path, body, headers)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _encode(body: Any) -> bytes:
    return json.dumps(body).encode()


@contextlib.asynccontextmanager
async def gateway(
    stub: StubOptions | None = None,
    *,
    backend: dict[str, Any] | None = None,
    env: dict[str, str] | None = None,
    scheduler_class: type[Scheduler] = Scheduler,
    **settings: Any,
) -> AsyncIterator[Rig]:
    """Run a gateway within the block; keys of `settings` have `__` for the dots.

    `backend` has more keys for the one backend.
    """
    # A port of its own, so that a stub which goes comes back to the same place.
    options = replace(stub or StubOptions(decode=0), port=free_port())
    async with StubServer(options) as server:
        url = server.url + options.api_prefix
        async with gateway_at(
            url, backend=backend, env=env, scheduler_class=scheduler_class, **settings
        ) as rig:
            rig.stub = server
            yield rig


@contextlib.asynccontextmanager
async def fleet(
    stubs: dict[str, StubOptions], *, backend: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[Rig]:
    """Run a gateway within the block, in front of several stubs; they are `Rig.stubs`."""
    async with contextlib.AsyncExitStack() as stack:
        running = {
            name: await stack.enter_async_context(StubServer(replace(options, port=free_port())))
            for name, options in stubs.items()
        }
        backends = [
            {"name": name, "url": stub.url, **(backend or {})} for name, stub in running.items()
        ]
        url = backends[0]["url"]
        rig = await stack.enter_async_context(gateway_at(url, backends=backends, **settings))
        rig.stubs = running
        yield rig


@contextlib.asynccontextmanager
async def gateway_at(
    url: str,
    *,
    backend: dict[str, Any] | None = None,
    env: dict[str, str] | None = None,
    scheduler_class: type[Scheduler] = Scheduler,
    **settings: Any,
) -> AsyncIterator[Rig]:
    """Run a gateway within the block, in front of a server that is already there."""
    overrides = {key.replace("__", "."): value for key, value in settings.items()}
    overrides.setdefault("backends", [{"name": "stub", "url": url, **(backend or {})}])
    overrides.setdefault("log.level", "error")

    def read() -> Settings:
        return load_settings(None, overrides=overrides, env=env or {})

    async with contextlib.AsyncExitStack() as stack:
        app = await stack.enter_async_context(
            application.build(
                read(),
                announce=lambda _line: None,
                read_settings=read,
                scheduler_class=scheduler_class,
            )
        )
        sock = listen("127.0.0.1", 0)
        stack.callback(sock.close)
        await stack.enter_async_context(application.running(app, [sock]))
        rig = Rig(app, sock.getsockname()[1], overrides)
        stack.callback(rig.client.close)
        yield rig
