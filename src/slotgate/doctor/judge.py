"""Evidence in, findings out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING

from slotgate.doctor.checks import CHECKS
from slotgate.doctor.finding import Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slotgate.doctor.evidence import Evidence
    from slotgate.doctor.finding import Finding

_ENDING = frozenset(check.id for check in CHECKS if check.ends)


class ExitStatus(IntEnum):
    """How `slotgate doctor` ends; 2 is a wrong command line, as everywhere."""

    GOOD = 0
    WARNINGS = 1
    ERRORS = 3
    NOT_EXAMINED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """One server: what was seen, and what was found of it, worst first."""

    evidence: Evidence
    findings: tuple[Finding, ...]

    @property
    def status(self) -> ExitStatus:
        if any(finding.check in _ENDING for finding in self.findings):
            return ExitStatus.NOT_EXAMINED
        worst = min((each.severity for each in self.findings), key=_rank, default=Severity.OK)
        return {Severity.ERROR: ExitStatus.ERRORS, Severity.WARNING: ExitStatus.WARNINGS}.get(
            worst, ExitStatus.GOOD
        )


def judge(seen: Evidence) -> Examined:
    """Apply every check; of one severity the findings stay in the table's order."""
    checks = [check for check in CHECKS if check.of_models or seen.model is None]
    found = [replace(finding, check=check.id) for check in checks for finding in check.judge(seen)]
    found.sort(key=lambda finding: finding.severity.rank)
    return Examined(evidence=seen, findings=tuple(found))


def status_of(examined: Iterable[Examined]) -> ExitStatus:
    """The worst of all."""
    return max((each.status for each in examined), default=ExitStatus.GOOD)


def _rank(severity: Severity) -> int:
    return severity.rank
