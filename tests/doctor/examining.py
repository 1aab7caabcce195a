"""One server examined, with less patience than a user has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slotgate.doctor.examine import Examination, examine_all

if TYPE_CHECKING:
    from slotgate.doctor.finding import Finding
    from slotgate.doctor.judge import Examined


async def examine(url: str, **how: Any) -> Examined:
    given: dict[str, Any] = {"timeout": 2.0, "watch_seconds": 2.5}
    (examined,) = await examine_all([url], Examination(**(given | how)))
    return examined


def by_check(examined: Examined) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    for finding in examined.findings:
        found.setdefault(finding.check, []).append(finding)
    return found


def only(examined: Examined, check: str) -> Finding:
    (finding,) = by_check(examined)[check]
    return finding


def severities(examined: Examined) -> dict[str, str]:
    """The worst severity of each check."""
    return {
        check: str(min(findings, key=lambda each: each.severity.rank).severity)
        for check, findings in by_check(examined).items()
    }
