"""One backend of the roster: what its settings make of it, and what a change of them means."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from slotgate.backends.llama_server import LlamaServer
from slotgate.backends.router import RoutedModel
from slotgate.config import ModelSettings, ServerSettings
from slotgate.core.deployment import DeploymentReport, State
from slotgate.net.address import Address
from slotgate.net.client import Client, Timeouts

if TYPE_CHECKING:
    import asyncio

    from slotgate.backends.managed import ManagedServer
    from slotgate.backends.router import RouterView
    from slotgate.config import Backend
    from slotgate.runtime.probes import Probe, ProbeOptions


@dataclass(slots=True, eq=False)
class Member:
    """One backend: its settings, what speaks to it, and the tasks that look after it.

    `is_changing`: its keeper brings about a change that is not there yet.
    """

    settings: Backend
    server: LlamaServer
    probe: Probe
    engine: ManagedServer | None = None
    # Of a server: what is known of it as a router.  Of a router's model: that router, and its id.
    view: RouterView | None = None
    routed: Routed | None = None
    # By id; empty for all but a router, which `is_split` into them.
    models: dict[str, Member] = field(default_factory=dict)
    is_split: bool = False
    watcher: asyncio.Task[None] | None = None  # runs the probe
    # Supervises the engine, or brings about a change; before it those that it has taken over from.
    keepers: list[asyncio.Task[None]] = field(default_factory=list)
    is_changing: bool = False

    @property
    def name(self) -> str:
        return self.settings.name


class Routed(NamedTuple):
    """One model of a router."""

    view: RouterView
    id: str


def model_settings(settings: ServerSettings, view: RouterView, id: str) -> ServerSettings:
    """Return the settings of one model of a router, as if it were a server of its own.

    Where the router has but that one, the names that its own settings give are meant for it.
    """
    names = next((each for each in settings.models if each.id in view.models[id].names), None)
    is_alone = len(view.models) == 1
    given = names or (settings if is_alone else ModelSettings(id=id))
    alias, aliases = given.alias, given.aliases
    name = f"{settings.name}/{id}"
    return settings.model_copy(update={"name": name, "alias": alias, "aliases": aliases})


def speaker(
    settings: Backend, engine: ManagedServer | None, routed: Routed | None = None
) -> LlamaServer:
    """Return what speaks to a backend: to nobody yet, if its engine is not there."""
    times, secret = settings.timeouts, None
    url = engine.url if engine is not None else ""
    if isinstance(settings, ServerSettings):
        url = settings.url
        secret = settings.api_key.get_secret_value() if settings.api_key is not None else None
    timeouts = Timeouts(connect=times.connect, first_byte=times.first_byte, idle=times.idle)
    client = Client(Address.parse(url), timeouts=timeouts, name=settings.name) if url else None
    if routed is not None:
        return RoutedModel(settings.name, client, routed.view, routed.id, api_key=secret)
    return LlamaServer(settings.name, client, api_key=secret)


def probe_options(
    settings: Backend, engine: ManagedServer | None, probing: ProbeOptions
) -> ProbeOptions:
    """Return how a backend is to be watched, where all are watched as `probing` says."""
    slots, kv_pool = None, None
    if isinstance(settings, ServerSettings):
        slots, kv_pool = settings.slots, settings.kv_pool
    elif engine is not None:
        kv_pool = engine.options.kv_pool_tokens
    return replace(
        probing,
        model=settings.alias or "",
        aliases=settings.aliases,
        slots=slots,
        kv_pool=kv_pool,
        is_kv_separate=engine is not None and kv_pool is None,
        restart_grace=settings.restart_grace,
    )


def starting(settings: Backend, member: Member | None) -> DeploymentReport:
    """Return what is to be reported of a backend until more is known; slots as they were."""
    said = settings.slots if isinstance(settings, ServerSettings) else settings.parallel
    known = member.probe.slot_count if member is not None else 0
    slots = said or known or 1
    model = settings.alias or (member.probe.model if member is not None else "")
    residence = member.server.residence if member is not None else None
    return DeploymentReport(
        id=settings.name, model=model, slots=slots, state=State.STARTING, residence=residence
    )


def is_another_engine(old: Backend, new: Backend) -> bool:
    """Whether an engine must be stopped, started, or both, to go over from one to the other."""
    if isinstance(old, ServerSettings) and isinstance(new, ServerSettings):
        return False
    same = {"timeouts": new.timeouts, "restart_grace": new.restart_grace}
    return old.model_copy(update=same) != new


def is_moved(old: Backend, new: Backend) -> bool:
    """Whether it is another server from now on."""
    return getattr(old, "url", "") != getattr(new, "url", "")


def is_elsewhere(old: Backend, new: Backend) -> bool:
    """Whether what is known of the one says nothing of the other."""
    return old.alias != new.alias or is_moved(old, new)
