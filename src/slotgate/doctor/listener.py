"""What the process that listens at an address was started with, where it is on this machine.

Rule 1: only the process that listens there is read, and the header of its model, and nothing is
        written.
Rule 2: nothing leaves but its id, the name of its program, the addresses at which it listens,
        `Flags`, and the model's context; no word, variable or line of a file is kept.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING

from slotgate.capacity.header import read_header
from slotgate.doctor.evidence import Listener
from slotgate.doctor.flags import Flags, flags_of, flags_of_names
from slotgate.errors import ConfigError, HeaderError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from slotgate.doctor.sockets import Listening, System
    from slotgate.doctor.where import Where
    from slotgate.net.address import Address

_HIDDEN = "it is another user's"
_PROGRAM = "llama-server"
# The one program that has all of llama.cpp's, and what it calls the server.
_WHOLE, _SERVES = "llama", {"serve", "server"}
# Newer builds read these first; variables and words count more.
_SETTINGS = "llama.cpp/config.ini"
_LARGEST_SETTINGS = 1 << 16
_COMMENT = re.compile("[;#]")
# Sections that hold for a server that serves one model, in the order in which they count.
_SECTIONS = ("*", "", "default")


def find_listener(where: Where, address: Address, system: System) -> Listener | None:
    """Return who listens there; None if nobody does, as far as this system tells."""
    sockets = list(_sockets(where, address, system.listening()))
    if not sockets:
        return None
    found = Listener(
        listens_at=tuple(dict.fromkeys(each.at for each in sockets)),
        connections=sum(map(system.connections, sockets)),
    )
    pids = {pid for each in sockets for pid in system.holders(each)}
    if not pids:
        return replace(found, problem=_HIDDEN, is_hidden=True)
    programs = {pid: _program(_words(system, pid)) for pid in sorted(pids)}
    # Of several that hold it, like one that was started with an open socket, the server counts.
    pid = next((pid for pid, name in programs.items() if _is_server(name)), min(programs))
    found = replace(found, pid=pid, program=programs[pid])
    if not _is_server(found.program):
        return replace(found, problem="it is no llama-server by its name")
    try:
        return replace(found, flags=_flags(system, pid))
    except OSError:
        return replace(found, problem=_HIDDEN, is_hidden=True)
    except ConfigError as error:
        return replace(found, problem=str(error))


def trained_in_file(path: str, pid: int, system: System) -> int | None:
    """The context, in tokens, for which a model was trained, as the header of its file says.

    `path` is what the process calls the file.
    """
    try:
        file = system.path(pid, path)
        if not file.is_file():  # nothing that reading could hang on or change
            return None
        meta = read_header(file).meta
    except (OSError, HeaderError):
        return None
    told = meta.get(f"{meta.get('general.architecture')}.context_length")
    return told if isinstance(told, int) else None


def _sockets(where: Where, address: Address, listening: Iterable[Listening]) -> Iterator[Listening]:
    """Those that take connections to the address: the exact ones, else those for any address."""
    path = address.unix_path
    asked = [(path, None)] if path is not None else [(ip, address.port) for ip in where.ips]
    found = [each for each in listening if any(each.takes(at or "", port) for at, port in asked)]
    exact = [each for each in found if each.at in {at for at, _ in asked}]
    yield from exact or found


def _words(system: System, pid: int) -> list[str]:
    try:
        return system.words(pid)
    except OSError:
        return []


def _program(words: list[str]) -> str:
    """The name of the program, of a script behind its interpreter too; "" if that is not told."""
    names = [PurePath(word).name for word in words[:2]]
    return next((name for name in names if name.startswith(_PROGRAM)), _whole(names))


def _whole(names: list[str]) -> str:
    is_server = names[:1] == [_WHOLE] and not _SERVES.isdisjoint(names[1:])
    return _PROGRAM if is_server else "".join(names[:1])


def _is_server(program: str) -> bool:
    return program.startswith(_PROGRAM)


def _flags(system: System, pid: int) -> Flags:
    environment = system.environment(pid)
    flags = Flags()
    for settings in _settings(system, pid, environment):
        flags = flags_of_names(settings, flags)
    flags = flags_of_names(environment, flags)
    return flags_of(system.words(pid)[1:], _source(pid), flags)


def _source(pid: int) -> str:
    return f"the command line and environment of process {pid}"


def _settings(system: System, pid: int, environment: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Its configuration files, the one that counts more last."""
    home = environment.get("XDG_CONFIG_HOME") or f"{environment.get('HOME', '')}/.config"
    for directory in ("/etc", home):
        try:
            path = system.path(pid, f"{directory}/{_SETTINGS}")
            if path.is_file():  # nothing that reading could hang on
                with path.open(errors="replace") as file:
                    yield _read_settings(file.read(_LARGEST_SETTINGS))
        except OSError:
            continue


def _read_settings(text: str) -> dict[str, str]:
    sections: dict[str, dict[str, str]] = {}
    name = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            name = line[1:-1].strip()
        elif "=" in line and not line.startswith((";", "#")):
            key, _, value = line.partition("=")
            sections.setdefault(name, {})[key.strip()] = _COMMENT.split(value, 1)[0].strip()
    found: dict[str, str] = {}
    for section in _SECTIONS:
        found |= sections.get(section, {})
    return found
