"""The two servers that must keep the same contract."""

from __future__ import annotations

import os
from pathlib import Path
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
    servers = Servers(_model(request) if request.param == "llama" else None)
    yield servers
    servers.close()


def _model(request: pytest.FixtureRequest) -> Path:
    given = os.environ.get("SLOTGATE_TEST_MODEL")
    model: Path = Path(given) if given else request.getfixturevalue("small_model")
    return model
