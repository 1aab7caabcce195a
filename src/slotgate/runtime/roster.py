"""Every backend from its settings to its end: added, changed and removed while the gateway serves.

Rule 1: a backend is who its name says.  Whatever changes of it, its books and all that was learned
        of it stay, and no exchange that runs is touched: it keeps the connection that it has.
Rule 2: what is not ready yet is *withheld*: requests for it wait, as they do for one that loads.
Rule 3: what changes takes effect at once in the scheduler; what takes time is done by one task a
        backend, its keeper, and a newer change takes over from an older one.

| change | what runs | who waits, and newcomers |
|---|---|---|
| added | nothing yet | wait until it has been looked at, or its engine is loaded |
| url, alias | ends by itself, where it is | wait until it has been looked at |
| other settings of a server, timeouts | ends by itself, where it is | as before |
| an engine's own settings | ends; then the engine is started anew | wait |
| removed | ends by itself; an engine is stopped then | go elsewhere, or are refused |
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from slotgate.backends.router import RouterView
from slotgate.config import ManagedSettings, ServerSettings
from slotgate.core.deployment import State
from slotgate.errors import SlotgateError
from slotgate.runtime.engines import (
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    STOP_GRACE_SECONDS,
    Supervisor,
    start_engine,
)
from slotgate.runtime.member import (
    Member,
    Routed,
    is_another_engine,
    is_elsewhere,
    is_moved,
    probe_options,
    speaker,
    starting,
)
from slotgate.runtime.probes import Probe
from slotgate.runtime.routers import Routers
from slotgate.telemetry.events import Event
from slotgate.telemetry.logs import log

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from slotgate.backends.llama_server import LlamaServer
    from slotgate.backends.managed import ManagedServer
    from slotgate.config import Backend
    from slotgate.runtime.driver import Driver, Verb
    from slotgate.runtime.fleet import Fleet
    from slotgate.runtime.journal import Journal
    from slotgate.runtime.probes import ProbeOptions
    from slotgate.telemetry.logs import Logger

    Announce = Callable[[str], None]


class Roster:
    """The backends of the configuration, and those that leave it."""

    def __init__(
        self,
        *,
        driver: Driver,
        fleet: Fleet,
        journal: Journal,
        logger: Logger,
        announce: Announce,
        probing: ProbeOptions,
    ) -> None:
        self._driver = driver
        self._fleet = fleet
        self._journal = journal
        self._logger = logger
        self._announce = announce
        self._probing = probing
        # Told of a member whenever something else speaks to it, and by name when it leaves.
        self.contact_hooks: list[Callable[[Member], None]] = []
        self.leaving_hooks: list[Callable[[str], None]] = []
        self._routers = Routers(self, driver)
        self._group: asyncio.TaskGroup | None = None
        # By name; those that leave stay until their last request has ended.
        self._members: dict[str, Member] = {}
        self._leaving: dict[str, Member] = {}

    # Starting and stopping.

    async def open(self, backends: Sequence[Backend]) -> None:
        """Start all engines and look at all backends, one after the other.

        Raises `ModelError` or `ConfigError` when an engine does not start.  Whatever comes of it,
        `close` is to be called.
        """
        for settings in backends:
            engine = None
            if isinstance(settings, ManagedSettings):
                engine = await start_engine(settings, self._announce)
            member = self._join(settings, engine)
            await member.probe.look()
            for model in member.models.values():
                await model.probe.look()

    def watch(self, group: asyncio.TaskGroup) -> None:
        """Look after the backends from now on, with tasks of that group."""
        self._group = group
        for member in list(self._members.values()):
            member.watcher = group.create_task(member.probe.run())
            self._supervise(member)

    def unwatch(self) -> None:
        """End all tasks."""
        for member in (*self._members.values(), *self._leaving.values()):
            for task in (member.watcher, *member.keepers):
                if task is not None:
                    task.cancel()

    async def close(self) -> None:
        """Stop the engines and close the connections."""
        for member in (*self._leaving.values(), *self._members.values()):
            member.server.close()
            await self._stop_engine(member)

    @property
    def engines(self) -> dict[str, ManagedServer]:
        """The engines of ours that were started, by their backends' names."""
        members = self._members.items()
        return {name: member.engine for name, member in members if member.engine is not None}

    # Changing.

    def change(self, backends: Sequence[Backend]) -> None:
        """Go over to other backends: first those that come, so that nobody is left without any."""
        wanted = {settings.name: settings for settings in backends}
        for name, settings in wanted.items():
            member = self._members.get(name)
            if member is None:
                self._add(settings)
            elif member.settings != settings:
                self._alter(member, settings)
        for member in list(self._members.values()):
            if member.name not in wanted and member.routed is None:
                self._remove(member)

    def hold(self, name: str, verb: Verb) -> bool:
        """Do to all models of a router what the operator says; False if it is none."""
        member = self._members.get(name)
        if member is None or not member.is_split:
            return False
        self._routers.hold(member, verb)
        return True

    def models_of(self, name: str) -> list[str]:
        """Return the backends that are a router's models; of any other, itself."""
        member = self._members.get(name)
        if member is None or not member.is_split:
            return [name]
        return [model.name for model in member.models.values()]

    def _add(self, settings: Backend, routed: Routed | None = None) -> Member:
        self._tell(Event.BACKEND_ADDED, settings.name)
        member = self._leaving.pop(settings.name, None)
        if member is None:
            member = self._join(settings, None, routed)
        else:  # it comes back before it has gone
            self._members[member.name] = member
            member.settings, member.routed = settings, routed
        self._driver.withhold(starting(settings, member))
        self._begin(member)
        return member

    def _alter(self, member: Member, settings: Backend) -> None:
        if member.is_split and not is_moved(member.settings, settings):
            # Its models are gone through with the next look.
            member.settings = settings
            self._connect(member)
            return
        self._routers.dismiss(member)
        old, member.settings = member.settings, settings
        is_renewed = member.is_changing or is_another_engine(old, settings)
        self._tell(Event.BACKEND_REPLACED, member.name, drains=is_renewed)
        if is_renewed or is_elsewhere(old, settings):
            self._driver.withhold(starting(settings, member))
        if is_renewed:
            self._begin(member)
        else:
            self._connect(member)
            self._supervise(member)

    def _remove(self, member: Member) -> None:
        self._routers.forget(member)
        del self._members[member.name]
        self._tell(Event.BACKEND_REMOVED, member.name)
        self._leaving[member.name] = member
        for hook in self.leaving_hooks:
            hook(member.name)
        self._fleet.retire(member.name)
        self._driver.remove(member.name)
        self._take_over(member, self._see_off)

    # What becomes of routers; see `routers`.

    def enter(self, settings: Backend, routed: Routed) -> Member:
        return (
            self._join(settings, None, routed)
            if self._group is None
            else self._add(settings, routed)
        )

    def alter(self, member: Member, settings: Backend) -> None:
        self._alter(member, settings)

    def leave(self, member: Member) -> None:
        self._remove(member)

    def split(self, member: Member) -> None:
        for hook in self.leaving_hooks:
            hook(member.name)
        self._fleet.forget(member.name)
        if member.name in self._driver.states():
            self._driver.remove(member.name)

    def unsplit(self, member: Member) -> None:
        self._fleet.add(member.probe)
        self._tell_contact(member)
        self._driver.withhold(starting(member.settings, member))
        self._driver.release(member.name)

    # Members.

    def _join(
        self, settings: Backend, engine: ManagedServer | None, routed: Routed | None = None
    ) -> Member:
        server, probe = self._contact(settings, engine, routed)
        member = Member(settings, server, probe, engine, routed=routed)
        self._look_out_for_routers(member)
        self._members[member.name] = member
        self._fleet.add(probe)
        self._tell_contact(member)
        return member

    def _tell_contact(self, member: Member) -> None:
        for hook in self.contact_hooks:
            hook(member)

    def _contact(
        self, settings: Backend, engine: ManagedServer | None, routed: Routed | None
    ) -> tuple[LlamaServer, Probe]:
        server = speaker(settings, engine, routed)
        options = probe_options(settings, engine, self._probing)
        probe = Probe(server, self._driver, options, self._journal)
        if routed is not None:
            probe.listed = (routed.view.models[routed.id],)
        return server, probe

    def _look_out_for_routers(self, member: Member) -> None:
        if member.routed is None and isinstance(member.settings, ServerSettings):
            member.view = member.view or RouterView(member.name)
            member.probe.view = member.view
            member.probe.is_router = member.is_split
            member.probe.router_hook = partial(self._routers.looked, member)

    def _connect(self, member: Member) -> None:
        """Speak to the backend where it is now, and as its settings say now."""
        member.server.close()
        listed = member.probe.listed
        contact = self._contact(member.settings, member.engine, member.routed)
        member.server, member.probe = contact
        member.probe.listed = listed  # it is called so until it tells another name
        self._look_out_for_routers(member)
        if not member.is_split:
            self._fleet.add(member.probe)
            self._tell_contact(member)
        if member.watcher is not None:
            member.watcher.cancel()
        member.watcher = self._spawn(self._watch(member, member.probe))

    async def _watch(self, member: Member, probe: Probe) -> None:
        await probe.look()
        # Unless another change has begun meanwhile, of which this look says nothing.
        if not member.is_changing:
            self._driver.release(member.name)
        await probe.run()

    # Keepers.

    def _begin(self, member: Member) -> None:
        """Make of a backend whose reports are withheld what its settings say."""
        self._fleet.add(member.probe)
        self._tell_contact(member)
        member.is_changing = True
        self._take_over(member, self._renew)

    def _supervise(self, member: Member) -> None:
        if member.engine is not None:
            supervisor = Supervisor(member.engine, member.probe, self._logger)
            self._take_over(member, lambda _: supervisor.run())

    async def _renew(self, member: Member) -> None:
        """Let what runs end, if there is an engine to be stopped or started; then begin anew."""
        if member.engine is not None or isinstance(member.settings, ManagedSettings):
            await self._driver.wait_empty(member.name)
            if member.watcher is not None:
                member.watcher.cancel()
            await self._stop_engine(member)
        if isinstance(member.settings, ManagedSettings):
            member.engine = await self._start_engine(member, member.settings)
        self._connect(member)
        member.is_changing = False
        if member.engine is not None:
            await Supervisor(member.engine, member.probe, self._logger).run()

    async def _see_off(self, member: Member) -> None:
        """Let what runs end, then forget a backend that was removed."""
        await self._driver.wait_empty(member.name)
        if member.watcher is not None:
            member.watcher.cancel()
        member.server.close()
        await self._stop_engine(member)
        del self._leaving[member.name]
        self._fleet.forget(member.name)
        self._driver.forget(member.name)
        self._journal.backend_gone(member.name)

    async def _start_engine(self, member: Member, settings: ManagedSettings) -> ManagedServer:
        """Start an engine, again and again if it must be; nobody waits for one that failed."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            member.probe.put(State.STARTING, "its engine is being started")
            try:
                return await start_engine(settings, self._announce)
            except SlotgateError as error:
                self._tell(Event.ENGINE_FAILED, member.name, why=str(error), pause=pause)
                member.probe.put(State.DOWN, str(error))
            self._driver.release(member.name)
            self._driver.report(replace(starting(settings, member), state=State.DOWN))
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def _stop_engine(self, member: Member) -> None:
        engine, member.engine = member.engine, None
        if engine is not None:
            await engine.stop(STOP_GRACE_SECONDS)

    def _take_over(
        self, member: Member, work: Callable[[Member], Coroutine[object, object, None]]
    ) -> None:
        """Have a new keeper work, once those before it have ended."""
        former = [keeper for keeper in member.keepers if not keeper.done()]
        for keeper in former:
            keeper.cancel()

        async def keep() -> None:
            if former:
                await asyncio.wait(former)
            await work(member)

        member.keepers = [*former, self._spawn(keep())]

    def _spawn(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        assert self._group is not None  # noqa: S101 - nothing changes before `watch`
        return self._group.create_task(work)

    def _tell(self, event: Event, name: str, **fields: object) -> None:
        log(self._logger, event, backend=name, **fields)
