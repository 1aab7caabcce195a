"""Asks a llama.cpp that is starting whether it serves yet."""

from __future__ import annotations

from slotgate.errors import BackendError
from slotgate.net.address import Address
from slotgate.net.client import Client, Timeouts

PROBE_SECONDS = 2.0
ANSWER_BYTES = 1 << 16


async def is_serving(url: str, *, api_key: str | None) -> bool:
    """Whether `/health` says 200; every failure means no."""
    timeouts = Timeouts(connect=PROBE_SECONDS, first_byte=PROBE_SECONDS, idle=PROBE_SECONDS)
    client = Client(Address.parse(url), timeouts=timeouts)
    key = ((b"authorization", b"Bearer " + api_key.encode()),) if api_key else ()
    exchange = client.exchange("GET", "/health", key, single_use=True)
    try:
        await exchange.open()
        await exchange.read_all(ANSWER_BYTES)
    except BackendError:
        return False
    else:
        return exchange.status == 200
    finally:
        exchange.close()
        client.close()
