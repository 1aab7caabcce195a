"""Who listens at an address of this machine, as Linux tells it and as psutil does."""

from __future__ import annotations

import os
import socket
import sys
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from slotgate.doctor.sockets import Listening, ProcFs, Psutil, System, this_system

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SYSTEMS = [ProcFs(), Psutil(psutil)]


@pytest.fixture
def open_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def found(system: System, at: str, port: int | None) -> Listening:
    (one,) = [each for each in system.listening() if (each.at, each.port) == (at, port)]
    return one


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_port_is_found_with_the_process_that_holds_it(system: System, open_port: int) -> None:
    assert os.getpid() in system.holders(found(system, "127.0.0.1", open_port))
    assert system.words(os.getpid()) == psutil.Process().cmdline()
    assert system.environment(os.getpid())["PATH"] == psutil.Process().environ()["PATH"]


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_port_that_only_connects_does_not_listen(system: System, open_port: int) -> None:
    with socket.create_connection(("127.0.0.1", open_port)) as client:
        port = client.getsockname()[1]
        assert not [each for each in system.listening() if each.port == port]


@pytest.mark.parametrize("system", SYSTEMS)
def test_connections_that_are_held_are_counted(system: System) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        at = server.getsockname()
        assert system.connections(found(system, *at)) == 0
        with socket.create_connection(at) as kept, server.accept()[0]:
            left = socket.create_connection(at)
            with server.accept()[0]:
                left.close()
                assert system.connections(found(system, *at)) == 2
            kept.close()


def test_a_socket_in_the_file_system_is_found(tmp_path: Path) -> None:
    path = str(tmp_path / "s.sock")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        assert ProcFs().connections(found(ProcFs(), path, None)) == 0
        assert os.getpid() in ProcFs().holders(found(ProcFs(), path, None))


@pytest.mark.parametrize("system", SYSTEMS)
def test_what_is_gone_cannot_be_read(system: System) -> None:
    with pytest.raises(OSError, match="99999999"):
        system.words(99999999)


@pytest.mark.parametrize(
    ("at", "port", "asked", "takes"),
    [
        ("127.0.0.1", 80, ("127.0.0.1", 80), True),
        ("127.0.0.1", 80, ("127.0.0.1", 81), False),
        ("127.0.0.1", 80, ("10.0.0.1", 80), False),
        ("0.0.0.0", 80, ("10.0.0.1", 80), True),
        ("0.0.0.0", 80, ("::1", 80), False),
        ("::", 80, ("::1", 80), True),
        ("::", 80, ("127.0.0.1", 80), True),
        ("::1", 80, ("127.0.0.1", 80), False),
        ("::ffff:127.0.0.1", 80, ("127.0.0.1", 80), True),
        ("/a.sock", None, ("/a.sock", None), True),
        ("/a.sock", None, ("/b.sock", None), False),
        ("/a.sock", None, ("127.0.0.1", 80), False),
        ("127.0.0.1", 80, ("/a.sock", None), False),
    ],
)
def test_a_socket_takes_what_is_sent_to_it(
    at: str, port: int | None, asked: tuple[str, int | None], *, takes: bool
) -> None:
    assert Listening(at=at, port=port).takes(*asked) is takes


# Files of a Linux that is not this one.

HEAD = "sl local_address rem_address st tx_queue:rx_queue tr tm->when retrnsmt uid timeout inode\n"


def row(ip: bytes, port: int, inode: int, state: str = "0A") -> str:
    words = [int.from_bytes(ip[at : at + 4], sys.byteorder) for at in range(0, len(ip), 4)]
    local = "".join(f"{word:08X}" for word in words)
    return f"0: {local}:{port:04X} 00000000:0000 {state} 0:0 0:0 0 0 0 {inode} 1 0\n"


def test_addresses_of_both_kinds_are_read(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    tables = {
        "tcp": HEAD + row(bytes([10, 1, 2, 3]), 8080, 7) + row(bytes(4), 80, 8, "01"),
        "tcp6": HEAD + row(socket.inet_pton(socket.AF_INET6, "fd00::1:2"), 8081, 9),
        "unix": "Num RefCount Protocol Flags Type St Inode Path\n"
        "0: 2 0 00010000 0001 01 11 /run/l.sock\n0: 2 0 00000000 0001 03 12 /run/c.sock\n"
        "0: 2 0 00010000 0001 01 13\n",
    }
    for name, text in tables.items():
        (tmp_path / "net" / name).write_text(text)
    assert list(ProcFs(tmp_path).listening()) == [
        Listening(at="10.1.2.3", port=8080, owner="7"),
        Listening(at="fd00::1:2", port=8081, owner="9"),
        Listening(at="/run/l.sock", port=None, owner="11"),
    ]


def test_who_may_not_be_looked_into_holds_nothing(tmp_path: Path) -> None:
    for pid in ("30", "4", "5"):
        (tmp_path / pid / "fd").mkdir(parents=True)
        (tmp_path / pid / "fd" / "3").symlink_to("socket:[7]")
    (tmp_path / "self").mkdir()
    (tmp_path / "6").mkdir()  # gone in between
    assert ProcFs(tmp_path).holders(Listening(at="::", port=1, owner="7")) == (4, 5, 30)
    assert ProcFs(tmp_path).holders(Listening(at="::", port=1, owner="8")) == ()


def test_a_file_is_where_its_process_sees_it(tmp_path: Path) -> None:
    system = ProcFs(tmp_path)
    assert system.path(7, "/etc/x") == tmp_path / "7/root/etc/x"
    assert system.path(7, "x/y") == tmp_path / "7/cwd/x/y"


def test_without_proc_psutil_says_where_a_file_is() -> None:
    system = Psutil(psutil)
    pid = os.getpid()
    assert str(system.path(pid, "/etc/x")) == "/etc/x"
    assert str(system.path(pid, "x")) == f"{psutil.Process().cwd()}/x"


def test_processes_of_others_are_passed_over() -> None:
    class Others:
        Error = psutil.Error
        CONN_ESTABLISHED, CONN_CLOSE_WAIT = "ESTABLISHED", "CLOSE_WAIT"

        @staticmethod
        def pids() -> list[int]:
            return [1, 2]

        @staticmethod
        def Process(pid: int) -> Any:  # noqa: N802 - as psutil calls it
            raise psutil.AccessDenied(pid)

    assert list(Psutil(Others).listening()) == []
    assert Psutil(Others).connections(Listening(at="::", port=1, pids=(1,))) == 0


def test_a_system_without_either_tells_nothing(tmp_path: Path) -> None:
    assert isinstance(this_system(), ProcFs)
    assert isinstance(this_system(tmp_path), Psutil)
    assert this_system(tmp_path, "slotgate_no_such_module") is None
