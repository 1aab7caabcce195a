"""What changed in llama.cpp, and when, as far as a plan depends on it.

The rows stand in the order in which the changes were merged.  `build` is the first build (tag
bNNNN) that has the change, as its release notes or a report of it say; None where that could not
be established.  Such a row still lies between its neighbours, and between builds that were
released before and after its merge (`lacked_by`, `seen_in`): an older build certainly lacks it, a
newer one has it, and only those between are in doubt.

The formulas of this package are those of the builds in `COMPARED_BUILDS`.
"""

from __future__ import annotations

from dataclasses import dataclass

from slotgate.capacity.architectures import LLAMA_CPP_BUILD

# The builds whose allocations were compared with ours: read, and run as a wheel.
COMPARED_BUILDS = (LLAMA_CPP_BUILD, 11549)
# Builds whose dates are known from what was shipped with them or reported of them.
_OF_2024_10 = 3972
_OF_2025_09 = 6502
_OF_2025_12_10 = 7347
_OF_2025_12_18 = 7474
_OF_2026_03 = 8390


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change.

    `feature`: a stable name.
    `what`: what it brought.
    `build`: the first build with it, None if not established.
    `lacked_by`, `seen_in`: builds that certainly lack and have it, where `build` is None.
    `date`: year and month of the merge.
    `pull`: the number of the pull request.
    """

    feature: str
    what: str
    build: int | None
    date: str
    pull: int | None
    lacked_by: int | None = None
    seen_in: int | None = None

    @property
    def since(self) -> str:
        """When it came, in words: `in build 9460` or `about 2025-10`."""
        return f"about {self.date}" if self.build is None else f"in build {self.build}"


CHANGES = (
    Change(
        feature="window-caches",
        what="window layers keep a window instead of the whole context",
        build=None,
        date="2025-05",
        pull=13194,
        lacked_by=_OF_2024_10,
    ),
    Change(
        feature="window-cells",
        what="a window cache holds one window and one micro-batch",
        build=5554,
        date="2025-05",
        pull=13833,
    ),
    Change(
        feature="separate-slots",
        what="slots with a cache of their own, and --kv-unified for one pool",
        build=5913,
        date="2025-07",
        pull=14363,
    ),
    Change(
        feature="window-checkpoints",
        what="checkpoints of windows",
        build=None,
        date="2025-08",
        pull=15293,
        seen_in=_OF_2025_09,
    ),
    Change(
        feature="state-checkpoints",
        what="checkpoints of recurrent states",
        build=None,
        date="2025-10",
        pull=16382,
        lacked_by=_OF_2025_09,
    ),
    Change(
        feature="prompt-cache",
        what="prompts kept in host memory, --cache-ram",
        build=None,
        date="2025-10",
        pull=16391,
        lacked_by=_OF_2025_09,
    ),
    Change(
        feature="automatic-slots",
        what="four slots in one pool if --parallel is not given",
        build=None,
        date="2025-11",
        pull=16736,
        lacked_by=_OF_2025_09,
    ),
    Change(
        feature="fit",
        what="settings fitted to the device by llama.cpp itself, --fit",
        build=None,
        date="2025-12",
        pull=16653,
        lacked_by=_OF_2025_12_10,
        seen_in=_OF_2025_12_18,
    ),
    Change(
        feature="window-types",
        what="quantised window caches again, after a day on which they were f16",
        build=None,
        date="2026-04",
        pull=21332,
        lacked_by=_OF_2026_03,
    ),
    Change(
        feature="fit-print",
        what="the memory of each device printed, --fit-print",
        build=None,
        date="2026-04",
        pull=22171,
        lacked_by=_OF_2026_03,
    ),
    Change(
        feature="multi-token-prediction",
        what="speculation by the model's own extra layers, with states to roll back to",
        build=9180,
        date="2026-05",
        pull=22673,
    ),
    Change(
        feature="output-rows",
        what="scratch for the logits of the tokens that are answered, not of a whole micro-batch",
        build=9460,
        date="2026-06",
        pull=23861,
    ),
    Change(
        feature="checkpoint-cells",
        what="checkpoints without the cells that no token sees any more",
        build=9473,
        date="2026-06",
        pull=None,
    ),
    Change(
        feature="cuda-copy",
        what="the f16 copy of a quantised layer taken at the start, on CUDA",
        build=9489,
        date="2026-06",
        pull=23907,
    ),
    Change(
        feature="slot-limit",
        what="a limit for each slot of one pool, --kv-unified-per-slot",
        build=10662,
        date="2026-08",
        pull=24124,
    ),
)

_BY_FEATURE = {change.feature: change for change in CHANGES}


def change_of(feature: str) -> Change:
    """The row of a feature; KeyError if there is none."""
    return _BY_FEATURE[feature]


def features_missing(build: int) -> tuple[Change, ...]:
    """The changes that a build certainly lacks, oldest first."""
    return tuple(one for n, one in enumerate(CHANGES) if build < _first_possible(n))


def features_in_doubt(build: int) -> tuple[Change, ...]:
    """The changes that a build may have or lack: between two builds that are known."""
    return tuple(
        one for n, one in enumerate(CHANGES) if _first_possible(n) <= build < _first_certain(n)
    )


def is_newer(build: int) -> bool:
    """Whether nobody compared the formulas with so new a build."""
    return build > max(COMPARED_BUILDS)


def _first_possible(position: int) -> int:
    """No build before this one has the change: it came after those that stand before it."""
    change, earlier = CHANGES[position], CHANGES[:position]
    if change.build is not None:
        return change.build
    known = [change.lacked_by, *(one.build for one in earlier), *(one.lacked_by for one in earlier)]
    return 1 + max(build for build in known if build is not None)


def _first_certain(position: int) -> int:
    """This build and all later ones have the change."""
    change, later = CHANGES[position], CHANGES[position + 1 :]
    if change.build is not None:
        return change.build
    # Seen there, or merged before what came with that build.
    known = [change.seen_in, *(one.build for one in later), *(one.seen_in for one in later)]
    return min(build for build in known if build is not None)
