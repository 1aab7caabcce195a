"""What every test may ask for: the small real model, asyncio under anyio's plugin, ..."""

from __future__ import annotations

import asyncio
import os
import select
from typing import TYPE_CHECKING

import pytest

from slotgate.backends.models import resolve_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(scope="session")
def small_model() -> Path:
    """SmolLM2-135M; fetched once, then taken from the user's cache."""
    return asyncio.run(resolve_model(None, progress=print)).path


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def wait_gone() -> Callable[[int], None]:
    """Waits until a process has ended, whoever has to reap it; AssertionError after 20 s."""

    def wait(pid: int) -> None:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        try:
            ended, _, _ = select.select([descriptor], [], [], 20)
            assert ended, f"process {pid} still runs"
        finally:
            os.close(descriptor)

    return wait
