"""Findings come worst first, and the worst of all decides how the command ends."""

from __future__ import annotations

import re
from typing import Any

import pytest

from slotgate.doctor.checks import CHECKS
from slotgate.doctor.docs import checks_reference
from slotgate.doctor.evidence import HEALTH, METRICS, MODELS, PROPS, SLOTS, Answer, Trouble
from slotgate.doctor.finding import Severity
from slotgate.doctor.judge import ExitStatus, judge, status_of
from slotgate.doctor.known_faults import KNOWN_FAULTS
from slotgate.wire.llama_cpp import Props
from tests.doctor.seen import GOOD, GUARDED, looks, props, seen, slot, stated

OFF = Answer(without_key=501)
SLOTS_OFF = {HEALTH: GOOD, MODELS: GOOD, PROPS: GOOD, SLOTS: OFF}
REFUSED = Answer(trouble=Trouble.UNREACHABLE, message="connection refused")


def test_a_server_in_good_health_has_nothing_worse_than_a_note() -> None:
    examined = judge(seen())
    assert {each.severity for each in examined.findings} <= {Severity.NOTE, Severity.OK}
    assert examined.status is ExitStatus.GOOD


def test_the_worst_comes_first() -> None:
    examined = judge(seen(answers=SLOTS_OFF, looks=(), stated=stated(context=16000)))
    ranks = [each.severity.rank for each in examined.findings]
    assert ranks == sorted(ranks)
    assert examined.findings[0].check == "context-too-small"


def test_of_one_severity_they_come_in_the_order_of_the_table() -> None:
    order = [check.id for check in CHECKS]
    findings = judge(seen(answers=SLOTS_OFF, looks=())).findings
    for severity in Severity:
        places = [order.index(each.check) for each in findings if each.severity is severity]
        assert places == sorted(places)


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({}, ExitStatus.GOOD),
        ({"answers": SLOTS_OFF, "looks": ()}, ExitStatus.WARNINGS),
        ({"stated": stated(context=16000)}, ExitStatus.ERRORS),
        ({"answers": {HEALTH: REFUSED}, "health": None, "props": None}, ExitStatus.NOT_EXAMINED),
    ],
)
def test_the_exit_status_says_how_bad_it_is(more: dict[str, Any], status: ExitStatus) -> None:
    assert judge(seen(**more)).status is status


def test_of_several_servers_the_worst_decides() -> None:
    good, bad = judge(seen()), judge(seen(stated=stated(context=16000)))
    assert status_of([good, bad, good]) is ExitStatus.ERRORS
    assert status_of([good]) is ExitStatus.GOOD
    assert status_of([]) is ExitStatus.GOOD


def test_nothing_found_at_all_is_good() -> None:
    examined = judge(seen(answers={}, health=None, props=None, looks=(), models=(), sharing=None))
    assert examined.findings == ()
    assert examined.status is ExitStatus.GOOD


def test_every_finding_leads_to_its_place_in_the_documentation() -> None:
    page = checks_reference()
    for finding in judge(seen(answers=SLOTS_OFF, looks=())).findings:
        path, _, anchor = finding.see.partition("#")
        assert path == "docs/reference/doctor.md"
        assert f"\n### {anchor}\n" in page


def test_the_reference_has_every_check_and_every_known_fault() -> None:
    page = checks_reference()
    assert re.findall(r"^### (.*)$", page, re.MULTILINE) == [check.id for check in CHECKS]
    for fault in KNOWN_FAULTS:
        assert f"| {fault.builds} | {fault.what} |" in page


def test_names_of_checks_are_unique() -> None:
    assert len({check.id for check in CHECKS}) == len(CHECKS)


def test_the_best_answer_counts_for_a_route() -> None:
    assert (GOOD.status, GOOD.is_open, str(GOOD)) == (200, True, "200")
    assert (GUARDED.status, GUARDED.is_open) == (200, False)
    assert str(REFUSED) == "connection refused"
    assert seen().status(METRICS) is None


def test_slots_are_counted_as_they_are_shown_or_else_as_props_say() -> None:
    shown = looks((slot(0, n_ctx=None), slot(1, n_ctx=512), slot(2, n_ctx=256)))
    assert seen(looks=shown).size == (3, 256)
    assert seen(looks=()).size == (2, 8192)
    assert seen(looks=looks((slot(0, n_ctx=None),))).size == (1, 8192)
    assert seen(looks=(), props=props(slots=None)).size is None
    assert seen(looks=(), props=None).size is None
    assert seen(looks=(), props=Props(build_info="b9000-x")).build == 9000
    assert seen(props=None).build is None
    assert seen(models=()).trained is None
