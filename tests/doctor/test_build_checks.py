"""What is known of a build."""

from __future__ import annotations

from typing import Any

import pytest

from slotgate.doctor.known_faults import KNOWN_FAULTS, SEEN_UNTIL, KnownFault, Presence
from slotgate.wire.llama_cpp import Props
from tests.doctor.seen import NOTE, OK, WARNING, found, only, props, seen, severity, stated


def faults_of(build: int) -> dict[str, str]:
    """The issues that a build is told of, with the severity of each."""
    findings = found("build-fault", seen(props=props(build_info=f"b{build}-x")))
    return {
        fault.issues.partition(",")[0]: str(finding.severity)
        for finding in findings
        for fault in KNOWN_FAULTS
        if fault.what in finding.found
    }


@pytest.mark.parametrize(
    ("build", "issue", "how"),
    [
        (5913, "#15008", "warning"),
        (5914, "#15008", "note"),
        (6502, "#15008", None),
        (6502, "#16467", "warning"),
        (7000, "#16467", "note"),
        (7474, "#16467", None),
        (7474, "#20684", "warning"),
        (8390, "#20684", "note"),
        (9489, "#20684", None),
        (10428, "#24866", "warning"),
        (10429, "#24866", None),
        (10428, "#27126", None),
        (10429, "#27126", "warning"),
        (10430, "#27126", "note"),
        (10662, "#27126", None),
        (9489, "#24755", None),
        (9490, "#24755", "note"),
        (11434, "#24755", "note"),
        (12000, "#13262", "note"),
        (6502, "#27148", None),
        (10429, "#27148", "note"),
        (11434, "#27148", "note"),
    ],
)
def test_a_fault_is_told_of_the_builds_that_have_it(
    build: int, issue: str, how: str | None
) -> None:
    assert faults_of(build).get(issue) == how


def test_faults_of_kept_prompts_are_not_told_where_none_are_kept() -> None:
    def told(flags: str | None) -> str:
        return repr(found("build-fault", seen(stated=stated(flags))))

    assert "#24755" in told(None)
    assert "#24755" in told("--cache-ram 100")
    assert "#24755" not in told("--cache-ram 0")
    assert "#27148" not in told("--cache-ram 0")
    assert "#13262" in told("--cache-ram 0")


def test_what_may_be_there_is_told_as_that() -> None:
    def told(build: int, issue: str) -> str:
        findings = found("build-fault", seen(props=props(build_info=f"b{build}-x")))
        return next(each.found for each in findings if issue in each.known_by)

    assert told(SEEN_UNTIL, "#24755").startswith("Build 11434 has a known fault")
    assert told(9490, "#24755").startswith("Build 9490 may have a known fault")
    assert told(SEEN_UNTIL + 1, "#24755").startswith("Build 11435 may have a known fault")


def test_builds_that_nobody_looked_at_are_told_to_be_so() -> None:
    newer = found("build-fault", seen(props=props(build_info="b12000-x")))
    assert all(f"after {SEEN_UNTIL}" in each.known_by for each in newer if each.severity is NOTE)
    older = found("build-fault", seen(props=props(build_info="b11000-x")))
    assert not any(f"after {SEEN_UNTIL}" in each.known_by for each in older)


def test_a_build_that_no_newer_one_mends_is_fine_besides() -> None:
    def is_fine(build: int) -> bool:
        findings = found("build-fault", seen(props=props(build_info=f"b{build}-x")))
        return any(each.severity is OK for each in findings)

    assert is_fine(11434)
    assert not is_fine(10000)


@pytest.mark.parametrize("fault", KNOWN_FAULTS, ids=lambda fault: fault.issues)
def test_the_bounds_of_a_fault_are_in_order(fault: KnownFault) -> None:
    assert fault.since <= fault.surely_since <= fault.surely_until
    assert fault.gone is None or fault.surely_until < fault.gone
    assert fault.presence(fault.surely_since) is Presence.CERTAIN
    assert fault.presence(fault.surely_until) is Presence.CERTAIN
    assert fault.mend


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"gone": 9}, "builds before 9"),
        ({"since": 3, "gone": 9}, "builds from 3 on, before 9"),
        ({"since": 3}, "builds from 3 on, as far as known: seen in 11434"),
        ({}, "all builds, as far as known: seen in 11434"),
    ],
)
def test_builds_are_told_in_words(fault: dict[str, Any], words: str) -> None:
    made = KnownFault(issues="", what="", leads_to="", mend=(), **fault)
    assert made.builds == words


def test_a_build_that_is_not_told_is_told() -> None:
    unknown = seen(props=props(build_info="b0-unknown"))
    assert only("build-unknown", unknown).known_by == "GET /props: build_info is 'b0-unknown'"
    assert only("build-unknown", seen(props=Props(slots=1))).known_by.endswith("is missing")
    assert severity("build-fault", unknown) is None
    assert severity("build-unknown", seen()) is None
    assert severity("build-unknown", seen(props=None)) is None
    assert WARNING not in {each.severity for each in found("build-fault", seen())}
