"""The report of `slotgate doctor`, for people: the worst first, then what is fine, in short."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from slotgate.doctor.evidence import Make
from slotgate.doctor.finding import PAGE, Severity
from slotgate.doctor.judge import ExitStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from slotgate.cli.terminal import Terminal
    from slotgate.doctor.evidence import Evidence
    from slotgate.doctor.finding import Finding
    from slotgate.doctor.judge import Examined

_TITLES = {
    Severity.ERROR: ("error", "red"),
    Severity.WARNING: ("warning", "yellow"),
    Severity.NOTE: ("note", "bold"),
}


def print_report(examined: Iterable[Examined], terminal: Terminal) -> None:
    """Print every server's findings, a blank line between servers."""
    for number, each in enumerate(examined):
        if number:
            terminal.write()
        _print_one(each, terminal)


def _print_one(examined: Examined, terminal: Terminal) -> None:
    terminal.write(terminal.styled(examined.evidence.name, "bold"))
    terminal.wrap(_server(examined.evidence))
    for finding in examined.findings:
        if finding.severity is not Severity.OK:
            _print_finding(finding, terminal)
    well = [finding.found for finding in examined.findings if finding.severity is Severity.OK]
    if well:
        terminal.title("fine")
        terminal.items(well)
    terminal.write()
    terminal.wrap(_sum(examined))


def _print_finding(finding: Finding, terminal: Terminal) -> None:
    word, colour = _TITLES[finding.severity]
    terminal.write()
    terminal.wrap(f"{terminal.styled(f'{word}:', colour)} {finding.found}", "", "  ")
    terminal.wrap(f"how it is known: {finding.known_by}", "  ", "    ")
    if finding.leads_to:
        terminal.wrap(f"what it leads to: {finding.leads_to}", "  ", "    ")
    for at, way in enumerate(finding.mend):
        terminal.wrap(f"{'mend it' if at == 0 else 'or'}: {way}", "  ", "    ")
    terminal.write(f"  more: {finding.see}")


def _server(seen: Evidence) -> str:
    if seen.make is Make.UNKNOWN:
        return "what it is, is not known"
    return ", ".join(_parts(seen))


def _parts(seen: Evidence) -> Iterator[str]:
    yield seen.make.value
    if seen.build is not None:
        yield f"build {seen.build}"
    if seen.size is not None:
        slots, context = seen.size
        yield f"{slots} slot{'' if slots == 1 else 's'} of {context:,} tokens"
    if len(seen.models) == 1:
        # Without an alias it is a path, of which the end tells most.
        yield f"model {PurePath(seen.models[0].id).name}"
    elif seen.models:
        yield f"{len(seen.models)} models"


def _sum(examined: Examined) -> str:
    if examined.status is ExitStatus.NOT_EXAMINED:
        return "It could not be examined."
    counts = [
        _count(sum(each.severity is severity for each in examined.findings), word)
        for severity, (word, _) in _TITLES.items()
    ]
    return f"{', '.join(counts)}. {PAGE} has every check."


def _count(number: int, word: str) -> str:
    return f"{number or 'no'} {word}{'' if number == 1 else 's'}"
