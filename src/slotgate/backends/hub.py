"""Models from Hugging Face repositories: `hf:ORG/REPO`, `hf:ORG/REPO:WANTED`.

`hub_fetch` does it, in a child process, so that Ctrl-C ends a download at once.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from slotgate.backends.helper import PYTHON, run_lines
from slotgate.backends.model_files import find_model_file
from slotgate.backends.progress import Tenths
from slotgate.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable

# How the child process marks the lines that are for us.
RESULT = "slotgate-result: "
FAILURE = "slotgate-failure: "
NOTE = "slotgate-note: "

_REPOSITORY = re.compile(r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$", re.ASCII)


def parse_reference(reference: str) -> tuple[str, str | None]:
    """Split `org/repo[:wanted]`; wanted is a quantisation or a file name."""
    repository, _, wanted = reference.partition(":")
    if not _REPOSITORY.match(repository) or wanted.startswith("-"):
        raise ModelError(
            f"hf:{reference}: not a repository; write hf:ORG/REPO or hf:ORG/REPO:QUANTISATION"
        )
    return repository, wanted or None


async def fetch_from_hub(reference: str, *, progress: Callable[[str], None]) -> Path:
    """Fetch what is meant, all its parts; return the (first) file.

    Raises ModelError if it cannot be had.
    """
    repository, wanted = parse_reference(reference)
    progress(f"looking for {repository} on Hugging Face")
    tenths = Tenths(repository, progress)

    def on_line(line: str) -> None:
        if line.startswith(NOTE):
            progress(line.removeprefix(NOTE))
        tenths(line)

    command = [*PYTHON, "slotgate.backends.hub_fetch", repository]
    status, lines = await run_lines([*command, *([wanted] if wanted else [])], on_line)
    for line in lines:
        if line.startswith(RESULT):
            return find_model_file(Path(line.removeprefix(RESULT)))
        if line.startswith(FAILURE):
            raise ModelError(line.removeprefix(FAILURE))
    said = lines[-1] if lines else "nothing"
    raise ModelError(f"hf:{reference}: the download ended with status {status}, saying {said!r}")
