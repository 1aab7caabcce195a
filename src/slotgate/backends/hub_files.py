"""Which of a repository's files is meant."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from slotgate.backends.model_files import QUANTISATION, SPLIT
from slotgate.capacity.header import part_names
from slotgate.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# If the user names none, the first of these that a repository has: good for its size first.
PREFERRED = (
    *("Q4_K_M", "Q4_K_S", "Q4_K_XL", "Q4_0", "Q4_1", "IQ4_XS", "IQ4_NL", "MXFP4", "MXFP4_MOE"),
    *("Q5_K_M", "Q5_K_S", "Q6_K", "Q8_0", "Q3_K_M", "Q3_K_S", "Q2_K", "BF16", "F16", "F32"),
)
# Files that sit beside a model and are none: vision projectors, calibration data, draft heads.
_NOT_A_MODEL = re.compile(r"(?:^|[-_.])(?:mmproj|imatrix|mtp)(?:[-_.]|$)", re.IGNORECASE)
_TOKEN = re.compile(rf"(?:^|[-._])({QUANTISATION.pattern})(?=$|[-.])", re.IGNORECASE)


def choose_files(names: Iterable[str], wanted: str | None, *, repository: str) -> tuple[str, ...]:
    """The file that is meant, with all its parts in order.

    `wanted` is a quantisation in any case of letters, a file name, or None.
    Raises ModelError if nothing fits, several fit equally well, or parts are missing.
    """
    everything = set(names)
    firsts = sorted({part_names(name)[0] for name in everything if _is_model(name)})
    if not firsts:
        raise ModelError(
            f"hf:{repository}: it has no .gguf file; look for a repository of the same model "
            "whose name ends in -GGUF"
        )
    parts = part_names(_only(_fitting(firsts, wanted, repository), repository))
    if missing := [part for part in parts if part not in everything]:
        raise ModelError(f"hf:{repository}: the part {missing[0]} is missing in the repository")
    return parts


def quantisations(name: str) -> set[str]:
    """What a file may be asked for by: `model-UD-Q4_K_M.gguf` -> ud-q4_k_m, q4_k_m."""
    path = PurePosixPath(name)
    split = SPLIT.match(path.name)
    stem = split["stem"] if split else path.stem
    found = {token.lower().replace("ud_", "ud-") for token in _TOKEN.findall(stem)}
    return found | {token.removeprefix("ud-") for token in found}


def _is_model(name: str) -> bool:
    path = PurePosixPath(name)
    return path.suffix.lower() == ".gguf" and not _NOT_A_MODEL.search(path.stem)


def _fitting(firsts: Sequence[str], wanted: str | None, repository: str) -> Sequence[str]:
    if wanted is None:
        preferred = (_with_quantisation(firsts, quantisation) for quantisation in PREFERRED)
        return next(filter(None, preferred), firsts)
    if wanted.lower().endswith(".gguf"):
        asked = part_names(wanted)[0].lower()
        found = [n for n in firsts if asked in {n.lower(), PurePosixPath(n).name.lower()}]
    else:
        found = _with_quantisation(firsts, wanted)
    if not found:
        raise ModelError(f"hf:{repository}: it has no {wanted}; it has {_offer(firsts)}")
    return found


def _with_quantisation(firsts: Iterable[str], wanted: str) -> list[str]:
    asked = wanted.lower()
    found = [name for name in firsts if asked in quantisations(name)]
    # A UD-Q4_K_M is a Q4_K_M too; the plain one is meant where both exist.
    plain = [name for name in found if f"ud-{asked}" not in quantisations(name)]
    return plain or found


def _only(fitting: Sequence[str], repository: str) -> str:
    if len(fitting) == 1:
        return fitting[0]
    raise ModelError(
        f"hf:{repository}: several files fit: {', '.join(fitting[:5])}; "
        f"name one, such as hf:{repository}:{PurePosixPath(fitting[0]).name}"
    )


def _offer(firsts: Sequence[str]) -> str:
    known = sorted({q.upper() for name in firsts for q in quantisations(name)})
    return ", ".join(known[:20] or firsts[:5])
