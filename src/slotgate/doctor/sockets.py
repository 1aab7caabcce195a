"""Which process of this machine listens at an address.

By /proc on Linux, else by psutil where it is installed.  Only sockets that listen are looked at,
and what a process was started with is read of the one that was found, if this user may.
"""

from __future__ import annotations

import importlib
import ipaddress
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_LISTENS_TCP, _LISTENS_UNIX = "0A", "00010000"
# Established, and left by the other side while this one still holds it.
_HELD_TCP = {"01", "08"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """A socket that listens: at an IP, or at a path if `port` is None.

    `owner` names it to its system; `pids` are the processes that hold it, as far as they show.
    """

    at: str
    port: int | None
    owner: str = ""
    pids: tuple[int, ...] = ()

    def takes(self, at: str, port: int | None) -> bool:
        """Whether connections to there are its."""
        if port is None or self.port != port:
            return (self.at, self.port) == (at, port)
        mine, asked = _ip(self.at), _ip(at)
        return mine == asked or (mine.is_unspecified and mine.version in {asked.version, 6})


class System(Protocol):
    """How a system tells of its processes.  Whatever this user may not read raises OSError."""

    def listening(self) -> Iterable[Listening]:
        """All sockets that listen, with who holds them where that is known already."""

    def holders(self, socket: Listening) -> tuple[int, ...]:
        """The processes that hold it, as far as this user may see them."""

    def connections(self, socket: Listening) -> int:
        """How many connections to it are held, as far as this user may see them."""

    def words(self, pid: int) -> list[str]:
        """What it was started with."""

    def environment(self, pid: int) -> Mapping[str, str]:
        """Its variables."""

    def path(self, pid: int, path: str) -> Path:
        """Where a file is that it calls so."""


class ProcFs:
    """Linux, which tells everything in files."""

    def __init__(self, root: Path = Path("/proc")) -> None:
        self._root = root

    def listening(self) -> Iterator[Listening]:
        for at, port, state, owner in self._tcp():
            if state == _LISTENS_TCP:
                yield Listening(at=at, port=port, owner=owner)
        for fields in self._table("unix"):
            if len(fields) == 8 and fields[3] == _LISTENS_UNIX:
                yield Listening(at=fields[7], port=None, owner=fields[6])

    def holders(self, socket: Listening) -> tuple[int, ...]:
        wanted = f"socket:[{socket.owner}]"
        pids = sorted(int(each.name) for each in self._root.iterdir() if each.name.isdigit())
        return tuple(pid for pid in pids if wanted in self._open_files(pid))

    def connections(self, socket: Listening) -> int:
        if socket.port is None:
            return 0
        held = ((at, port) for at, port, state, _ in self._tcp() if state in _HELD_TCP)
        return sum(port == socket.port and socket.takes(at, port) for at, port in held)

    def words(self, pid: int) -> list[str]:
        return self._strings(pid, "cmdline")

    def environment(self, pid: int) -> dict[str, str]:
        pairs = (text.partition("=") for text in self._strings(pid, "environ"))
        return {name: value for name, _, value in pairs}

    def path(self, pid: int, path: str) -> Path:
        """By its own root and directory: it may run in a container."""
        place = self._root / str(pid)
        return place / "root" / path.lstrip("/") if path.startswith("/") else place / "cwd" / path

    def _tcp(self) -> Iterator[tuple[str, int, str, str]]:
        """Of each socket: its own address and port, its state, and what it is called."""
        for name in ("tcp", "tcp6"):
            for fields in self._table(name):
                ip, _, port = fields[1].partition(":")
                yield _from_hex(ip), int(port, 16), fields[3], fields[9]

    def _table(self, name: str) -> Iterator[list[str]]:
        try:
            lines = (self._root / "net" / name).read_text(errors="replace").splitlines()
        except OSError:  # no IPv6, for one
            return
        yield from (line.split() for line in lines[1:])

    def _open_files(self, pid: int) -> Iterator[str]:
        """What it has open; nothing of a process that is gone, or another user's."""
        directory = self._root / str(pid) / "fd"
        try:
            for each in directory.iterdir():
                yield str(each.readlink())
        except OSError:
            return

    def _strings(self, pid: int, name: str) -> list[str]:
        content = (self._root / str(pid) / name).read_bytes()
        return [each.decode(errors="replace") for each in content.split(b"\0")][:-1]


class Psutil:
    """Any other system."""

    def __init__(self, psutil: Any) -> None:
        self._psutil = psutil

    def listening(self) -> Iterator[Listening]:
        for pid in self._psutil.pids():
            for each in self._connections(pid):
                if each.status == self._psutil.CONN_LISTEN:
                    yield Listening(at=each.laddr.ip, port=each.laddr.port, pids=(pid,))

    def holders(self, socket: Listening) -> tuple[int, ...]:
        return socket.pids

    def connections(self, socket: Listening) -> int:
        held = {self._psutil.CONN_ESTABLISHED, self._psutil.CONN_CLOSE_WAIT}
        return sum(
            each.laddr.port == socket.port and each.status in held
            for pid in socket.pids
            for each in self._connections(pid)
        )

    def words(self, pid: int) -> list[str]:
        return list(self._told(pid, "cmdline"))

    def environment(self, pid: int) -> dict[str, str]:
        return dict(self._told(pid, "environ"))

    def path(self, pid: int, path: str) -> Path:
        return Path(path) if path.startswith("/") else Path(self._told(pid, "cwd")) / path

    def _connections(self, pid: int) -> Any:
        try:
            return self._psutil.Process(pid).net_connections("inet")
        except self._psutil.Error:  # another user's, or gone
            return ()

    def _told(self, pid: int, what: str) -> Any:
        try:
            return getattr(self._psutil.Process(pid), what)()
        except self._psutil.Error as error:
            raise PermissionError(pid) from error


def this_system(proc: Path = Path("/proc"), module: str = "psutil") -> System | None:
    """How this one tells; None if it does not."""
    if (proc / "net" / "tcp").exists():
        return ProcFs(proc)
    try:
        return Psutil(importlib.import_module(module))
    except ImportError:
        return None


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An IPv4 address that is written as one of IPv6 is the one that it means."""
    ip = ipaddress.ip_address(text)
    return (ip.ipv4_mapped or ip) if isinstance(ip, ipaddress.IPv6Address) else ip


def _from_hex(text: str) -> str:
    """Words of four bytes each, in this machine's order."""
    raw = bytes.fromhex(text)
    words = [int.from_bytes(raw[at : at + 4], "big") for at in range(0, len(raw), 4)]
    return str(ipaddress.ip_address(b"".join(word.to_bytes(4, sys.byteorder) for word in words)))
