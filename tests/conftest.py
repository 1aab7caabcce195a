"""What every test may ask for: a small real model, anyio's asyncio, the end of a process.

How long an example takes is no finding of hypothesis's here: a busy machine would decide.
"""

from __future__ import annotations

import asyncio
import os
import select
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, settings

from slotgate.backends.models import resolve_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("unhurried", UNHURRIED)
# The same examples each time, and no smaller ones are sought.
settings.register_profile(
    "faults", UNHURRIED, derandomize=True, database=None, phases=(Phase.generate,)
)
settings.load_profile("unhurried")


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
