"""What is known of the memory that a model may be put into."""

from __future__ import annotations

import dataclasses

import pytest

from slotgate.capacity.devices import (
    Device,
    DeviceKind,
    DeviceSet,
    by_hand,
    describe,
    parse_memory,
    working_set_bytes,
)
from slotgate.errors import ConfigError

MiB = 1 << 20
GiB = 1 << 30


def device(kind: DeviceKind = DeviceKind.GPU, *, has_display: bool = False) -> Device:
    return Device(
        name="a card",
        kind=kind,
        total_bytes=24 * GiB,
        free_bytes=20 * GiB,
        has_display=has_display,
    )


@pytest.mark.parametrize(
    ("kind", "has_display", "overhead_bytes"),
    [
        (DeviceKind.GPU, False, 600 * MiB),
        (DeviceKind.GPU, True, 1024 * MiB),
        (DeviceKind.UNIFIED, False, 600 * MiB),
        (DeviceKind.HOST, False, 0),
    ],
)
def test_the_driver_s_part_is_taken_off_what_is_free(
    kind: DeviceKind, has_display: bool, overhead_bytes: int
) -> None:
    card = device(kind, has_display=has_display)
    assert card.overhead_bytes == overhead_bytes
    assert card.budget_bytes == 20 * GiB - overhead_bytes


def test_a_card_that_is_full_has_no_budget_rather_than_a_debt() -> None:
    full = dataclasses.replace(device(), free_bytes=100 * MiB)
    assert full.budget_bytes == 0


@pytest.mark.parametrize("free_bytes", [-1, 24 * GiB + 1])
def test_a_device_cannot_have_more_free_than_it_has(free_bytes: int) -> None:
    with pytest.raises(ValueError, match="a card"):
        dataclasses.replace(device(), free_bytes=free_bytes)


def test_memory_by_hand_is_a_list_of_sizes_or_auto() -> None:
    assert parse_memory("24GiB") == (24 * GiB,)
    assert parse_memory("24GiB, 16 GB") == (24 * GiB, 16 * 10**9)
    assert parse_memory(" Auto ") is None


@pytest.mark.parametrize("written", ["24G", "24GiB,", "24GiB,auto", "", "all of it"])
def test_a_memory_that_cannot_be_read_is_refused_by_the_name_of_its_option(written: str) -> None:
    with pytest.raises(ConfigError, match=r"^--memory: "):
        parse_memory(written)


def test_memory_by_hand_is_empty_cards_and_an_unknown_host() -> None:
    assert by_hand((24 * GiB, 16 * GiB)) == DeviceSet(
        gpus=(
            Device(
                name="GPU 0",
                kind=DeviceKind.GPU,
                total_bytes=24 * GiB,
                free_bytes=24 * GiB,
            ),
            Device(
                name="GPU 1",
                kind=DeviceKind.GPU,
                total_bytes=16 * GiB,
                free_bytes=16 * GiB,
            ),
        )
    )


def test_a_host_by_hand_may_stand_alone() -> None:
    assert by_hand((), host_bytes=32 * GiB) == DeviceSet(
        host=Device(
            name="host", kind=DeviceKind.HOST, total_bytes=32 * GiB, free_bytes=32 * GiB
        )
    )  # fmt: skip


def test_a_card_without_memory_and_more_cards_than_llama_cpp_takes_are_refused() -> None:
    with pytest.raises(ConfigError, match="a GPU without memory"):
        by_hand((24 * GiB, 0))
    assert len(by_hand([GiB] * 16).gpus) == 16
    with pytest.raises(ConfigError, match=r"17 GPUs; llama\.cpp takes 16 at most"):
        by_hand([GiB] * 17)


@pytest.mark.parametrize(
    ("ram_mib", "seen_mib"),
    # recommendedMaxWorkingSetSize in public logs: llama.cpp#5207, #2209, #2011, #1870, #3213.
    [(8192, 5461), (16384, 10922), (32768, 21845), (65536, 49152), (98304, 73728)],
)
def test_apple_s_working_set_is_the_share_of_the_memory_that_metal_was_seen_to_give(
    ram_mib: int, seen_mib: int
) -> None:
    assert working_set_bytes(ram_mib * MiB) // MiB == seen_mib


def test_apple_s_working_set_is_what_the_user_allowed_but_never_more_than_there_is() -> None:
    assert working_set_bytes(64 * GiB, wired_limit_mib=57344) == 56 * GiB
    assert working_set_bytes(64 * GiB, wired_limit_mib=99999) == 64 * GiB


def test_apple_s_share_steps_up_above_36_gib() -> None:
    assert working_set_bytes(36 * GiB) == 24 * GiB
    assert working_set_bytes(36 * GiB + 4) == 27 * GiB + 3


def test_only_unified_memory_is_shared_with_the_host() -> None:
    assert DeviceSet(gpus=(device(DeviceKind.UNIFIED),)).shares_host
    assert not DeviceSet(gpus=(device(),), host=device(DeviceKind.HOST)).shares_host


def test_each_device_is_described_in_a_line_and_the_notes_come_last() -> None:
    devices = DeviceSet(
        gpus=(device(), device(has_display=True), device(DeviceKind.UNIFIED)),
        host=dataclasses.replace(device(DeviceKind.HOST), name="host"),
        notes=("no AMD driver is loaded",),
    )
    assert describe(devices) == [
        "a card: 20.0 GiB free of 24.0 GiB, 0.6 GiB of it assumed for driver and context",
        "a card: 20.0 GiB free of 24.0 GiB, 1.0 GiB of it assumed for driver, context and display",
        "a card: 20.0 GiB free of 24.0 GiB, shared with the host, "
        "0.6 GiB of it assumed for driver and context",
        "host: 20.0 GiB free of 24.0 GiB",
        "no AMD driver is loaded",
    ]


def test_an_unknown_host_is_not_described() -> None:
    assert describe(by_hand((24 * GiB,))) == [
        "GPU 0: 24.0 GiB free of 24.0 GiB, 0.6 GiB of it assumed for driver and context"
    ]
