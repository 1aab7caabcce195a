"""The composition root: settings in, a running gateway out."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random  # noqa: TID251 - the one place where chance is made, to be handed to whom needs it
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slotgate.config.limits import limits_of, patience_of, policies_of, watch_rules_of
from slotgate.core.deployment import State
from slotgate.core.scheduler import Scheduler
from slotgate.core.watchdog import Watchdog
from slotgate.errors import ConfigError
from slotgate.http.admin import Admin
from slotgate.http.answers import Answers
from slotgate.http.auth import Keyring
from slotgate.http.gateway import Gateway
from slotgate.http.measuring import Measuring
from slotgate.http.operating import Operator
from slotgate.http.own import OwnRoutes
from slotgate.http.proxy import Proxy
from slotgate.http.server import listen, listen_unix, make_server
from slotgate.http.tables import Tables
from slotgate.runtime.clock import LoopClock
from slotgate.runtime.driver import Driver
from slotgate.runtime.failover import Failover
from slotgate.runtime.fleet import Fleet
from slotgate.runtime.journal import Journal
from slotgate.runtime.lifecycle import Lifecycle
from slotgate.runtime.probes import ProbeOptions
from slotgate.runtime.prompt_sizes import PromptSizes
from slotgate.runtime.roster import Roster
from slotgate.runtime.watchdog import BackendWatch, WatchOptions
from slotgate.telemetry import Telemetry
from slotgate.telemetry.events import Event
from slotgate.telemetry.gauges import BackendGauges, Gauges
from slotgate.telemetry.logs import LibraryHandler, log, make_logger
from slotgate.wire.session import SessionKeys

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Callable, Iterator

    from slotgate.config import Settings
    from slotgate.http.server import Server
    from slotgate.runtime.member import Member
    from slotgate.telemetry.logs import Logger

    Announce = Callable[[str], None]
    ReadSettings = Callable[[], Settings]


@dataclass(slots=True)
class App:
    """A wired gateway; `serve` runs it."""

    settings: Settings
    logger: Logger
    telemetry: Telemetry
    driver: Driver
    fleet: Fleet
    gateway: Gateway
    roster: Roster
    operator: Operator
    watch: BackendWatch


async def run(
    settings: Settings, *, announce: Announce, read_settings: ReadSettings | None = None
) -> None:
    """Run a gateway until it is told to stop; `announce` gets the lines for its user.

    `read_settings` reads the settings anew for a reload; None where they come from no file.

    Raises `ConfigError` when the address cannot be had and `ModelError` when an engine that we
    must start does not.
    """
    sockets = _bind(settings)
    async with contextlib.AsyncExitStack() as stack:
        for sock in sockets:
            stack.callback(sock.close)
        app = await stack.enter_async_context(
            build(settings, announce=announce, read_settings=read_settings)
        )
        stack.enter_context(_libraries_logged(app.logger))
        await serve(app, sockets, announce=announce)


@contextlib.asynccontextmanager
async def build(
    settings: Settings,
    *,
    announce: Announce,
    read_settings: ReadSettings | None = None,
    scheduler_class: type[Scheduler] = Scheduler,
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
    driver.state_hooks.append(journal.backend_used)
    sizes = PromptSizes()
    keyring = Keyring.from_settings(settings)
    roster = Roster(
        driver=driver,
        fleet=fleet,
        journal=journal,
        logger=logger,
        announce=announce,
        probing=ProbeOptions(
            interval_seconds=settings.probe_interval,
            patience=patience_of(settings.health),
            settle_bound_seconds=settings.settle_bound,
        ),
    )
    watch = _watch(settings, driver, journal, roster)
    operator = Operator(
        settings=settings,
        driver=driver,
        roster=roster,
        journal=journal,
        read_settings=read_settings,
    )
    tables = Tables(settings, keyring, fleet)
    admin = Admin(operator, driver, tables, keyring)
    own = OwnRoutes(
        driver=driver, fleet=fleet, keyring=keyring, telemetry=telemetry, clock=clock, admin=admin
    )
    gateway = Gateway(
        settings=settings,
        clock=clock,
        keyring=keyring,
        fleet=fleet,
        proxy=Proxy(
            driver,
            clock,
            journal,
            Failover(driver, fleet, clock, journal),
            Answers(clock, journal, sizes),
        ),
        own=own,
        measuring=Measuring(driver, fleet, sizes),
        journal=journal,
        ids=_ids(),
        sessions=SessionKeys(secrets.token_bytes(32)),
    )

    def go_by(settings: Settings, keyring: Keyring) -> None:
        gateway.settings = tables.settings = settings
        gateway.keyring = own.keyring = admin.keyring = tables.keyring = keyring
        telemetry.know(tenant.name for tenant in settings.tenants)

    operator.reload_hooks.append(go_by)
    try:
        await roster.open(settings.backends)
        driver.settling_hooks.append(lambda name: fleet.probes[name].poke())
        yield App(settings, logger, telemetry, driver, fleet, gateway, roster, operator, watch)
    finally:
        await roster.close()
    driver.close()


async def serve(app: App, sockets: list[socket.socket], *, announce: Announce) -> None:
    """Serve on bound sockets until told to stop, then drain."""
    lifecycle = Lifecycle(
        app.driver,
        drain_timeout_seconds=app.settings.drain_timeout,
        on_reload=app.operator.reload_on_signal,
    )
    app.operator.reload_hooks.append(
        lambda settings, _: setattr(lifecycle, "drain_timeout_seconds", settings.drain_timeout)
    )
    address = _shown_address(app.settings, sockets)
    lifecycle.listen()
    try:
        async with running(app, sockets) as server:
            if app.roster.engines:
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
    app.operator.reload_hooks.append(lambda settings, _: server.relimit(settings.limits))
    async with asyncio.TaskGroup() as group:
        app.roster.watch(group)
        watching = group.create_task(app.watch.run())
        serving = group.create_task(server.serve(sockets=sockets))
        try:
            yield server
        finally:
            server.should_exit = True
            await serving
            app.roster.unwatch()
            watching.cancel()


# Parts.


def _watch(settings: Settings, driver: Driver, journal: Journal, roster: Roster) -> BackendWatch:
    """Return what watches the roster's backends, whichever these are."""
    watch = BackendWatch(driver, journal, _watch_options(settings))

    def watch_over(member: Member) -> None:
        times = member.settings.timeouts
        rules = watch_rules_of(settings.watchdog, unknown=max(times.first_byte, times.idle))
        watch.add(member.probe, Watchdog(member.name, rules), member.engine)

    if settings.watchdog.enabled:
        roster.contact_hooks.append(watch_over)
        roster.leaving_hooks.append(watch.remove)
    return watch


def _watch_options(settings: Settings) -> WatchOptions:
    chosen = settings.watchdog
    return WatchOptions(
        ends_streams=chosen.action != "alert",
        restarts=chosen.action == "restart",
        restarts_per_hour=chosen.restarts_per_hour,
        restart_grace_seconds=chosen.restart_grace,
        hook=chosen.hook,
        hook_timeout_seconds=chosen.hook_timeout,
        cooldown_seconds=chosen.cooldown,
    )


def _gauges(driver: Driver, fleet: Fleet) -> Gauges:
    counts, held, states = driver.counts(), driver.held(), driver.states()
    backends = []
    for name, probe in fleet.probes.items():
        books = driver.books(name)
        backends.append(
            BackendGauges(
                name=name,
                state=states.get(name, State.STARTING),
                is_held=name in held,
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
