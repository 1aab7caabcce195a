"""Fetches a model from Hugging Face; a program of its own, started by `hub`.

    python -m slotgate.backends.hub_fetch ORG/REPO [WANTED]

Files are kept in Hugging Face's own cache, shared with other programs.  What is there already and
is surely what would be chosen is taken without asking the network, so that a second start is fast
and works offline.
"""

from __future__ import annotations

import sys
from pathlib import Path

import huggingface_hub
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    IncompleteSnapshotError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
)
from tqdm import tqdm  # type: ignore[import-untyped]
from typing_extensions import override

from slotgate.backends.hub import FAILURE, NOTE, RESULT
from slotgate.backends.hub_files import PREFERRED, choose_files, quantisations
from slotgate.errors import ModelError


def main(argv: list[str]) -> int:
    repository, wanted = argv[0], (argv[1] if len(argv) > 1 else None)
    try:
        _say(RESULT + str(_fetch(repository, wanted)))
    except ModelError as error:
        _say(FAILURE + str(error))
        return 1
    return 0


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - this is how a helper answers


def _fetch(repository: str, wanted: str | None) -> Path:
    kept = find_kept(repository, wanted)
    if kept is not None and is_certain(kept, wanted):
        return kept
    try:
        names = huggingface_hub.list_repo_files(repository)
        paths = [
            _download(repository, n) for n in choose_files(names, wanted, repository=repository)
        ]
    except ModelError:
        raise
    except Exception as error:
        # The library passes on whatever its HTTP library raises, which has changed before.
        if kept is not None and not isinstance(error, HfHubHTTPError):
            _say(f"{NOTE}Hugging Face cannot be reached; taking {kept.name}, which is here")
            return kept
        raise ModelError(explain(repository, error)) from error
    return paths[0]


def find_kept(repository: str, wanted: str | None) -> Path | None:
    """What would be chosen among the files that are here already."""
    try:
        snapshot = _snapshot(repository)
        names = [path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*.gguf")]
        return snapshot / choose_files(names, wanted, repository=repository)[0]
    except (LocalEntryNotFoundError, ModelError):
        return None


def _snapshot(repository: str) -> Path:
    try:
        return Path(huggingface_hub.snapshot_download(repository, local_files_only=True))
    except IncompleteSnapshotError as error:
        # Of course it is: we fetch one file of many.
        return Path(error.snapshot_path)


def is_certain(kept: Path, wanted: str | None) -> bool:
    """Whether the whole repository could offer nothing better than this file."""
    return wanted is not None or PREFERRED[0].lower() in quantisations(kept.name)


class _Lines(tqdm):  # type: ignore[misc]
    """Progress as lines that the parent understands, in place of a bar."""

    @override
    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        if self.total:
            _say(f"Progress {int(self.n)} of {int(self.total)}")


def _download(repository: str, name: str) -> Path:
    return Path(huggingface_hub.hf_hub_download(repository, name, tqdm_class=_Lines))


def explain(repository: str, error: Exception) -> str:
    if isinstance(error, GatedRepoError):
        reason = (
            "its owner wants you to accept a licence first: do so on its page, then set HF_TOKEN"
        )
    elif isinstance(error, RepositoryNotFoundError):
        reason = "no such repository, or a private one; check the spelling, or set HF_TOKEN"
    elif isinstance(error, HfHubHTTPError):
        reason = f"Hugging Face answered: {str(error).splitlines()[0]}"
    else:
        reason = (
            f"Hugging Face cannot be reached ({str(error).splitlines()[0]}); "
            "with no connection, give the path of a .gguf file instead"
        )
    return f"hf:{repository}: {reason}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
