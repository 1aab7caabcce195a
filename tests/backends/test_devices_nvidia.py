"""What NVIDIA's cards have free, as the driver's library and its program tell it.

The library's answers are its own types: `pynvml`'s structures and exceptions.
"""

# ruff: noqa: N802, N815  the names are NVIDIA's

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pynvml
import pytest

from slotgate.backends.devices.cards import Card, Found
from slotgate.backends.devices.libraries import NVML
from slotgate.backends.devices.nvidia import FIELDS, ask_nvidia_smi, find_nvidia, read_nvidia_smi
from slotgate.backends.devices.nvml import read_nvml
from slotgate.backends.devices.probe import probe

if TYPE_CHECKING:
    from pathlib import Path

GiB = 1 << 30
MiB = 1 << 20


@dataclass
class FakeCard:
    """A card as NVML tells of it; `fails` maps a call to the error code it raises."""

    name: str = "NVIDIA GeForce RTX 4090"
    uuid: str = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"
    total: int = 24 * GiB
    reserved: int = 400 * MiB
    used: int = 1 * GiB
    display: int = 0
    parts: list[FakeCard] | None = None  # MIG devices, by place; a name of "" is a gap
    instance: int = 0
    fails: dict[str, int] = field(default_factory=dict)


class FakeNvml:
    """Answers as the module `pynvml` does."""

    NVMLError = pynvml.NVMLError
    nvmlMemory_v2 = pynvml.nvmlMemory_v2

    def __init__(self, *cards: FakeCard, driver: str = "580.173.02", init_fails: int = 0) -> None:
        self.cards = cards
        self.driver = driver
        self.init_fails = init_fails
        self.is_open = False

    def nvmlInit(self) -> None:
        if self.init_fails:
            raise pynvml.NVMLError(self.init_fails)
        self.is_open = True

    def nvmlShutdown(self) -> None:
        self.is_open = False

    def nvmlSystemGetDriverVersion(self) -> str:
        return self.driver

    def nvmlDeviceGetCount(self) -> int:
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeCard:
        return self._answer("handle", self.cards[index])

    def nvmlDeviceGetName(self, handle: FakeCard) -> str:
        return self._answer("name", handle).name

    def nvmlDeviceGetUUID(self, handle: FakeCard) -> str:
        return handle.uuid

    def nvmlDeviceGetMemoryInfo(self, handle: FakeCard, version: int | None = None) -> Any:
        self._answer("memory" if version is None else "memory v2", handle)
        free = handle.total - handle.reserved - handle.used
        if version is None:
            return pynvml.c_nvmlMemory_t(total=handle.total, free=free, used=handle.total - free)
        return pynvml.c_nvmlMemory_v2_t(
            version=version,
            total=handle.total,
            reserved=handle.reserved,
            free=free,
            used=handle.used,
        )

    def nvmlDeviceGetDisplayActive(self, handle: FakeCard) -> int:
        return self._answer("display", handle).display

    def nvmlDeviceGetMigMode(self, device: FakeCard) -> list[int]:
        self._answer("mig", device)
        return [1, 1] if device.parts is not None else [0, 0]

    def nvmlDeviceGetMaxMigDeviceCount(self, device: FakeCard) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: FakeCard, index: int) -> FakeCard:
        parts = device.parts or []
        if index >= len(parts) or not parts[index].name:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return parts[index]

    def nvmlDeviceGetGpuInstanceId(self, device: FakeCard) -> int:
        return device.instance

    def _answer(self, call: str, card: FakeCard) -> FakeCard:
        if call in card.fails:
            raise pynvml.NVMLError(card.fails[call])
        return card


def other(number: int, **known: Any) -> FakeCard:
    return FakeCard(name=f"card {number}", uuid=f"GPU-{number}000-a", **known)


def part(number: int, instance: int) -> FakeCard:
    return FakeCard(
        name=f"part {number}",
        uuid=f"MIG-{number}",
        total=20 * GiB,
        instance=instance,
    )


def names(found: Found) -> list[str]:
    return [card.name for card in found.cards]


def test_what_the_driver_keeps_is_no_part_of_the_card() -> None:
    nvml = FakeNvml(FakeCard())
    assert read_nvml(nvml, {}) == Found(
        cards=(
            Card(
                name="NVIDIA GeForce RTX 4090",
                uuid="GPU-8932f937-d72c-4106-c12f-20bd9faed9f6",
                total_bytes=24 * GiB - 400 * MiB,
                free_bytes=23 * GiB - 400 * MiB,
            ),
        )
    )
    assert not nvml.is_open


def test_an_older_driver_is_asked_the_older_way() -> None:
    card = FakeCard(fails={"memory v2": pynvml.NVML_ERROR_FUNCTION_NOT_FOUND})
    found = read_nvml(FakeNvml(card), {})
    assert (found.cards[0].total_bytes, found.cards[0].free_bytes) == (
        24 * GiB,
        23 * GiB - 400 * MiB,
    )


@pytest.mark.parametrize(
    "card",
    [
        FakeCard(name="NVIDIA GB10", fails={"memory v2": pynvml.NVML_ERROR_NOT_SUPPORTED}),
        FakeCard(name="NVIDIA GB10", total=0, reserved=0, used=0),
    ],
)
def test_a_card_without_memory_of_its_own_uses_the_host_s(card: FakeCard) -> None:
    assert read_nvml(FakeNvml(card), {}).cards == (
        Card(name="NVIDIA GB10", uuid=card.uuid, shares_host=True),
    )


def test_a_card_that_runs_a_display_is_told_from_one_that_does_not_or_does_not_say() -> None:
    found = read_nvml(
        FakeNvml(
            FakeCard(display=1),
            other(1),
            other(2, display=1, fails={"display": pynvml.NVML_ERROR_NOT_SUPPORTED}),
        ),
        {},
    )
    assert [card.has_display for card in found.cards] == [True, False, False]


@pytest.mark.parametrize("call", ["handle", "name", "memory"])
def test_a_card_that_is_lost_costs_a_note_and_keeps_its_number(call: str) -> None:
    lost = FakeCard(fails={call: pynvml.NVML_ERROR_GPU_IS_LOST, "memory v2": 999})
    environ = {"CUDA_VISIBLE_DEVICES": "0,2", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    found = read_nvml(FakeNvml(lost, other(1), other(2)), environ)
    assert names(found) == ["card 2"]
    assert found.notes == ("NVIDIA card 0 cannot be read: GPU is lost",)


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        (pynvml.NVML_ERROR_NO_PERMISSION, "there is no permission to ask the NVIDIA driver"),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "no NVIDIA driver is loaded"),
        (
            pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
            "the NVIDIA driver was updated while the old one runs; restart the machine",
        ),
        (pynvml.NVML_ERROR_UNKNOWN, "the NVIDIA driver does not answer: Unknown Error"),
    ],
)
def test_a_driver_that_does_not_answer_is_told_plainly(code: int, hint: str) -> None:
    assert read_nvml(FakeNvml(init_fails=code), {}) == Found(hints=(hint,))


@pytest.mark.parametrize(
    ("wanted", "seen"),
    [
        ("0", [0]),
        ("2,1", [2, 1]),
        (" 1 , 0", [1, 0]),
        ("GPU-1", [1]),
        ("gpu-2000-A,0", [2, 0]),
        ("0,2,-1,1", [0, 2]),
        ("0,7,1", [0]),
        ("0,0,1", [0]),
        ("GPU-", []),
        ("all", []),
        ("-1", []),
        ("", []),
    ],
)
def test_only_cards_that_cuda_shows_are_counted_and_in_its_order(
    wanted: str, seen: list[int]
) -> None:
    nvml = FakeNvml(*(FakeCard(name="a card", uuid=f"GPU-{at}000-a") for at in range(3)))
    found = read_nvml(nvml, {"CUDA_VISIBLE_DEVICES": wanted})
    assert [card.uuid for card in found.cards] == [f"GPU-{at}000-a" for at in seen]
    hidden = f"every card is hidden by CUDA_VISIBLE_DEVICES={wanted}"
    assert found.notes == (() if seen else (hidden,))


def test_unlike_cards_that_are_chosen_by_number_are_warned_of_unless_their_order_is_fixed() -> None:
    nvml = FakeNvml(other(0), other(1))
    numbers = {"CUDA_VISIBLE_DEVICES": "1"}
    assert "set CUDA_DEVICE_ORDER=PCI_BUS_ID" in read_nvml(nvml, numbers).notes[0]
    assert not read_nvml(nvml, numbers | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}).notes
    assert not read_nvml(nvml, {"CUDA_VISIBLE_DEVICES": "GPU-1"}).notes
    alike = FakeNvml(FakeCard(uuid="GPU-0"), FakeCard(uuid="GPU-1"))
    assert not read_nvml(alike, numbers).notes


def mig_machine(driver: str) -> FakeNvml:
    """A whole card, and one in MIG mode with three devices, two of one GPU instance."""
    gap = FakeCard(name="")
    split = other(1, parts=[part(10, 1), gap, part(11, 1), part(12, 2)])
    return FakeNvml(other(0), split, driver=driver)


@pytest.mark.parametrize(
    ("wanted", "seen"),
    [
        (None, ["card 0", "part 10", "part 12"]),
        ("1", ["part 10", "part 12"]),
        ("GPU-1000", ["part 10", "part 12"]),
        ("MIG-11", ["part 11"]),
        ("MIG-11,MIG-10,0", ["part 11", "card 0"]),
        ("0", ["card 0"]),
    ],
)
def test_a_card_in_mig_mode_is_one_device_for_each_gpu_instance(
    wanted: str | None, seen: list[str]
) -> None:
    environ = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    environ |= {} if wanted is None else {"CUDA_VISIBLE_DEVICES": wanted}
    found = read_nvml(mig_machine("570.86.15"), environ)
    assert names(found) == seen
    assert found.notes == ()


def test_an_older_driver_shows_one_mig_device_and_no_whole_card() -> None:
    found = read_nvml(mig_machine("535.129.03"), {})
    assert names(found) == ["part 10"]
    assert "driver 535.129.03 shows a program one MIG device only" in found.notes[0]
    one = read_nvml(mig_machine("535.129.03"), {"CUDA_VISIBLE_DEVICES": "MIG-12"})
    assert (names(one), one.notes) == (["part 12"], ())


def test_mig_mode_without_a_mig_device_leaves_nothing_to_use() -> None:
    found = read_nvml(FakeNvml(FakeCard(name="A100", parts=[])), {})
    assert found == Found(notes=("A100: MIG is on, but there is no MIG device on it",))


def test_a_card_that_knows_no_mig_is_a_whole_card() -> None:
    card = FakeCard(fails={"mig": pynvml.NVML_ERROR_NOT_SUPPORTED})
    assert names(read_nvml(FakeNvml(card), {})) == ["NVIDIA GeForce RTX 4090"]


# nvidia-smi: name, uuid, total, reserved, free, display, MIG.

TABLE = """\
NVIDIA GeForce RTX 4090, GPU-8932f937, 24564, 364, 22980, Disabled, [N/A]
NVIDIA GB10, GPU-2dee1e25, [N/A], [N/A], [N/A], Enabled, [N/A]
NVIDIA A100-SXM4-80GB, GPU-5d5ba0d6, 81920, 625, 81000, Disabled, Enabled
NVIDIA GeForce GTX 1060, GPU-77777777, 6144, [N/A], 5800, Enabled, [N/A]
"""


def test_the_table_of_nvidia_smi_is_read() -> None:
    assert read_nvidia_smi(TABLE, {}) == Found(
        cards=(
            Card(
                name="NVIDIA GeForce RTX 4090",
                uuid="GPU-8932f937",
                total_bytes=24200 * MiB,
                free_bytes=22980 * MiB,
            ),
            Card(name="NVIDIA GB10", uuid="GPU-2dee1e25", shares_host=True),
            Card(
                name="NVIDIA GeForce GTX 1060",
                uuid="GPU-77777777",
                total_bytes=6144 * MiB,
                free_bytes=5800 * MiB,
                has_display=True,
            ),
        ),
        notes=(
            "NVIDIA A100-SXM4-80GB: MIG is on: install slotgate[nvidia] to measure it",
        ),
    )  # fmt: skip


def test_the_table_of_nvidia_smi_is_cut_to_what_cuda_shows() -> None:
    assert names(read_nvidia_smi(TABLE, {"CUDA_VISIBLE_DEVICES": "3,GPU-89"})) == [
        "NVIDIA GeForce GTX 1060",
        "NVIDIA GeForce RTX 4090",
    ]
    assert read_nvidia_smi(TABLE, {"CUDA_VISIBLE_DEVICES": "-1"}) == Found(
        notes=("every card is hidden by CUDA_VISIBLE_DEVICES=-1",)
    )
    assert read_nvidia_smi(TABLE, {"CUDA_VISIBLE_DEVICES": "MIG-1"}) == Found(
        notes=("CUDA_VISIBLE_DEVICES names a MIG device: install slotgate[nvidia] to measure it",)
    )


@pytest.mark.parametrize("text", ["No devices were found", "a, b, c, d, e, f, g, h"])
def test_a_table_of_another_form_is_not_guessed_at(text: str) -> None:
    assert read_nvidia_smi(text, {}) == Found(
        hints=("nvidia-smi answered in a form that is not understood",)
    )


def program(directory: Path, script: str) -> dict[str, str]:
    path = directory / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return {"PATH": str(directory)}


def test_nvidia_smi_is_run_with_the_fields_that_are_read(tmp_path: Path) -> None:
    script = (
        f'[ "$*" = "--query-gpu={",".join(FIELDS)} --format=csv,noheader,nounits" ] || exit 9\n'
        f"printf '%s' '{TABLE}'"
    )
    found = ask_nvidia_smi(program(tmp_path, script))
    assert found is not None
    assert len(found.cards) == 3


def test_an_nvidia_smi_that_fails_is_quoted(tmp_path: Path) -> None:
    environ = program(tmp_path, "echo 'Failed to initialize NVML: Driver Not Loaded'; exit 9")
    assert ask_nvidia_smi(environ) == Found(
        hints=("nvidia-smi failed: Failed to initialize NVML: Driver Not Loaded",)
    )


def test_where_there_is_no_nvidia_smi_it_is_not_asked(tmp_path: Path) -> None:
    assert ask_nvidia_smi({"PATH": str(tmp_path)}) is None


# Which source is believed.

CARDS = Found(cards=(Card(name="by the library"),))
OTHER = Found(cards=(Card(name="by the program"),))
NO_DRIVER = Found(hints=("no NVIDIA driver is loaded",))
MISSING = "nvidia-ml-py is not installed: install slotgate[nvidia] to measure NVIDIA cards"


@pytest.mark.parametrize(
    ("library", "smi", "answer"),
    [
        (CARDS, OTHER, CARDS),
        (Found(), OTHER, Found()),  # it sees no card, or none that is shown
        (None, OTHER, OTHER),
        (NO_DRIVER, OTHER, OTHER),
        (None, None, Found(hints=(MISSING,))),
        (NO_DRIVER, None, NO_DRIVER),
        (NO_DRIVER, Found(hints=("nvidia-smi failed: 9",)),
         Found(hints=(*NO_DRIVER.hints, "nvidia-smi failed: 9"))),
    ],
)  # fmt: skip
def test_the_library_is_believed_first_and_then_the_program(
    library: Found | None, smi: Found | None, answer: Found
) -> None:
    assert find_nvidia({}, by_library=lambda: library, by_program=lambda _: smi) == answer


def test_the_real_library_says_plainly_that_there_is_no_driver() -> None:
    found = probe(NVML)
    assert found is not None
    if not found.cards:
        assert found == Found(hints=("no NVIDIA driver is installed",))
