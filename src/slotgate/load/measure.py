"""How much a server can do: some clients that always want one more answer, for a while.

A closed loop is right here and nowhere else: it asks how fast the server is when it always has
work and nobody waits.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from slotgate.errors import BackendError, ConfigError
from slotgate.load.arrival import Arrival
from slotgate.load.backoff import ClientKind
from slotgate.load.visit import Visit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from slotgate.load.lengths import LengthClass
    from slotgate.load.record import Record
    from slotgate.load.visit import Visiting
    from slotgate.net.client import Client

_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Served:
    """What a server says of itself, where it says it."""

    model: str | None
    slots: int | None


async def look_at(client: Client, headers: Sequence[tuple[bytes, bytes]]) -> Served:
    """Ask for the first model's name, and a llama-server or gateway for its slots."""
    models = await _get(client, "/v1/models", headers)
    listed = models.get("data")
    first = listed[0] if isinstance(listed, list) and listed else None
    name = first.get("id") if isinstance(first, dict) else None
    props = await _get(client, "/props", headers)
    slots = props.get("total_slots")
    return Served(
        name if isinstance(name, str) else None,
        slots if isinstance(slots, int) and slots > 0 else None,
    )


async def _get(
    client: Client, target: str, headers: Sequence[tuple[bytes, bytes]]
) -> dict[str, Any]:
    try:
        with client.exchange("GET", target, headers, first_byte=10.0) as exchange:
            await exchange.open()
            body = json.loads(await exchange.read_all(_MOST_BYTES))
    except (BackendError, ValueError):
        return {}
    return body if isinstance(body, dict) else {}


async def measure_capacity(
    shared: Visiting,
    kinds: Mapping[str, LengthClass],
    *,
    at_once: int,
    seconds: float,
    stopped: asyncio.Event | None = None,
) -> float:
    """Requests a second of what these tenants ask for in equal parts; ConfigError without answers.

    Tokens are counted, not requests: the few that are answered in a short time may happen to be
    long or short ones.  `stopped` ends it early.
    """
    loop = asyncio.get_running_loop()
    patient = replace(shared, kind=ClientKind.NONE)
    records: list[Record] = []
    tenants = list(kinds)

    async def ask_on(number: int) -> None:
        while True:
            tenant = tenants[number % len(tenants)]
            kind = kinds[tenant]
            number += at_once
            arrival = Arrival(
                at=0.0,
                tenant=tenant,
                input_tokens=kind.input.draw(shared.dice),
                output_tokens=kind.output.draw(shared.dice),
            )
            visit = Visit(arrival, patient, loop.time())
            try:
                await visit.run()
            finally:
                records.append(visit.record(loop.time()))
            if records[-1].ttft is None:
                return

    async def ask_all() -> None:
        async with asyncio.TaskGroup() as askers:
            for number in range(at_once):
                askers.create_task(ask_on(number))

    began_at = loop.time()
    async with asyncio.TaskGroup() as group:
        # Asking ends by itself only where it is in vain.
        ends: set[asyncio.Task[Any]] = {
            group.create_task(ask_all()),
            group.create_task((stopped or asyncio.Event()).wait()),
        }
        await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in ends:
            task.cancel()
    tokens = sum(record.output_done for record in records)
    if not tokens:
        reason = next((record.reason for record in records if record.reason), "no answer came")
        raise ConfigError(f"{shared.client.name}: its capacity cannot be measured: {reason}")
    mean = sum(kind.output.mean for kind in kinds.values()) / len(kinds)
    return tokens / (loop.time() - began_at) / mean
