"""Examines servers: looks, measures if that was asked for, and judges."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from slotgate.backends.devices.host import find_host
from slotgate.doctor.asking import Asker
from slotgate.doctor.evidence import Evidence, Measured, Place
from slotgate.doctor.judge import Examined, judge
from slotgate.doctor.look import Looking, place_of
from slotgate.doctor.measure import MEASURE_SECONDS, ask_one_token, measure
from slotgate.doctor.measure_plan import plan_measure
from slotgate.doctor.stated import Stated
from slotgate.net.address import Address

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """How servers are examined.

    `timeout`: seconds that one answer may take.  `watch_seconds`: how long a slot is watched that
    does not get on.  `measures`: whether requests of our own are sent, `is_forced` even where they
    would have to wait.  `announce` is told what will be sent, before.  `ssl_context` says whom to
    trust, None: the system's authorities.
    """

    key: str | None = None
    timeout: float = 5.0
    watch_seconds: float = 12.0
    stated: Stated = field(default_factory=Stated)
    measures: bool = False
    is_forced: bool = False
    announce: Callable[[str], None] = lambda _: None
    ssl_context: ssl.SSLContext | None = None


async def examine_all(urls: Iterable[str], how: Examination) -> list[Examined]:
    """Examine several servers side by side, each once; ConfigError for what is no URL."""
    addresses = {str(address): address for address in map(address_of, urls)}
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_examine(each, how)) for each in addresses.values()]
    return [task.result() for task in tasks]


def address_of(url: str) -> Address:
    """Read a server's URL; the `/v1` of OpenAI's clients is no part of it."""
    address = Address.parse(url)
    return replace(address, prefix=address.prefix.removesuffix("/v1"))


async def _examine(address: Address, how: Examination) -> Examined:
    asker = Asker(address, key=how.key, timeout=how.timeout, ssl_context=how.ssl_context)
    try:
        place = await place_of(address, how.timeout)
        looking = Looking(asker, url=str(address), watch_seconds=how.watch_seconds)
        await looking.run()
        local_bytes = await _local_bytes() if place is Place.HERE else None

        def seen() -> Evidence:
            return looking.evidence(place=place, stated=how.stated, local_bytes=local_bytes)

        measured = await _measure(asker, seen(), how) if how.measures else None
        if measured is not None and measured.usual_gap is not None:
            await looking.learn_sharing(lambda: ask_one_token(asker))
        return judge(replace(seen(), measured=measured))
    finally:
        asker.close()


async def _measure(asker: Asker, seen: Evidence, how: Examination) -> Measured:
    plan = plan_measure(seen, is_forced=how.is_forced)
    if isinstance(plan, str):
        return Measured(refusal=plan)
    how.announce(f"{seen.url}: measuring with {plan.describe(MEASURE_SECONDS)}")
    return await measure(asker, plan)


async def _local_bytes() -> int | None:
    """The memory of this machine that a server here may have."""
    host = await asyncio.to_thread(find_host)
    return None if host is None else host.allowed.total_bytes
