"""One thing to look for: what it is, how it is known, and the rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from slotgate.doctor.evidence import Evidence
    from slotgate.doctor.finding import Finding, Severity


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
    judge: Callable[[Evidence], Iterable[Finding]]
    ends: bool = False
    of_models: bool = True
