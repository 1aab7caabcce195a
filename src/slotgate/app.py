"""The composition root: settings in, a running gateway out."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random  # noqa: TID251 - the one place where chance is made, to be handed to whom needs it
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from slotgate.backends.engine_plan import EngineWish, plan_engine
from slotgate.backends.llama_server import LlamaServer
from slotgate.backends.managed import ManagedServer
from slotgate.backends.models import resolve_model
from slotgate.config import ManagedSettings
from slotgate.config.limits import limits_of, policies_of
from slotgate.core.deployment import State
from slotgate.core.scheduler import Scheduler
from slotgate.errors import ConfigError
from slotgate.http.auth import Keyring
from slotgate.http.gateway import Gateway
from slotgate.http.measuring import Measuring
from slotgate.http.own import OwnRoutes
from slotgate.http.proxy import Proxy
from slotgate.http.server import listen, listen_unix, make_server
from slotgate.net.address import Address
from slotgate.net.client import Client, Timeouts
from slotgate.runtime.clock import LoopClock
from slotgate.runtime.driver import Driver
from slotgate.runtime.engines import STOP_GRACE_SECONDS, Supervisor
from slotgate.runtime.fleet import Fleet
from slotgate.runtime.journal import Journal
from slotgate.runtime.lifecycle import Lifecycle
from slotgate.runtime.probes import Probe, ProbeOptions
from slotgate.runtime.prompt_sizes import PromptSizes
from slotgate.telemetry import Telemetry
from slotgate.telemetry.events import Event
from slotgate.telemetry.gauges import BackendGauges, Gauges
from slotgate.telemetry.logs import LibraryHandler, log, make_logger
from slotgate.wire.session import SessionKeys

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Callable, Iterator

    from slotgate.config import Backend, Settings
    from slotgate.http.server import Server
    from slotgate.telemetry.logs import Logger

    Announce = Callable[[str], None]


@dataclass(slots=True)
class App:
    """A wired gateway; `serve` runs it."""

    settings: Settings
    logger: Logger
    telemetry: Telemetry
    driver: Driver
    fleet: Fleet
    gateway: Gateway
    supervisors: list[Supervisor]


async def run(settings: Settings, *, announce: Announce) -> None:
    """Run a gateway until it is told to stop; `announce` gets the lines for its user.

    Raises `ConfigError` when the address cannot be had and `ModelError` when an engine that we
    must start does not.
    """
    sockets = _bind(settings)
    async with contextlib.AsyncExitStack() as stack:
        for sock in sockets:
            stack.callback(sock.close)
        app = await stack.enter_async_context(build(settings, announce=announce))
        stack.enter_context(_libraries_logged(app.logger))
        await serve(app, sockets, announce=announce)


@contextlib.asynccontextmanager
async def build(
    settings: Settings, *, announce: Announce, scheduler_class: type[Scheduler] = Scheduler
) -> AsyncIterator[App]:
    """Wire everything and start the engines; leaving the block stops them."""
    loop = asyncio.get_running_loop()
    clock = LoopClock(loop)
    logger = make_logger(settings.log)
    for warning in settings.warnings:
        log(logger, Event.CONFIG_WARNING, message=warning)
    scheduler = scheduler_class(
        clock=clock,
        dice=random.SystemRandom(),
        limits=limits_of(settings),
        policies=policies_of(settings.scheduling),
    )
    driver = Driver(scheduler, loop)
    fleet = Fleet(driver)
    telemetry = Telemetry(
        read_gauges=lambda: _gauges(driver, fleet),
        tenants=[tenant.name for tenant in settings.tenants],
        backends=[backend.name for backend in settings.backends],
    )
    journal = Journal(logger, telemetry, logs_access=settings.log.access)
    driver.observers.append(journal)
    sizes = PromptSizes()
    keyring = Keyring.from_settings(settings)
    own = OwnRoutes(driver, fleet, keyring, telemetry, clock)
    gateway = Gateway(
        settings=settings,
        clock=clock,
        keyring=keyring,
        fleet=fleet,
        proxy=Proxy(driver, fleet, clock, journal, sizes),
        own=own,
        measuring=Measuring(driver, fleet, sizes),
        journal=journal,
        ids=_ids(),
        sessions=SessionKeys(secrets.token_bytes(32)),
    )
    app = App(settings, logger, telemetry, driver, fleet, gateway, [])
    async with contextlib.AsyncExitStack() as stack:
        for backend in settings.backends:
            await _add_backend(app, backend, journal, stack, announce)
        driver.settling_hooks.append(lambda name: fleet.probes[name].poke())
        yield app
    driver.close()


async def serve(app: App, sockets: list[socket.socket], *, announce: Announce) -> None:
    """Serve on bound sockets until told to stop, then drain."""
    lifecycle = Lifecycle(app.driver, drain_timeout_seconds=app.settings.drain_timeout)
    address = _shown_address(app.settings, sockets)
    lifecycle.listen()
    try:
        async with running(app, sockets) as server:
            if app.supervisors:
                announce(
                    f"point clients at {address}/v1 (OpenAI) or {address} (Anthropic, llama.cpp)"
                )
            announce(f"ready on {address}")
            log(app.logger, Event.READY, listen=address)
            await lifecycle.wait_stop()
            log(app.logger, Event.DRAINING)
            await lifecycle.drain()
            server.force_exit = lifecycle.is_forced
    finally:
        lifecycle.unlisten()
    log(app.logger, Event.STOPPED)


@contextlib.asynccontextmanager
async def running(app: App, sockets: list[socket.socket]) -> AsyncIterator[Server]:
    """Answer clients and watch the backends within the block; connections end with it."""
    server = make_server(app.gateway, app.settings.limits)
    async with asyncio.TaskGroup() as group:
        watchers = [group.create_task(probe.run()) for probe in app.fleet.probes.values()]
        watchers += [group.create_task(keeper.run()) for keeper in app.supervisors]
        serving = group.create_task(server.serve(sockets=sockets))
        try:
            yield server
        finally:
            server.should_exit = True
            await serving
            for watcher in watchers:
                watcher.cancel()


# Parts.


async def _add_backend(
    app: App,
    backend: Backend,
    journal: Journal,
    stack: contextlib.AsyncExitStack,
    announce: Announce,
) -> None:
    engine = None
    key, slots = None, None
    if isinstance(backend, ManagedSettings):
        engine = await _start_engine(backend, stack, announce)
        url, kv_pool = engine.url, engine.options.kv_pool_tokens
    else:
        url, key, slots, kv_pool = backend.url, backend.api_key, backend.slots, backend.kv_pool
    times = backend.timeouts
    timeouts = Timeouts(connect=times.connect, first_byte=times.first_byte, idle=times.idle)
    client = Client(Address.parse(url), timeouts=timeouts, name=backend.name)
    stack.callback(client.close)
    secret = key.get_secret_value() if key is not None else None
    server = LlamaServer(backend.name, client, api_key=secret)
    options = ProbeOptions(
        model=backend.alias or "",
        slots=slots,
        interval_seconds=app.settings.probe_interval,
        kv_pool=kv_pool,
        is_kv_separate=engine is not None and kv_pool is None,
    )
    probe = Probe(server, app.driver, options, journal)
    app.fleet.add(probe)
    await probe.look()
    if engine is not None:
        app.supervisors.append(Supervisor(engine, probe, app.logger))


async def _start_engine(
    backend: ManagedSettings, stack: contextlib.AsyncExitStack, announce: Announce
) -> ManagedServer:
    model = await resolve_model(backend.model_spec, progress=announce)
    binary = backend.llama_server_path
    wish = EngineWish(
        parallel=backend.parallel,
        ctx_per_slot=backend.ctx_per_slot,
        memory=backend.memory,
        cache_type=backend.cache_type,
        kv_unified=backend.kv_unified,
        threads=backend.threads,
        llama_server=Path(binary) if binary is not None else None,
        args=backend.args,
    )
    plan = await plan_engine(model, backend.alias or model.name, wish)
    for sentence in plan.sentences:
        announce(sentence)
    engine = ManagedServer(plan.options, announce)
    stack.push_async_callback(engine.stop, STOP_GRACE_SECONDS)
    await engine.start()
    return engine


def _gauges(driver: Driver, fleet: Fleet) -> Gauges:
    counts = driver.counts()
    backends = []
    for name, probe in fleet.probes.items():
        books = driver.books(name)
        backends.append(
            BackendGauges(
                name=name,
                is_up=probe.state is State.READY,
                slots=probe.slot_count,
                running_slots=sum(entry.width for entry in books.running.values()),
                settling_slots=sum(entry.width for entry in books.settling.values()),
                outside_slots=probe.outside,
                running_leases=len(books.running),
                settling_leases=len(books.settling),
            )
        )
    return Gauges(
        waiting=counts.waiting, waiting_bytes=counts.waiting_bytes, backends=tuple(backends)
    )


@contextlib.contextmanager
def _libraries_logged(logger: Logger) -> Iterator[None]:
    """Bring what asyncio and uvicorn have to say into our log, within the block."""
    handler = LibraryHandler(logger)
    loggers = [logging.getLogger(name) for name in ("asyncio", "uvicorn.error")]
    for library in loggers:
        library.addHandler(handler)
    try:
        yield
    finally:
        for library in loggers:
            library.removeHandler(handler)


def _ids() -> Iterator[str]:
    """Ids of requests: unlike those of any other process, and in the order of their coming."""
    prefix = secrets.token_hex(4)
    return (f"{prefix}-{number:x}" for number in itertools.count(1))


def _bind(settings: Settings) -> list[socket.socket]:
    where = settings.bind
    try:
        if where.unix_path is not None:
            return [listen_unix(where.unix_path)]
        return [listen(where.host, where.port)]
    except OSError as error:
        raise ConfigError(f"listen: cannot serve on {settings.listen}: {error.strerror}") from error


def _shown_address(settings: Settings, sockets: list[socket.socket]) -> str:
    where = settings.bind
    if where.unix_path is not None:
        return f"unix://{where.unix_path}"
    host = f"[{where.host}]" if ":" in where.host else where.host
    return f"http://{host}:{sockets[0].getsockname()[1]}"
