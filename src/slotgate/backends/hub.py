"""Models from Hugging Face repositories: which of a repository's files is meant, and fetching it.

Run as a program (`python -m slotgate.backends.hub REPO [WANTED]`) it fetches; the gateway does
that in a child process, so that Ctrl-C ends a download at once.  Files are kept in Hugging Face's
own cache, shared with other programs.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from slotgate.backends.helper import run_lines
from slotgate.backends.model_files import QUANTISATION, SPLIT, find_model_file, part_names
from slotgate.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

# The first that a repository has is taken if the user names none: good quality for its size first.
PREFERRED = (
    *("Q4_K_M", "Q4_K_S", "Q4_K_XL", "Q4_0", "Q4_1", "IQ4_XS", "IQ4_NL", "MXFP4", "MXFP4_MOE"),
    *("Q5_K_M", "Q5_K_S", "Q6_K", "Q8_0", "Q3_K_M", "Q3_K_S", "Q2_K", "BF16", "F16", "F32"),
)
_REPOSITORY = re.compile(r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$", re.ASCII)
# Files that sit beside a model and are not one: vision projectors, calibration data, draft heads.
_NOT_A_MODEL = re.compile(r"(?:^|[-_.])(?:mmproj|imatrix|mtp)(?:[-_.]|$)", re.IGNORECASE)
_RESULT = "slotgate-result "
_FAILURE = "slotgate-failure "


def parse_reference(reference: str) -> tuple[str, str | None]:
    """Split `org/repo[:wanted]`; wanted is a quantisation or a file name."""
    repository, _, wanted = reference.partition(":")
    if not _REPOSITORY.match(repository):
        raise ModelError(
            f"hf:{reference}: not a repository; write hf:ORG/REPO or hf:ORG/REPO:QUANTISATION"
        )
    return repository, wanted or None


def choose_files(names: Iterable[str], wanted: str | None, *, repository: str) -> tuple[str, ...]:
    """The file that is meant, with all its parts in order.

    Raises ModelError if nothing fits, several fit equally well, or parts are missing.
    """
    everything = set(names)
    firsts = sorted({_first_part(name) for name in everything if _is_model(name)})
    if not firsts:
        raise ModelError(f"hf:{repository}: has no .gguf file; look for a repository with -GGUF")
    first = _choose(firsts, wanted, repository)
    parent = PurePosixPath(first).parent
    parts = tuple(str(parent / part) for part in part_names(PurePosixPath(first).name))
    if missing := [part for part in parts if part not in everything]:
        raise ModelError(f"hf:{repository}: the part {missing[0]} is missing from the repository")
    return parts


def _is_model(name: str) -> bool:
    path = PurePosixPath(name)
    return path.suffix.lower() == ".gguf" and not _NOT_A_MODEL.search(path.stem)


def _first_part(name: str) -> str:
    path = PurePosixPath(name)
    return str(path.parent / part_names(path.name)[0])


def _choose(firsts: Sequence[str], wanted: str | None, repository: str) -> str:
    if wanted is None:
        for quantisation in PREFERRED:
            if fitting := _with_quantisation(firsts, quantisation):
                return _only(fitting, repository)
        return _only(firsts, repository)
    if wanted.lower().endswith(".gguf"):
        fitting = [
            n for n in firsts if wanted.lower() in (n.lower(), PurePosixPath(n).name.lower())
        ]
    else:
        fitting = _with_quantisation(firsts, wanted)
    if not fitting:
        raise ModelError(f"hf:{repository}: has no {wanted}; it has {_offer(firsts)}")
    return _only(fitting, repository)


def _with_quantisation(firsts: Iterable[str], wanted: str) -> list[str]:
    found = [name for name in firsts if wanted.lower() in quantisations(name)]
    # `UD-Q4_K_M` is also a Q4_K_M; the plain one is preferred where both exist.
    plain = [name for name in found if f"ud-{wanted.lower()}" not in quantisations(name)]
    return plain or found


def quantisations(name: str) -> set[str]:
    """What a file may be called by, in lower case: `model-UD-Q4_K_M.gguf` -> ud-q4_k_m, q4_k_m."""
    path = PurePosixPath(name)
    split = SPLIT.match(path.name)
    stem = split["stem"] if split else path.stem
    tokens = re.findall(
        rf"(?:^|[-.]|_(?=I?Q\d))({QUANTISATION.pattern})(?=$|[-.])", stem, re.IGNORECASE
    )
    lowered = {token.lower() for token in tokens}
    return lowered | {token.removeprefix("ud-") for token in lowered}


def _only(fitting: Sequence[str], repository: str) -> str:
    if len(fitting) > 1:
        raise ModelError(
            f"hf:{repository}: several files fit: {', '.join(fitting[:5])}; "
            f"name one: hf:{repository}:{PurePosixPath(fitting[0]).name}"
        )
    return fitting[0]


def _offer(firsts: Sequence[str]) -> str:
    known = sorted({q.upper() for name in firsts for q in quantisations(name)})
    return ", ".join(known[:20] or firsts[:5])


async def fetch_from_hub(reference: str, *, progress: Callable[[str], None]) -> Path:
    """Fetch `org/repo[:wanted]`; return the (first) file.  ModelError if it cannot be had."""
    repository, wanted = parse_reference(reference)
    progress(f"looking for {repository} on Hugging Face")
    command = [
        sys.executable,
        "-m",
        "slotgate.backends.hub",
        repository,
        *([wanted] if wanted else []),
    ]
    status, lines = await run_lines(command, progress)
    for line in lines:
        if line.startswith(_RESULT):
            return find_model_file(Path(line.removeprefix(_RESULT)))
        if line.startswith(_FAILURE):
            raise ModelError(line.removeprefix(_FAILURE))
    raise ModelError(f"hf:{reference}: the download ended with status {status}: {lines[-1:]}")
