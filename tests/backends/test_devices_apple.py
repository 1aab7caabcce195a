"""Apple's GPU and the host's memory that Metal lets it use."""

from __future__ import annotations

import pytest

from slotgate.backends.devices.apple import ask_sysctl, find_apple
from slotgate.backends.devices.bounded import NoAnswerError
from slotgate.backends.devices.cards import Card, Found

GiB = 1 << 30


class Sysctl:
    """Answers as `sysctl -n NAME` does: a line, or a failure for a name that it does not know."""

    def __init__(self, **values: str) -> None:
        self.values = {name.replace("__", "."): value for name, value in values.items()}

    def __call__(self, name: str) -> str:
        if name not in self.values:
            raise NoAnswerError(f"failed: sysctl: unknown oid '{name}'")
        return self.values[name]


RAM = {"hw__memsize": str(64 * GiB), "machdep__cpu__brand_string": "Apple M2 Max"}


def test_without_a_limit_of_the_user_s_it_is_metal_s_share() -> None:
    sysctl = Sysctl(**RAM, iogpu__wired_limit_mb="0")
    assert find_apple(sysctl=sysctl, machine="arm64") == Found(
        cards=(
            Card(
                name="Apple M2 Max",
                total_bytes=48 * GiB,
                free_bytes=48 * GiB,
                shares_host=True,
            ),
        )
    )


@pytest.mark.parametrize("setting", ["iogpu__wired_limit_mb", "debug__iogpu__wired_limit"])
def test_the_user_s_limit_counts_under_its_new_and_its_old_name(setting: str) -> None:
    sysctl = Sysctl(**RAM, **{setting: "57344"})
    assert find_apple(sysctl=sysctl, machine="arm64").cards[0].total_bytes == 56 * GiB


def test_a_limit_that_is_not_told_is_none_and_a_name_that_is_not_told_is_plain() -> None:
    for sysctl in (
        Sysctl(hw__memsize=str(16 * GiB)),
        Sysctl(hw__memsize=str(16 * GiB), iogpu__wired_limit_mb="?", machdep__cpu__brand_string=""),
    ):
        (card,) = find_apple(sysctl=sysctl, machine="arm64").cards
        assert (card.name, card.total_bytes) == ("Apple GPU", 16 * GiB * 2 // 3)


@pytest.mark.parametrize("sysctl", [Sysctl(), Sysctl(hw__memsize="much")])
def test_a_machine_that_does_not_tell_its_memory_costs_a_note(sysctl: Sysctl) -> None:
    found = find_apple(sysctl=sysctl, machine="arm64")
    assert found.cards == ()
    assert found.notes[0].startswith("the GPU's memory could not be measured: sysctl hw.memsize")


def test_the_gpu_of_an_intel_machine_is_left_to_the_user() -> None:
    assert find_apple(sysctl=Sysctl(**RAM), machine="x86_64") == Found(
        notes=("the GPU of an Intel machine is not measured; give --memory",)
    )


def test_sysctl_is_asked_for_real_and_does_not_know_every_name() -> None:
    with pytest.raises(NoAnswerError):
        ask_sysctl("slotgate.no_such_setting")
