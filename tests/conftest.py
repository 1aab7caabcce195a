"""What every test may ask for: the small real model, and asyncio under anyio's plugin."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from slotgate.backends.models import resolve_model

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def small_model() -> Path:
    """SmolLM2-135M; fetched once, then taken from the user's cache."""
    return asyncio.run(resolve_model(None, progress=print)).path


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
