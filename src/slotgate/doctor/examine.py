"""Examines servers: looks, measures if that was asked for, and judges."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from slotgate.backends.devices.host import find_host
from slotgate.doctor.asking import Asker
from slotgate.doctor.evidence import PROPS, Evidence, Listener, Make, Measured
from slotgate.doctor.flags import flags_of
from slotgate.doctor.judge import Examined, judge
from slotgate.doctor.listener import find_listener, trained_in_file
from slotgate.doctor.look import Looking
from slotgate.doctor.measure import MEASURE_SECONDS, ask_one_token, measure
from slotgate.doctor.measure_plan import plan_measure
from slotgate.doctor.sockets import this_system
from slotgate.doctor.stated import Stated
from slotgate.doctor.where import where_is
from slotgate.errors import ConfigError
from slotgate.net.address import Address

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable

    from slotgate.doctor.flags import Flags
    from slotgate.doctor.where import Where
    from slotgate.wire.models import ListedModel

_NO_SCHEME = re.compile(r"[^/@]+:\d+(/|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """How servers are examined.

    `timeout`: seconds that one answer may take.  `watch_seconds`: how long a slot is watched that
    does not get on.  `reads_process`: whether the process that listens is read, if it is on this
    machine.  `measures`: whether requests of our own are sent, `is_forced` even where they would
    have to wait.  `announce` is told what will be sent, before.  `ssl_context` says whom to trust,
    None: the system's authorities.
    """

    key: str | None = None
    timeout: float = 5.0
    watch_seconds: float = 12.0
    stated: Stated = field(default_factory=Stated)
    reads_process: bool = True
    measures: bool = False
    is_forced: bool = False
    announce: Callable[[str], None] = lambda _: None
    ssl_context: ssl.SSLContext | None = None


async def examine_all(urls: Iterable[str], how: Examination) -> list[Examined]:
    """Examine several servers side by side, each once; ConfigError for what is no URL.

    Behind a router come those of its models that are loaded.
    """
    addresses = {str(address): address for address in map(address_of, urls)}
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_examine(each, how)) for each in addresses.values()]
    return [examined for task in tasks for examined in task.result()]


def address_of(url: str) -> Address:
    """Read a server's URL.

    Without a scheme, `host:port` is one of HTTP.  The `/v1` of OpenAI's clients is no part of it.
    """
    address = Address.parse(f"http://{url}" if _NO_SCHEME.match(url) else url)
    return replace(address, prefix=address.prefix.removesuffix("/v1"))


async def _examine(address: Address, how: Examination) -> list[Examined]:
    where = await where_is(address, how.timeout)
    around = await asyncio.to_thread(_around, where, address, how)
    server = await _examine_one(address, how, around)
    if server.evidence.make is not Make.ROUTER:
        return [server]
    loaded = [model for model in server.evidence.models if model.is_loaded]
    # One after the other: what a router is asked for one, it may ask of others.
    children = [await _examine_one(address, how, around, model) for model in loaded]
    return [server, *filter(_was_there, children)]


def _was_there(child: Examined) -> bool:
    """Whether a router's model was still loaded when it was asked."""
    return child.evidence.status(PROPS) != 400


def _around(where: Where, address: Address, how: Examination) -> dict[str, Any]:
    """What is known of a server without asking it."""
    known: dict[str, Any] = {"place": where.place}
    if where.is_own:
        host, system = find_host(), this_system()
        known["local_bytes"] = None if host is None else host.allowed.total_bytes
        if how.reads_process and system is not None:
            known["listener"] = find_listener(where, address, system)
    return known


async def _examine_one(
    address: Address, how: Examination, around: dict[str, Any], model: ListedModel | None = None
) -> Examined:
    name = None if model is None else model.id
    asker = Asker(
        address, key=how.key, timeout=how.timeout, ssl_context=how.ssl_context, model=name
    )
    looking = Looking(asker, url=str(address), watch_seconds=how.watch_seconds, model=model)
    flags = _flags(around.get("listener"), model)

    known = dict(around)
    # What a router tells of one model counts more than what was said of the router.
    is_told = model is not None and flags is not None
    stated = replace(how.stated, flags=None) if is_told else how.stated

    def seen() -> Evidence:
        return replace(looking.evidence(), **known, stated=stated, read_flags=flags)

    try:
        await looking.run()
        known["trained_in_file"] = await asyncio.to_thread(_trained_in_file, seen())
        measured = await _measure(asker, seen(), how) if how.measures else None
        if measured is not None and measured.usual_gap is not None:
            await looking.learn_sharing(lambda: ask_one_token(asker))
        return judge(replace(seen(), measured=measured))
    finally:
        asker.close()


def _trained_in_file(seen: Evidence) -> int | None:
    """Of a server here whose process may be read: what the file of its model says."""
    system, listener = this_system(), seen.listener
    path = None if seen.props is None else seen.props.model_path
    if system is None or listener is None or listener.pid is None or listener.flags is None:
        return None
    return None if path is None else trained_in_file(path, listener.pid, system)


def _flags(listener: Listener | None, model: ListedModel | None) -> Flags | None:
    """What a server was started with, or what a router starts one of its models with.

    A model's server has the variables of its router besides, and no word that is not listed.
    """
    of_process = None if listener is None else listener.flags
    if model is None:
        return of_process
    source = "GET /v1/models: status.args"
    if of_process is not None:
        source = f"{source}, and {of_process.source}"
    try:
        return flags_of(model.arguments, source, of_process) if model.arguments else None
    except ConfigError:
        return None


async def _measure(asker: Asker, seen: Evidence, how: Examination) -> Measured:
    plan = plan_measure(seen, is_forced=how.is_forced)
    if isinstance(plan, str):
        return Measured(refusal=plan)
    how.announce(f"{seen.name}: measuring with {plan.describe(MEASURE_SECONDS)}")
    return await measure(asker, plan)
