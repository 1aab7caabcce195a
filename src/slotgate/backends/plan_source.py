"""Finds the model that is to be planned, and reads its header, not its weights.

| what the user writes | what is read |
|---|---|
| `~/models/x.gguf`, `x-00001-of-00003.gguf` | the file's header, those of its other parts too |
| `hf:org/repo`, `hf:org/repo:Q5_K_M` | some MiB of the file in the repository |
| `pypi:package` | the file inside the package, which is fetched for that |
| `Llama-3.1-8B` | the catalog; how large the weights are must be said |

Everything here blocks: a program with an event loop calls it in a thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from slotgate.backends.model_files import find_model_file, short_name
from slotgate.capacity.header import Header, part_names, read_header
from slotgate.capacity.model import Model, model_of_file, model_of_keys
from slotgate.capacity.units import show_size
from slotgate.errors import ConfigError, ModelError

if TYPE_CHECKING:
    from collections.abc import Callable

    from slotgate.capacity.catalog import CatalogEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSource:
    """A model to plan.

    `arguments` make llama-server load it.  `notes` are sentences for the user.
    """

    model: Model
    arguments: tuple[str, ...]
    notes: tuple[str, ...] = ()


def find_source(
    spec: str,
    *,
    weights_bytes: int | None = None,
    served_bytes: int | None = None,
    progress: Callable[[str], None],
) -> PlanSource:
    """Find what is meant; `progress` is told what takes time.

    `weights_bytes` is how large the user says that the weights are, for a name of the catalog, and
    `served_bytes` is what a server says, if the user does not.
    Raises ModelError, PlanRefused if llama.cpp would not load the model, or ConfigError if
    `weights_bytes` is missing, or given for what says it itself.
    """
    if not spec.strip():
        raise ModelError("the model's name is empty; give a path, hf:org/repo or a name")
    kind, _, rest = spec.partition(":")
    if kind not in ("hf", "pypi") and not _is_path(spec):
        return _from_catalog(spec, weights_bytes or served_bytes)
    if weights_bytes is not None:
        raise ConfigError(f"--weights is for a name of the catalog; {spec} says it itself")
    if kind == "hf":
        return _from_hub(rest, progress)
    if kind == "pypi":
        return _from_package(spec, progress)
    return source_of_file(Path(spec).expanduser())


def source_of_file(path: Path) -> PlanSource:
    """Read the header of a file that is here; ModelError if it is none."""
    first = find_model_file(path)
    header = read_header(first)
    model = model_of_file(header, name=short_name(first), source=str(first))
    return PlanSource(model=model, arguments=("-m", str(first)), notes=_cut_short(first, header))


def _is_path(spec: str) -> bool:
    """Whether a file is meant: because it is there, or because only files are called so."""
    looks_so = spec.lower().endswith(".gguf") or spec.startswith(("/", "./", "../", "~"))
    return looks_so or Path(spec).exists()


def _cut_short(first: Path, header: Header) -> tuple[str, ...]:
    """What is missing of a file's tensors does not change the plan, but must be known."""
    there = sum((first.parent / name).stat().st_size for name in part_names(first.name))
    if there >= header.n_bytes:
        return ()
    missing = show_size(header.n_bytes - there)
    return (f"{first.name} is cut short: {missing} of its weights are missing; fetch it again",)


def _from_hub(reference: str, progress: Callable[[str], None]) -> PlanSource:
    from slotgate.backends.hub import parse_reference

    repository, wanted = parse_reference(reference)
    progress(f"reading the header of {repository} on Hugging Face")
    # The library takes long to import.
    from slotgate.backends.hub_header import read_hub_header

    found = read_hub_header(repository, wanted)
    if found.kept is not None:
        return source_of_file(found.kept)
    model = model_of_file(
        found.header, name=short_name(PurePosixPath(found.file)), source=found.file
    )
    return PlanSource(
        model=model,
        # With a repository, llama-server takes its vision projector too, if it has one.
        arguments=("-hf", repository, "-hff", found.file, "--no-mmproj"),
        notes=(f"read {show_size(found.read_bytes)} of {found.file}; it was not downloaded",),
    )


def _from_package(spec: str, progress: Callable[[str], None]) -> PlanSource:
    import asyncio

    from slotgate.backends.models import resolve_model

    return source_of_file(asyncio.run(resolve_model(spec, progress=progress)).path)


def _from_catalog(spec: str, weights_bytes: int | None) -> PlanSource:
    entry = _entry(spec)
    model = model_of_keys(entry.meta, name=entry.name, weights_bytes=weights_bytes)
    return PlanSource(model=model, arguments=("-m", model.source))


def _entry(spec: str) -> CatalogEntry:
    from slotgate.capacity.catalog import find

    try:
        return find(spec)
    except ConfigError as error:
        hub = f" (a Hugging Face repository is written hf:{spec})" if spec.count("/") == 1 else ""
        raise ModelError(f"{spec}: no such file{hub}, and {error}") from error
