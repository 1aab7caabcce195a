"""Drivers are asked in processes of their own, which may crash, babble or hang."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pynvml
import pytest

from slotgate.backends.devices.bounded import NoAnswerError, ask
from slotgate.backends.devices.cards import Card, Found
from slotgate.backends.devices.libraries import AMDSMI, NVML, Library
from slotgate.backends.devices.pci import AMD, NVIDIA, is_on_bus, with_hints_told
from slotgate.backends.devices.probe import probe

if TYPE_CHECKING:
    from collections.abc import Mapping


def python(script: str) -> list[str]:
    return [sys.executable, "-c", script]


def test_a_program_s_output_is_its_answer_and_its_complaints_are_not() -> None:
    assert ask(python("import sys; print('yes'); print('hm', file=sys.stderr)")) == "yes\n"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("import sys; print('a'); print('why\\n', file=sys.stderr); sys.exit(3)", "failed: why"),
        ("import sys; print('on stdout'); sys.exit(9)", "failed: on stdout"),
        ("import sys; sys.exit(1)", "failed: without a word"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "was ended by signal 11"),
    ],
)
def test_a_program_that_fails_or_crashes_has_given_no_answer(script: str, reason: str) -> None:
    with pytest.raises(NoAnswerError) as failed:
        ask(python(script))
    assert str(failed.value) == reason


def test_a_program_that_cannot_be_run_has_given_no_answer(tmp_path: Path) -> None:
    with pytest.raises(NoAnswerError, match="cannot be run: No such file or directory"):
        ask([str(tmp_path / "nothing here")])


def test_a_program_that_hangs_is_ended_after_its_bound_with_what_it_started(
    tmp_path: Path,
) -> None:
    pids = tmp_path / "pids"
    script = f"sleep 60 & echo $$ $! > {pids}; wait"
    with pytest.raises(NoAnswerError, match="did not answer within 2 s"):
        ask(["/bin/sh", "-c", script], timeout_seconds=2)
    for pid in pids.read_text().split():
        # One that is ended, but whose new parent has not noticed yet, is a zombie.
        state = Path(f"/proc/{pid}/stat")
        assert not state.exists() or state.read_text().split()[2] in "ZX"


def test_whoever_still_holds_the_output_of_a_program_that_hangs_is_not_waited_for() -> None:
    script = (
        "import subprocess, signal\n"
        "subprocess.Popen(['sleep', '5'], start_new_session=True)\n"
        "signal.pause()"
    )
    with pytest.raises(NoAnswerError, match=r"did not answer within 0\.5 s"):
        ask(python(script), timeout_seconds=0.5)


# The library in its process.


def test_a_library_that_is_not_installed_is_not_asked() -> None:
    def run(argv: list[str]) -> str:
        raise AssertionError(argv)

    for module in ("slotgate_no_such_module", "slotgate.nor.this"):
        library = Library(package="none", module=module, reader=NVML.reader)
        assert probe(library, run=run) is None


def test_what_the_process_finds_comes_back_as_it_was() -> None:
    found = Found(
        cards=(Card(name="a card", uuid="GPU-1", total_bytes=5, free_bytes=4, has_display=True),),
        notes=("a note",),
    )
    asked: list[list[str]] = []

    def run(argv: list[str]) -> str:
        asked.append(argv)
        return msgspec.json.encode(found).decode()

    assert probe(NVML, run=run) == found
    assert asked == [[sys.executable, "-P", "-m", "slotgate.backends.devices.child", "pynvml"]]


def test_a_process_that_does_not_answer_costs_a_hint() -> None:
    def hang(argv: list[str]) -> str:
        raise NoAnswerError("did not answer within 15 s")

    assert probe(NVML, run=hang) == Found(hints=("nvidia-ml-py did not answer within 15 s",))


@pytest.mark.parametrize("answer", ["", "42", '{"cards": [{"name": 1}]}', "Unable to find"])
def test_an_answer_of_another_form_costs_a_hint(answer: str) -> None:
    assert probe(AMDSMI, run=lambda _: answer) == Found(
        hints=("amdsmi gave an answer that is not understood",)
    )


def test_what_a_library_prints_is_no_part_of_the_answer() -> None:
    # Without ROCm, importing amdsmi prints two lines and raises a KeyError.
    argv = [sys.executable, "-P", "-W", "error", "-m", "slotgate.backends.devices.child", "amdsmi"]
    done = subprocess.run(argv, capture_output=True, check=True)
    found = msgspec.json.decode(done.stdout, type=Found)
    assert found.cards or found.hints or found.notes


LOUD_LIBRARY = """
import os

print("loading")
os.write(1, b"loading still\\n")
nvmlMemory_v2 = 2


class NVMLError(Exception):
    pass


class Memory:
    total, reserved, free = 24, 1, 20


def nvmlInit(): ...
def nvmlShutdown(): ...
def nvmlDeviceGetCount(): return 1
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetName(handle): return "a card"
def nvmlDeviceGetUUID(handle): return "GPU-1"
def nvmlDeviceGetMemoryInfo(handle, version): return Memory
def nvmlDeviceGetDisplayActive(handle): return 1
def nvmlDeviceGetMigMode(handle): return [0, 0]
"""


@pytest.mark.parametrize(
    ("library", "bound_seconds", "found"),
    [
        (
            LOUD_LIBRARY,
            60,
            Found(
                cards=(
                    Card(
                        name="a card",
                        uuid="GPU-1",
                        total_bytes=23,
                        free_bytes=20,
                        has_display=True,
                    ),
                )
            ),
        ),
        (
            "import os; os.kill(os.getpid(), 11)",
            60,
            Found(hints=("nvidia-ml-py was ended by signal 11",)),
        ),
        (
            "import signal; signal.pause()",
            0.5,
            Found(hints=("nvidia-ml-py did not answer within 0.5 s",)),
        ),
    ],
)
def test_a_library_may_babble_crash_or_hang_in_its_process(
    tmp_path: Path, library: str, bound_seconds: float, found: Found
) -> None:
    (tmp_path / "pynvml.py").write_text(library)

    def run(argv: list[str]) -> str:
        return ask(["/usr/bin/env", f"PYTHONPATH={tmp_path}", *argv], timeout_seconds=bound_seconds)

    assert probe(NVML, run=run) == found


def test_a_library_of_another_version_costs_a_hint() -> None:
    def read(module: Any, environ: Mapping[str, str]) -> Found:
        raise AttributeError(f"{module.__name__} has no nvmlNothing")

    library = Library(package="nvidia-ml-py", module="pynvml", reader=read)
    assert library.read({}) == Found(
        hints=("nvidia-ml-py cannot be used here: AttributeError: pynvml has no nvmlNothing",)
    )


def test_a_library_that_cannot_be_imported_costs_a_hint() -> None:
    library = Library(package="amdsmi", module="slotgate_no_such_module", reader=AMDSMI.reader)
    (hint,) = library.read({}).hints
    assert hint.startswith("amdsmi finds no driver library: ModuleNotFoundError: ")


def test_the_real_library_is_read_in_this_process_too() -> None:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        assert NVML.read({}) == Found(hints=("no NVIDIA driver is installed",))
    else:
        pynvml.nvmlShutdown()
        assert NVML.read({}).hints == ()


# The bus.


def test_a_vendor_s_card_is_seen_on_the_bus_without_its_driver(tmp_path: Path) -> None:
    for name, vendor, kind in (
        ("0000:00:01.0", "0x1022", "0x060400"),  # a bridge
        ("0000:01:00.0", "0x10de", "0x030200"),  # a card
        ("0000:01:00.1", "0x1002", "0x040300"),  # the sound of another
        ("0000:02:00.0", "?", "0x030000"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(f"{vendor}\n")
        (tmp_path / name / "class").write_text(f"{kind}\n")
    assert is_on_bus(NVIDIA, devices=tmp_path)
    assert not is_on_bus(AMD, devices=tmp_path)
    (tmp_path / "0000:01:00.1" / "class").write_text("0x120000\n")  # an accelerator
    assert is_on_bus(AMD, devices=tmp_path)
    assert not is_on_bus(AMD, devices=tmp_path / "nothing here")


def test_why_a_card_that_is_on_the_bus_was_not_found_is_told_in_any_case(tmp_path: Path) -> None:
    (tmp_path / "0000:01:00.0").mkdir()
    (tmp_path / "0000:01:00.0" / "vendor").write_text("0x10de\n")
    (tmp_path / "0000:01:00.0" / "class").write_text("0x030000\n")
    hinting = Found(notes=("a note",), hints=("no NVIDIA driver is loaded",))
    told = Found(notes=("a note", "no NVIDIA driver is loaded"))
    assert with_hints_told(hinting, NVIDIA, devices=tmp_path) == told
    assert with_hints_told(hinting, AMD, devices=tmp_path) == hinting
    found = Found(cards=(Card(name="a card"),), hints=("the library is old",))
    assert with_hints_told(found, NVIDIA, devices=tmp_path) == found
