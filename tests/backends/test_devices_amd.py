"""What AMD's cards have free, as ROCm's library and Linux tell it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import pytest

from slotgate.backends.devices.amd import find_amd
from slotgate.backends.devices.cards import Card, Found
from slotgate.backends.devices.kfd import read_kernel
from slotgate.backends.devices.libraries import AMDSMI
from slotgate.backends.devices.probe import probe
from slotgate.backends.devices.rocm import read_amdsmi

if TYPE_CHECKING:
    from pathlib import Path

MiB = 1 << 20
GiB = 1 << 30


class MemoryType(IntEnum):
    VRAM = 0
    VIS_VRAM = 1
    GTT = 2


class AmdSmiLibraryException(Exception):  # noqa: N818 the library's own name
    """As the library's: a code, and a sentence about it."""

    def __init__(self, code: int, info: str) -> None:
        super().__init__(code)
        self.err_code = code
        self.err_info = info


NOT_SUPPORTED = AmdSmiLibraryException(2, "AMDSMI_STATUS_NOT_SUPPORTED - Feature not supported")
NO_DRIVER = AmdSmiLibraryException(34, "AMDSMI_STATUS_DRIVER_NOT_LOADED - Driver not loaded")


@dataclass
class FakeCard:
    """A card as amdsmi tells of it; `fails` names the calls that raise."""

    name: str = "AMD Radeon RX 7900 XTX"
    vram: tuple[int, int] = (24 * GiB, 1 * GiB)
    gtt: tuple[int, int] = (32 * GiB, 0)
    hip_id: int | str = "N/A"
    hip_uuid: str = "GPU-1111111111111111"
    format_revision: int = 1
    fails: set[str] = field(default_factory=set)


class FakeAmdSmi:
    """Answers as the module `amdsmi` does, in its own types."""

    AmdSmiException: type[Exception] = AmdSmiLibraryException
    AmdSmiMemoryType = MemoryType

    def __init__(self, *cards: FakeCard, init_fails: Exception | None = None) -> None:
        self.cards = cards
        self.init_fails = init_fails
        self.is_open = False

    def amdsmi_init(self) -> None:
        if self.init_fails is not None:
            raise self.init_fails
        self.is_open = True

    def amdsmi_shut_down(self) -> None:
        self.is_open = False

    def amdsmi_get_processor_handles(self) -> list[FakeCard]:
        return list(self.cards)

    def amdsmi_get_gpu_memory_total(self, handle: FakeCard, mem_type: MemoryType) -> int:
        return self._pool(handle, mem_type)[0]

    def amdsmi_get_gpu_memory_usage(self, handle: FakeCard, mem_type: MemoryType) -> int:
        return self._pool(handle, mem_type)[1]

    def amdsmi_get_gpu_asic_info(self, handle: FakeCard) -> dict[str, Any]:
        self._maybe_fail(handle, "asic")
        return {"market_name": handle.name, "vendor_id": "0x1002", "asic_serial": "N/A"}

    def amdsmi_get_gpu_enumeration_info(self, handle: FakeCard) -> dict[str, Any]:
        self._maybe_fail(handle, "enumeration")
        return {
            "drm_render": 128,
            "drm_card": 0,
            "hsa_id": 1,
            "hip_id": handle.hip_id,
            "hip_uuid": handle.hip_uuid,
        }

    def amdsmi_get_gpu_metrics_header_info(self, handle: FakeCard) -> dict[str, int]:
        self._maybe_fail(handle, "metrics")
        return {
            "structure_size": 120,
            "format_revision": handle.format_revision,
            "content_revision": 3,
        }

    def _pool(self, handle: FakeCard, mem_type: MemoryType) -> tuple[int, int]:
        self._maybe_fail(handle, "memory")
        return handle.gtt if mem_type is MemoryType.GTT else handle.vram

    def _maybe_fail(self, handle: FakeCard, call: str) -> None:
        if call in handle.fails:
            raise NOT_SUPPORTED


def names(found: Found) -> list[str]:
    return [card.name for card in found.cards]


def test_a_card_has_what_is_not_used_of_its_own_memory() -> None:
    smi = FakeAmdSmi(FakeCard())
    assert read_amdsmi(smi, {}) == Found(
        cards=(
            Card(
                name="AMD Radeon RX 7900 XTX",
                uuid="GPU-1111111111111111",
                total_bytes=24 * GiB,
                free_bytes=23 * GiB,
            ),
        )
    )
    assert not smi.is_open


@pytest.mark.parametrize("format_revision", [2, 3])
def test_an_apu_has_the_larger_of_its_two_pools_and_never_both(format_revision: int) -> None:
    halo = FakeCard(
        name="AMD Radeon 8060S",
        vram=(512 * MiB, 100 * MiB),
        gtt=(110 * GiB, 2 * GiB),
        format_revision=format_revision,
    )
    carved = FakeCard(vram=(64 * GiB, 1 * GiB), gtt=(32 * GiB, 0), format_revision=format_revision)
    borrowed, own = read_amdsmi(FakeAmdSmi(halo, carved), {}).cards
    assert (borrowed.total_bytes, borrowed.free_bytes) == (110 * GiB, 108 * GiB)
    assert borrowed.shares_host
    assert (own.total_bytes, own.free_bytes) == (64 * GiB, 63 * GiB)
    assert not own.shares_host


def test_a_card_that_does_not_tell_what_it_is_is_taken_for_a_whole_card() -> None:
    silent = FakeCard(name="N/A", fails={"metrics", "enumeration"})
    nameless = FakeCard(fails={"asic"})
    found = read_amdsmi(FakeAmdSmi(silent, nameless), {})
    assert names(found) == ["AMD card", "AMD card"]
    assert [card.total_bytes for card in found.cards] == [24 * GiB, 24 * GiB]
    assert found.cards[0].uuid == ""


def test_more_used_than_there_is_leaves_nothing_free() -> None:
    full = FakeCard(vram=(8 * GiB, 9 * GiB))
    assert read_amdsmi(FakeAmdSmi(full), {}).cards[0].free_bytes == 0


def test_a_card_that_cannot_be_read_costs_a_note_and_keeps_its_number() -> None:
    lost = FakeCard(fails={"memory"})
    found = read_amdsmi(FakeAmdSmi(lost, FakeCard(name="next")), {"HIP_VISIBLE_DEVICES": "0,1"})
    assert names(found) == ["next"]
    assert found.notes == (
        "AMD card 0 cannot be read: AMDSMI_STATUS_NOT_SUPPORTED - Feature not supported",
    )


def test_a_driver_that_is_not_loaded_is_told_plainly() -> None:
    assert read_amdsmi(FakeAmdSmi(init_fails=NO_DRIVER), {}) == Found(
        hints=("amdsmi finds no AMD driver: AMDSMI_STATUS_DRIVER_NOT_LOADED - Driver not loaded",)
    )


@pytest.mark.parametrize(
    ("environ", "seen"),
    [
        ({}, "abc"),
        ({"HIP_VISIBLE_DEVICES": "2,0"}, "ca"),
        ({"HIP_VISIBLE_DEVICES": "0,9,1"}, "a"),
        ({"HIP_VISIBLE_DEVICES": "GPU-bb"}, "b"),
        ({"HIP_VISIBLE_DEVICES": ""}, "abc"),
        ({"HIP_VISIBLE_DEVICES": "", "CUDA_VISIBLE_DEVICES": "1"}, "b"),
        ({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "0"}, "b"),
        ({"CUDA_VISIBLE_DEVICES": "2"}, "c"),
        ({"ROCR_VISIBLE_DEVICES": "2,1"}, "cb"),
        ({"ROCR_VISIBLE_DEVICES": "GPU-CC,0"}, "ca"),
        ({"ROCR_VISIBLE_DEVICES": "2,1", "HIP_VISIBLE_DEVICES": "1"}, "b"),
        ({"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "1"}, ""),
        ({"ROCR_VISIBLE_DEVICES": ""}, ""),
    ],
)
def test_only_cards_that_hip_shows_are_counted_and_as_it_numbers_them(
    environ: dict[str, str], seen: str
) -> None:
    smi = FakeAmdSmi(
        FakeCard(name="c", hip_id=2, hip_uuid="GPU-cc00"),
        FakeCard(name="a", hip_id=0, hip_uuid="GPU-aa00"),
        FakeCard(name="b", hip_id=1, hip_uuid="GPU-bb00"),
    )
    found = read_amdsmi(smi, environ)
    assert "".join(names(found)) == seen
    lists = " and ".join(f"{name}={wanted}" for name, wanted in environ.items())
    assert found.notes == (() if seen else (f"every card is hidden by {lists}",))


# What Linux tells: a /sys and a /dev.


@dataclass
class Machine:
    """Files as the driver amdgpu shows them."""

    root: Path

    def __post_init__(self) -> None:
        self.write("dev/kfd", "")
        # Node 0 of every machine is its processor.
        self.node(0, "cpu_cores_count 16\nsimd_count 0\ndrm_render_minor 0\nunique_id 0\n")

    def write(self, path: str, text: str) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def node(self, number: int, properties: str, banks: tuple[tuple[int, int], ...] = ()) -> None:
        node = f"sys/class/kfd/kfd/topology/nodes/{number}"
        self.write(f"{node}/properties", properties)
        for at, (heap, size) in enumerate(banks):
            text = f"heap_type {heap}\nsize_in_bytes {size}\nflags 0\nwidth 384\n"
            self.write(f"{node}/mem_banks/{at}/properties", text)

    def card(
        self,
        number: int,
        minor: int,
        *,
        vram: tuple[int, int] = (24 * GiB, 1 * GiB),
        gtt: tuple[int, int] = (32 * GiB, 0),
        bank: int = 24 * GiB,
        unique_id: int = 0,
        target: int = 110000,
    ) -> None:
        properties = (
            f"cpu_cores_count 0\nsimd_count 192\ngfx_target_version {target}\nvendor_id 4098\n"
            f"drm_render_minor {minor}\nunique_id {unique_id}\nlocal_mem_size 0\n"
        )
        self.node(number, properties, ((1, bank),))
        self.driver(minor, vram=vram, gtt=gtt)

    def driver(self, minor: int, *, vram: tuple[int, int], gtt: tuple[int, int]) -> None:
        device = f"sys/class/drm/renderD{minor}/device"
        self.write(f"{device}/vendor", "0x1002\n")
        for kind, (total, used) in (("vram", vram), ("gtt", gtt)):
            self.write(f"{device}/mem_info_{kind}_total", f"{total}\n")
            self.write(f"{device}/mem_info_{kind}_used", f"{used}\n")
        self.write(f"dev/dri/renderD{minor}", "")

    def read(self, **environ: str) -> Found:
        return read_kernel(environ, sys=self.root / "sys", dev=self.root / "dev")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_linux_tells_of_the_cards_in_rocm_s_order(machine: Machine) -> None:
    machine.card(10, 128, unique_id=0xBB, target=90010)
    machine.card(2, 129, unique_id=0xAA0000000000000A)
    machine.write("sys/class/drm/renderD128/device/product_name", "AMD Instinct MI210\n")
    assert machine.read() == Found(
        cards=(
            Card(
                name="AMD gfx1100",
                uuid="GPU-aa0000000000000a",
                total_bytes=24 * GiB,
                free_bytes=23 * GiB,
            ),
            Card(
                name="AMD Instinct MI210",
                uuid="GPU-00000000000000bb",
                total_bytes=24 * GiB,
                free_bytes=23 * GiB,
            ),
        )
    )
    assert names(machine.read(ROCR_VISIBLE_DEVICES="GPU-00")) == ["AMD Instinct MI210"]
    hidden = machine.read(ROCR_VISIBLE_DEVICES="")
    assert hidden == Found(notes=("every card is hidden by ROCR_VISIBLE_DEVICES=",))


def test_a_target_is_named_as_rocm_names_it(machine: Machine) -> None:
    machine.card(1, 128, target=90010)
    machine.card(2, 129, target=110501)
    assert names(machine.read()) == ["AMD gfx90a", "AMD gfx1151"]


def test_an_apu_whose_bank_is_larger_than_its_vram_uses_the_host_s_memory(
    machine: Machine,
) -> None:
    machine.card(
        1, 128, vram=(512 * MiB, 100 * MiB), gtt=(110 * GiB, 2 * GiB), bank=108 * GiB
    )  # fmt: skip
    assert machine.read().cards == (
        Card(
            name="AMD gfx1100",
            total_bytes=108 * GiB,
            free_bytes=106 * GiB,
            shares_host=True,
        ),
    )


def test_a_card_whose_bank_differs_a_little_from_its_vram_is_a_whole_card(
    machine: Machine,
) -> None:
    machine.card(1, 128, vram=(8 * GiB, 0), gtt=(32 * GiB, 0), bank=8 * GiB + 16 * MiB)
    assert machine.read().cards[0].total_bytes == 8 * GiB
    assert not machine.read().cards[0].shares_host


def test_the_host_s_own_bank_is_no_memory_of_the_card(machine: Machine) -> None:
    properties = "simd_count 8\ngfx_target_version 90009\ndrm_render_minor 128\n"
    machine.node(1, properties, ((0, 64 * GiB), (2, 2 * GiB)))
    machine.driver(128, vram=(2 * GiB, 0), gtt=(32 * GiB, 0))
    assert machine.read().cards[0].total_bytes == 2 * GiB


def test_a_display_on_the_card_is_seen(machine: Machine) -> None:
    machine.card(1, 128)
    connector = "sys/class/drm/renderD128/device/drm/card0/card0-DP-1/enabled"
    machine.write(connector, "disabled\n")
    assert not machine.read().cards[0].has_display
    machine.write(connector, "enabled\n")
    assert machine.read().cards[0].has_display


def test_a_card_that_rocm_does_not_know_is_still_the_driver_s(machine: Machine) -> None:
    machine.driver(129, vram=(4 * GiB, 1 * GiB), gtt=(16 * GiB, 0))
    machine.driver(128, vram=(8 * GiB, 1 * GiB), gtt=(16 * GiB, 0))
    machine.write("sys/class/drm/renderD130/device/vendor", "0x10de\n")
    machine.write("sys/class/drm/card0/device/vendor", "0x1002\n")
    assert [(card.name, card.total_bytes) for card in machine.read().cards] == [
        ("AMD card", 8 * GiB),
        ("AMD card", 4 * GiB),
    ]


def test_a_card_without_the_driver_s_figures_is_left_out(machine: Machine) -> None:
    machine.card(1, 128)
    machine.card(2, 129)
    machine.write("sys/class/drm/renderD128/device/mem_info_vram_total", "\n")
    assert len(machine.read().cards) == 1


def test_an_apu_that_does_not_tell_its_gtt_has_its_vram(machine: Machine) -> None:
    machine.card(1, 128, vram=(2 * GiB, 0), bank=16 * GiB)
    machine.write("sys/class/drm/renderD128/device/mem_info_gtt_used", "?\n")
    assert machine.read().cards[0].total_bytes == 2 * GiB


def test_a_container_without_the_device_node_cannot_use_the_card(machine: Machine) -> None:
    machine.card(1, 128)
    (machine.root / "dev/dri/renderD128").unlink()
    assert machine.read() == Found(
        hints=(
            "an AMD card is there, but its device node is not: "
            "give the container /dev/kfd and /dev/dri",
        )
    )


def test_a_machine_without_the_driver_has_no_cards(tmp_path: Path, machine: Machine) -> None:
    nothing = Found(hints=("no AMD driver is loaded",))
    assert read_kernel({}, sys=tmp_path / "none", dev=tmp_path / "none") == nothing
    assert machine.read() == nothing  # a processor alone


def test_a_device_that_may_not_be_opened_costs_a_note(machine: Machine) -> None:
    machine.card(1, 128)
    kfd, render = machine.root / "dev/kfd", machine.root / "dev/dri/renderD128"
    closed = {kfd: False, render: True}
    found = read_kernel(
        {},
        sys=machine.root / "sys",
        dev=machine.root / "dev",
        may_use=lambda path: closed[path],
    )
    assert names(found) == ["AMD gfx1100"]
    assert found.notes == (
        f"there is no permission to use {kfd}, so ROCm will not find the card; "
        "add the user to the groups `render` and `video`",
    )


# Which source is believed.

LIBRARY = Found(cards=(Card(name="by the library"),))
KERNEL = Found(cards=(Card(name="by Linux"),))
NO_ROCM = Found(hints=("amdsmi finds no driver library: KeyError: 'libamd_smi.so'",))
NO_NODE = Found(hints=("its device node is not there",))


@pytest.mark.parametrize(
    ("library", "kernel", "answer"),
    [
        (LIBRARY, KERNEL, LIBRARY),
        (Found(), KERNEL, Found()),  # it sees no card, or none that is shown
        (None, KERNEL, KERNEL),
        (NO_ROCM, KERNEL, KERNEL),
        (None, Found(), Found()),
        (NO_ROCM, Found(), NO_ROCM),
        (NO_ROCM, NO_NODE, Found(hints=NO_ROCM.hints + NO_NODE.hints)),
    ],
)
def test_the_library_is_believed_first_and_then_linux(
    library: Found | None, kernel: Found, answer: Found
) -> None:
    assert find_amd({}, by_library=lambda: library, by_kernel=lambda _: kernel) == answer


def test_the_real_library_without_rocm_costs_a_hint() -> None:
    found = probe(AMDSMI)
    assert found is not None
    if not found.cards:
        assert len(found.hints) == 1
        assert found.hints[0].startswith("amdsmi finds no ")
