"""Which cards the environment lets a program see: CUDA_VISIBLE_DEVICES and its relatives.

- Unset means all of them.  Entries are numbers, or the beginning of a UUID that fits only one.
- The first entry that names nothing, or the same again, ends the list: what comes after it is not
  seen.  CUDA's programming guide says so, and ROCm's runtime does the same.
- CUDA and ROCR take an empty list for "none"; HIP takes it for "not set" and then looks at CUDA's.
- ROCR's list comes first, and HIP's counts among those that it left.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

T = TypeVar("T")
ROCR, HIP, CUDA = "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"
_NUMBER = re.compile(r"[0-9]{1,9}")


def choose(wanted: str, uuids: Sequence[str], *, numbered: int) -> list[int]:
    """Return the positions that the list names; numbers count among the first `numbered`."""
    chosen: list[int] = []
    for entry in wanted.split(","):
        position = _position(entry.strip().casefold(), uuids, numbered)
        if position is None or position in chosen:
            break
        chosen.append(position)
    return chosen


def _position(entry: str, uuids: Sequence[str], numbered: int) -> int | None:
    if _NUMBER.fullmatch(entry):
        return int(entry) if int(entry) < numbered else None
    fits = [at for at, uuid in enumerate(uuids) if entry and uuid.casefold().startswith(entry)]
    return fits[0] if len(fits) == 1 else None


def seen_by_rocm(items: Sequence[T], uuids: Sequence[str], environ: Mapping[str, str]) -> list[T]:
    """Return what HIP shows a program, `items` being all, in the order of ROCm's runtime."""
    left = list(range(len(items)))
    for wanted in (environ.get(ROCR), environ.get(HIP) or environ.get(CUDA) or None):
        if wanted is not None:
            named = choose(wanted, [uuids[at] for at in left], numbered=len(left))
            left = [left[position] for position in named]
    return [items[at] for at in left]


def hidden(
    seen: Sequence[object], there: Sequence[object], environ: Mapping[str, str], *names: str
) -> tuple[str, ...]:
    """Return a note if there are cards, but the environment's lists leave none to see."""
    lists = [f"{name}={environ[name]}" for name in names or (CUDA,) if name in environ]
    if seen or not there or not lists:
        return ()
    return (f"every card is hidden by {' and '.join(lists)}",)
