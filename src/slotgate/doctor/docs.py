"""What the documentation says of the checks, made from their table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.doctor.checks import CHECKS
from slotgate.doctor.known_faults import KNOWN_FAULTS

if TYPE_CHECKING:
    from collections.abc import Iterator


def checks_reference() -> str:
    return "\n".join([*_checks(), *_faults()])


def _checks() -> Iterator[str]:
    yield "## Checks"
    for check in CHECKS:
        severities = ", ".join(check.severities)
        ends = "  If found, the server could not be examined." if check.ends else ""
        yield f"\n### {check.id}\n\n{check.asks}\n"
        router = "" if check.of_models else "\n- of a router, but not again of each model"
        yield f"- known by: {check.by}{ends}\n- severity: {severities}{router}"


def _faults() -> Iterator[str]:
    yield "\n## Builds with known faults\n"
    yield "| builds | fault | what it leads to | llama.cpp |\n| --- | --- | --- | --- |"
    for fault in KNOWN_FAULTS:
        yield f"| {fault.builds} | {fault.what} | {fault.leads_to} | {fault.issues} |"
