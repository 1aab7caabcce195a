"""The table of architectures, and what the reference page says of it."""

from __future__ import annotations

import pytest

from slotgate.capacity.architectures import ARCHITECTURES, Memory, architecture
from slotgate.capacity.docs import architectures_reference


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_is_in_the_reference(name: str) -> None:
    assert f"`{name}`" in architectures_reference()


def test_an_architecture_that_nobody_knows_is_not_verified_and_plain() -> None:
    row = architecture("newcomer")
    assert not row.verified
    assert (row.memory, row.window, row.state) == (Memory.CACHE, None, None)


def test_those_with_a_state_say_which_layers_keep_it() -> None:
    for row in ARCHITECTURES.values():
        assert (row.state is None) == (row.recurrent is None), row.name
        assert (row.memory in {Memory.RECURRENT, Memory.HYBRID}) == (row.state is not None)
