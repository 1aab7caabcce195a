"""The two servers that must keep the same contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contracts.servers import Servers

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(
    scope="session",
    params=[
        pytest.param("stub", marks=pytest.mark.process),
        pytest.param("llama", marks=[pytest.mark.process, pytest.mark.llama]),
    ],
)
def launched(request: pytest.FixtureRequest) -> Iterator[Servers]:
    """Call it with a `Launch` to get a running server of the kind under test."""
    model = request.getfixturevalue("small_model") if request.param == "llama" else None
    servers = Servers(model)
    yield servers
    servers.close()
