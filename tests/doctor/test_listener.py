"""What the process that listens was started with, and what of it is kept."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from slotgate.doctor.evidence import Listener
from slotgate.doctor.flags import Flags
from slotgate.doctor.listener import find_listener, trained_in_file
from slotgate.doctor.sockets import Listening
from slotgate.doctor.where import Where
from slotgate.net.address import Address
from tests.capacity.gguf_writer import write_gguf

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

AT = Address.parse("http://127.0.0.1:8080")
HERE = Where(ips=("127.0.0.1",))
ON_8080 = Listening(at="127.0.0.1", port=8080)
SOURCE = "the command line and environment of process 7"


class Machine:
    """A system with some sockets, and processes by their ids: what they were started with."""

    def __init__(
        self,
        root: Path,
        *sockets: Listening,
        words: dict[int, str] | None = None,
        environment: dict[str, str] | None = None,
        is_shy: bool = False,
    ) -> None:
        self._root = root
        self._sockets = sockets or (ON_8080,)
        self._words = words if words is not None else {7: "/usr/bin/llama-server -c 8192 -np 2"}
        self._environment = environment or {}
        self._is_shy = is_shy
        self.read: list[int] = []

    def listening(self) -> Iterable[Listening]:
        return self._sockets

    def holders(self, socket: Listening) -> tuple[int, ...]:
        return socket.pids or tuple(self._words)

    def connections(self, socket: Listening) -> int:
        return 3

    def words(self, pid: int) -> list[str]:
        self.read.append(pid)
        if not self._words[pid]:
            raise ProcessLookupError(pid)
        return self._words[pid].split(" ")

    def environment(self, pid: int) -> dict[str, str]:
        if self._is_shy:
            raise PermissionError(pid)
        return self._environment

    def path(self, pid: int, path: str) -> Path:
        return self._root / str(pid) / path.lstrip("/")

    def write(self, path: str, text: str) -> None:
        file = self.path(7, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def of(machine: Machine, where: Where = HERE, address: Address = AT) -> Listener:
    found = find_listener(where, address, machine)
    assert found is not None
    return found


def test_the_flags_of_the_process_that_listens_are_known(tmp_path: Path) -> None:
    assert of(Machine(tmp_path)) == Listener(
        listens_at=("127.0.0.1",),
        connections=3,
        pid=7,
        program="llama-server",
        flags=Flags(source=SOURCE, ctx_size=8192, parallel=2),
    )


def test_nothing_is_kept_of_it_but_flags(tmp_path: Path) -> None:
    secrets = {"LLAMA_API_KEY": "sesame", "HF_TOKEN": "sesame", "LLAMA_ARG_BATCH": "512"}
    words = {7: "llama-server --api-key sesame -m /home/sesame/x.gguf -np 2"}
    found = of(Machine(tmp_path, words=words, environment=secrets))
    assert found.flags == Flags(source=SOURCE, parallel=2, batch=512, shows_key=True)
    assert "sesame" not in repr(found)


@pytest.mark.parametrize(
    ("words", "program"),
    [
        ("/opt/llama-server-cuda -c 1", "llama-server-cuda"),
        ("python3 /opt/llama-server -c 1", "llama-server"),
        ("/usr/bin/llama serve -c 1", "llama-server"),
        ("llama server -c 1", "llama-server"),
    ],
)
def test_a_llama_server_has_several_names(words: str, program: str, tmp_path: Path) -> None:
    found = of(Machine(tmp_path, words={7: words}))
    assert (found.program, found.flags is None) == (program, False)


@pytest.mark.parametrize(
    ("words", "program"),
    [("nginx: worker -c 1", "nginx:"), ("/usr/bin/docker-proxy -c 1", "docker-proxy"), ("", "")],
)
def test_what_is_none_is_named_and_its_words_mean_nothing(
    words: str, program: str, tmp_path: Path
) -> None:
    found = of(Machine(tmp_path, words={7: words}))
    assert (found.pid, found.program, found.flags) == (7, program, None)
    assert found.problem == "it is no llama-server by its name"
    assert not found.is_hidden


def test_of_those_that_hold_a_socket_the_server_counts(tmp_path: Path) -> None:
    words = {1: "/sbin/init", 9: "sh -c x", 12: "llama-server -np 3"}
    assert of(Machine(tmp_path, words=words)).pid == 12
    del words[12]
    assert of(Machine(tmp_path, words=words)).pid == 1


def test_another_users_process_is_told_to_be_hidden(tmp_path: Path) -> None:
    unseen = of(Machine(tmp_path, words={}))
    assert (unseen.pid, unseen.is_hidden, unseen.problem) == (None, True, "it is another user's")
    shy = of(Machine(tmp_path, is_shy=True))
    assert (shy.pid, shy.is_hidden, shy.flags) == (7, True, None)


def test_flags_that_make_no_sense_are_as_good_as_none(tmp_path: Path) -> None:
    found = of(Machine(tmp_path, words={7: "llama-server -c many"}))
    assert (found.flags, found.problem) == (None, "-c is not followed by a number")
    assert not found.is_hidden


# Which socket.


def test_only_the_process_at_that_very_address_is_read(tmp_path: Path) -> None:
    sockets = (
        Listening(at="127.0.0.1", port=8081, pids=(3,)),
        Listening(at="0.0.0.0", port=8080, pids=(4,)),
        Listening(at="127.0.0.1", port=8080, pids=(7,)),
    )
    machine = Machine(tmp_path, *sockets)
    found = of(machine)
    assert (found.pid, found.listens_at) == (7, ("127.0.0.1",))
    assert set(machine.read) == {7}


def test_one_that_listens_everywhere_listens_there_too(tmp_path: Path) -> None:
    machine = Machine(tmp_path, Listening(at="0.0.0.0", port=8080))
    assert of(machine).beyond == ("0.0.0.0",)
    assert of(Machine(tmp_path)).beyond == ()


def test_a_socket_in_the_file_system_is_for_nobody_elsewhere(tmp_path: Path) -> None:
    machine = Machine(tmp_path, Listening(at="/run/l.sock", port=None))
    found = of(machine, Where(), Address.parse("unix:///run/l.sock"))
    assert (found.listens_at, found.beyond) == (("/run/l.sock",), ())


def test_where_nobody_listens_nobody_is_found(tmp_path: Path) -> None:
    assert find_listener(HERE, Address.parse("http://127.0.0.1:9"), Machine(tmp_path)) is None


# Files.


def test_configuration_files_count_less_than_variables_and_words(tmp_path: Path) -> None:
    machine = Machine(
        tmp_path,
        words={7: "llama-server -c 300"},
        environment={"HOME": "/home/u", "LLAMA_ARG_N_PARALLEL": "3"},
    )
    machine.write(
        "/etc/llama.cpp/config.ini",
        "version = 1\nctx-size = 100\nnp = 2\n[*]\nb = 64\ncram = 1\nc = 5\n[qwen]\nb = 9\n",
    )
    machine.write(
        "/home/u/.config/llama.cpp/config.ini", "; mine\n[default]\nb = 128 ; enough\nnonsense\n"
    )
    expected = Flags(source=SOURCE, ctx_size=300, parallel=3, batch=128, cache_ram_mib=1)
    assert of(machine).flags == expected


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.path(7, "/etc/llama.cpp").mkdir(parents=True)
    os.mkfifo(machine.path(7, "/etc/llama.cpp/config.ini"))
    assert of(machine).flags == Flags(source=SOURCE, ctx_size=8192, parallel=2)


def test_the_users_own_file_may_lie_elsewhere(tmp_path: Path) -> None:
    machine = Machine(tmp_path, environment={"HOME": "/home/u", "XDG_CONFIG_HOME": "/x"})
    machine.write("/home/u/.config/llama.cpp/config.ini", "b = 1")
    machine.write("/x/llama.cpp/config.ini", "b = 2")
    flags = of(machine).flags
    assert flags is not None
    assert flags.batch == 2


# The model.


def test_a_models_file_tells_what_it_was_trained_for(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.write("/m/x.gguf", "")
    meta = {"general.architecture": "llama", "llama.context_length": 8192}
    write_gguf(machine.path(7, "/m/x.gguf"), meta)
    assert trained_in_file("/m/x.gguf", 7, machine) == 8192


@pytest.mark.parametrize(
    "meta", [{}, {"llama.context_length": 8192}, {"general.architecture": "a"}]
)
def test_a_file_that_does_not_tell_tells_nothing(meta: dict[str, object], tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.write("/m/x.gguf", "")
    write_gguf(machine.path(7, "/m/x.gguf"), meta)
    assert trained_in_file("/m/x.gguf", 7, machine) is None


def test_what_is_no_model_is_not_read(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.write("/m/x.gguf", "no model")
    os.mkfifo(machine.path(7, "/m/pipe"))
    for path in ("/m/x.gguf", "/m/pipe", "/m", "/m/none"):
        assert trained_in_file(path, 7, machine) is None
