"""One thing that an examination found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

PAGE = "docs/reference/doctor.md"


class Severity(StrEnum):
    """How bad it is, worst first."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"
    OK = "ok"

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return tuple(Severity).index(self)


ERROR, WARNING, NOTE, OK = Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What was found, in sentences.

    `known_by` names the route and the figure.  `leads_to` is empty where nothing does.  Each of
    `mend` is a way out of its own: flags of llama-server, or what else to do.  `check` is the
    check's stable name, which the judge fills in.
    """

    severity: Severity
    found: str
    known_by: str
    leads_to: str = ""
    mend: tuple[str, ...] = ()
    check: str = ""

    @property
    def see(self) -> str:
        """Where the documentation has more of it."""
        return f"{PAGE}#{self.check}"


def error(found: str, known_by: str, leads_to: str = "", *mend: str) -> Finding:
    return _finding(Severity.ERROR, found, known_by, leads_to, mend)


def warning(found: str, known_by: str, leads_to: str = "", *mend: str) -> Finding:
    return _finding(Severity.WARNING, found, known_by, leads_to, mend)


def note(found: str, known_by: str, leads_to: str = "", *mend: str) -> Finding:
    return _finding(Severity.NOTE, found, known_by, leads_to, mend)


def fine(found: str, known_by: str) -> Finding:
    return Finding(severity=Severity.OK, found=found, known_by=known_by)


def _finding(
    severity: Severity, found: str, known_by: str, leads_to: str, mend: tuple[str, ...]
) -> Finding:
    return Finding(severity=severity, found=found, known_by=known_by, leads_to=leads_to, mend=mend)
