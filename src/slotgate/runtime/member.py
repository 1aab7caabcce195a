"""One backend of the roster: what its settings make of it, and what a change of them means."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from slotgate.backends.llama_server import LlamaServer
from slotgate.config import ServerSettings
from slotgate.core.deployment import DeploymentReport, State
from slotgate.net.address import Address
from slotgate.net.client import Client, Timeouts

if TYPE_CHECKING:
    import asyncio

    from slotgate.backends.managed import ManagedServer
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
    watcher: asyncio.Task[None] | None = None  # runs the probe
    # Supervises the engine, or brings about a change; before it those that it has taken over from.
    keepers: list[asyncio.Task[None]] = field(default_factory=list)
    is_changing: bool = False

    @property
    def name(self) -> str:
        return self.settings.name


def speaker(settings: Backend, engine: ManagedServer | None) -> LlamaServer:
    """Return what speaks to a backend: to nobody yet, if its engine is not there."""
    times, secret = settings.timeouts, None
    url = engine.url if engine is not None else ""
    if isinstance(settings, ServerSettings):
        url = settings.url
        secret = settings.api_key.get_secret_value() if settings.api_key is not None else None
    timeouts = Timeouts(connect=times.connect, first_byte=times.first_byte, idle=times.idle)
    client = Client(Address.parse(url), timeouts=timeouts, name=settings.name) if url else None
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
    return DeploymentReport(id=settings.name, model=model, slots=slots, state=State.STARTING)


def is_another_engine(old: Backend, new: Backend) -> bool:
    """Whether an engine must be stopped, started, or both, to go over from one to the other."""
    if isinstance(old, ServerSettings) and isinstance(new, ServerSettings):
        return False
    same = {"timeouts": new.timeouts, "restart_grace": new.restart_grace}
    return old.model_copy(update=same) != new


def is_elsewhere(old: Backend, new: Backend) -> bool:
    """Whether what is known of the one says nothing of the other."""
    return old.alias != new.alias or getattr(old, "url", "") != getattr(new, "url", "")
