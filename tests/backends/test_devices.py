"""What is made of what the sources found, and this machine as it is."""

from __future__ import annotations

from slotgate.backends.devices import Card, Found, Host, Memory, assemble, measure_devices
from slotgate.capacity.devices import Device, DeviceKind, DeviceSet, describe

MiB = 1 << 20
GiB = 1 << 30

MACHINE = Memory(total_bytes=128 * GiB, free_bytes=100 * GiB)
HOST = Host(machine=MACHINE, allowed=Memory(total_bytes=8 * GiB, free_bytes=6 * GiB))
HOST_DEVICE = Device(
    name="host",
    kind=DeviceKind.HOST,
    total_bytes=8 * GiB,
    free_bytes=6 * GiB,
)
OWN = Card(name="RTX 4090", total_bytes=24 * GiB, free_bytes=23 * GiB, has_display=True)
SHARED = Card(name="GB10", shares_host=True)
NO_GPU = "no GPU was found; to plan for one all the same, give its memory, like --memory 24GiB"


def unified(name: str, total: int, free: int) -> Device:
    return Device(name=name, kind=DeviceKind.UNIFIED, total_bytes=total, free_bytes=free)


def test_cards_of_every_source_become_devices_in_their_order() -> None:
    other = Card(name="RX 7900", total_bytes=20 * GiB, free_bytes=20 * GiB)
    assert assemble([Found(cards=(OWN,)), Found(cards=(other,))], HOST) == DeviceSet(
        gpus=(
            Device(
                name="RTX 4090",
                kind=DeviceKind.GPU,
                total_bytes=24 * GiB,
                free_bytes=23 * GiB,
                has_display=True,
            ),
            Device(
                name="RX 7900",
                kind=DeviceKind.GPU,
                total_bytes=20 * GiB,
                free_bytes=20 * GiB,
            ),
        ),
        host=HOST_DEVICE,
    )


def test_a_card_without_memory_of_its_own_has_the_machine_s_whatever_the_container() -> None:
    devices = assemble([Found(cards=(SHARED,))], HOST)
    assert devices.gpus == (unified("GB10", 128 * GiB, 100 * GiB),)
    assert devices.host == HOST_DEVICE


def test_a_share_of_the_host_s_memory_is_free_only_as_far_as_the_host_s_is() -> None:
    roomy = Card(name="8060S", total_bytes=120 * GiB, free_bytes=119 * GiB, shares_host=True)
    tight = Card(name="M2", total_bytes=48 * GiB, free_bytes=48 * GiB, shares_host=True)
    assert assemble([Found(cards=(roomy, tight))], HOST).gpus == (
        unified("8060S", 120 * GiB, 100 * GiB),
        unified("M2", 48 * GiB, 48 * GiB),
    )


def test_an_integrated_gpu_is_left_out_where_there_is_another_as_llama_cpp_does() -> None:
    devices = assemble([Found(cards=(SHARED, OWN))], HOST)
    assert [gpu.name for gpu in devices.gpus] == ["RTX 4090"]
    assert devices.notes == ("GB10: left out, as llama.cpp does where there is another GPU",)


def test_hints_are_told_only_where_no_card_was_found() -> None:
    hinting = Found(hints=("no NVIDIA driver is loaded",))
    noting = Found(notes=("AMD card 0 cannot be read",))
    nothing = assemble([hinting, noting], HOST)
    assert nothing.gpus == ()
    assert nothing.notes == ("AMD card 0 cannot be read", "no NVIDIA driver is loaded", NO_GPU)
    assert assemble([hinting, Found(cards=(OWN,))], HOST).notes == ()


def test_without_a_host_its_cards_are_unknown_too_and_that_is_told() -> None:
    devices = assemble([Found(cards=(SHARED,))], None)
    assert devices == DeviceSet(notes=(NO_GPU, "the host's memory could not be measured"))
    sized = Card(name="M2", total_bytes=48 * GiB, free_bytes=48 * GiB, shares_host=True)
    assert assemble([Found(cards=(sized,))], None).gpus == (unified("M2", 48 * GiB, 48 * GiB),)


def test_what_the_host_has_to_say_comes_last() -> None:
    host = Host(machine=MACHINE, allowed=MACHINE, notes=("a control group allows 8.0 GiB",))
    assert assemble([Found(cards=(OWN,))], host).notes == ("a control group allows 8.0 GiB",)


def test_a_driver_s_slip_of_a_figure_is_no_crash() -> None:
    odd = Card(name="odd", total_bytes=8 * GiB, free_bytes=9 * GiB)
    odder = Card(name="odder", total_bytes=-1, free_bytes=-1)
    assert [
        (gpu.total_bytes, gpu.free_bytes)
        for gpu in assemble([Found(cards=(odd, odder))], HOST).gpus
    ] == [(8 * GiB, 8 * GiB), (0, 0)]


def test_this_machine_is_measured_whatever_it_has() -> None:
    devices = measure_devices()
    assert devices.host is not None
    assert 0 < devices.host.free_bytes <= devices.host.total_bytes
    assert devices.gpus or NO_GPU in devices.notes
    assert describe(devices)[len(devices.gpus)].startswith("host: ")


def test_apple_s_way_of_measuring_ends_in_notes_where_it_does_not_apply() -> None:
    devices = measure_devices(system="Darwin")
    assert devices.host is not None
    assert devices.gpus or devices.notes
