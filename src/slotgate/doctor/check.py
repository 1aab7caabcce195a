"""One thing to look for: what it is, how it is known, and the rule.

@check("no-key", asks="...?", by="`GET /props` ...", severities=(Severity.ERROR, Severity.OK))
def no_key(seen: Evidence) -> Iterator[Finding]: ...
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from slotgate.doctor.evidence import Evidence
    from slotgate.doctor.finding import Finding, Severity

    Judge = Callable[[Evidence], Iterable[Finding]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """`id` is for programs and does not change.

    `asks` and `by` are sentences of the documentation: what is looked for, and what tells it.
    `severities` are all that its findings can have.  `ends` is whether a finding means that the
    server could not be examined.  `of_models` is whether it is judged of each model of a router
    too, and not of the router alone.
    """

    id: str
    asks: str
    by: str
    severities: tuple[Severity, ...]
    judge: Judge
    ends: bool = False
    of_models: bool = True


def check(
    id: str,
    *,
    asks: str,
    by: str,
    severities: tuple[Severity, ...],
    ends: bool = False,
    of_models: bool = True,
) -> Callable[[Judge], Check]:
    """Make a check of the rule that stands below it."""

    def made(judge: Judge) -> Check:
        return Check(
            id=id,
            asks=asks,
            by=by,
            severities=severities,
            judge=judge,
            ends=ends,
            of_models=of_models,
        )

    return made
