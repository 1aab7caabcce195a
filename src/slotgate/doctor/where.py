"""Where an address is: whether on this machine, and who else can reach it."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slotgate.doctor.evidence import Place

if TYPE_CHECKING:
    from slotgate.net.address import Address


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """`ips` are what its name stands for now.  `is_own`: all of them are of this machine."""

    place: Place = Place.HERE
    ips: tuple[str, ...] = ()
    is_own: bool = True


async def where_is(address: Address, timeout_seconds: float) -> Where:
    """Look it up, within the time."""
    if address.unix_path is not None:
        return Where()
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_seconds):
            found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError):  # nothing will be reached there either
        return Where(is_own=False)
    ips = tuple(dict.fromkeys(str(each[4][0]) for each in found))
    return Where(place=_place_of(ips), ips=ips, is_own=all(map(_is_own, ips)))


def _place_of(ips: tuple[str, ...]) -> Place:
    addresses = list(map(ipaddress.ip_address, ips))
    if all(each.is_loopback for each in addresses):
        return Place.HERE
    return Place.PUBLIC if any(each.is_global for each in addresses) else Place.PRIVATE


def _is_own(ip: str) -> bool:
    """Whether a packet to it would come from it.  None is sent."""
    if ipaddress.ip_address(ip).is_loopback:
        return True
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((ip, 9))
            own = probe.getsockname()[0]
        except OSError:
            return False
    return bool(own.partition("%")[0] == ip.partition("%")[0])
