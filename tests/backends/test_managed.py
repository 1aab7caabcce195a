"""A llama.cpp that we start: it serves, it ends, it says why it could not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slotgate.backends.managed import EngineOptions, ManagedServer

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.llama]


async def test_it_serves_when_start_returns_and_is_gone_when_stop_returns(
    small_model: Path,
) -> None:
    server = ManagedServer(
        EngineOptions(model=small_model, alias="small", parallel=2, ctx_size=1024)
    )
    await server.start()
    assert server.is_running
    assert server.url.startswith("unix:///")
    await server.stop(5)
    assert not server.is_running
    assert server.pid is None
