"""Who may use a server, and what it shows to whom."""

from __future__ import annotations

import pytest

from slotgate.doctor.evidence import HEALTH, MODELS, PROPS, SLOTS, Answer, Place
from slotgate.doctor.finding import Severity
from tests.doctor.seen import (
    ERROR,
    GOOD,
    GUARDED,
    NOTE,
    OK,
    WARNING,
    looks,
    only,
    props,
    seen,
    severity,
    slot,
)

LOCKED = {HEALTH: GOOD, MODELS: GUARDED, PROPS: GUARDED, SLOTS: GUARDED}
NONE = Answer(without_key=404)


@pytest.mark.parametrize(
    ("place", "has_key", "how"),
    [
        (Place.PUBLIC, False, ERROR),
        (Place.PUBLIC, True, ERROR),
        (Place.PRIVATE, False, WARNING),
        (Place.PRIVATE, True, WARNING),
        (Place.HERE, True, WARNING),
        (Place.HERE, False, OK),
    ],
)
def test_who_reaches_a_server_without_a_key_decides(
    place: Place, has_key: bool, how: Severity
) -> None:
    assert severity("no-key", seen(place=place, has_key=has_key)) is how


@pytest.mark.parametrize("place", Place)
def test_a_server_that_wants_a_key_is_fine_anywhere(place: Place) -> None:
    finding = only("no-key", seen(place=place, has_key=True, answers=LOCKED))
    assert finding.severity is OK
    assert finding.known_by == "GET /props without one: 401"


def test_a_given_key_that_nobody_checks_is_told_as_that() -> None:
    assert "none is checked" in only("no-key", seen(has_key=True)).found


def test_of_another_make_the_list_of_models_tells_whether_it_is_open() -> None:
    answers = {HEALTH: NONE, MODELS: GOOD, PROPS: NONE}
    open_to_all = seen(props=None, looks=(), answers=answers, place=Place.PUBLIC)
    assert only("no-key", open_to_all).known_by == "GET /v1/models without a key: 200"


def test_nothing_is_said_of_keys_where_no_route_answered() -> None:
    assert severity("no-key", seen(answers={HEALTH: GOOD})) is None


@pytest.mark.parametrize(
    ("place", "has_key", "is_encrypted", "how"),
    [
        (Place.PUBLIC, True, False, WARNING),
        (Place.PRIVATE, True, False, NOTE),
        (Place.HERE, True, False, None),
        (Place.PUBLIC, False, False, None),
        (Place.PUBLIC, True, True, None),
    ],
)
def test_a_key_on_an_open_road_is_told(
    place: Place, has_key: bool, is_encrypted: bool, how: Severity | None
) -> None:
    evidence = seen(place=place, has_key=has_key, is_encrypted=is_encrypted, answers=LOCKED)
    assert severity("key-in-the-clear", evidence) is how


def test_slots_that_are_shown_without_the_key_of_all_else_are_told() -> None:
    assert severity("slots-open", seen(has_key=True, answers=LOCKED | {SLOTS: GOOD})) is WARNING
    assert severity("slots-open", seen(has_key=True, answers=LOCKED)) is None
    assert severity("slots-open", seen()) is None
    assert severity("slots-open", seen(answers={HEALTH: GOOD})) is None
    assert severity("slots-open", seen(answers={HEALTH: GOOD, SLOTS: GOOD})) is None


@pytest.mark.parametrize(
    ("place", "answers", "how"),
    [
        (Place.PRIVATE, {SLOTS: GOOD}, ERROR),
        (Place.PRIVATE, {SLOTS: GUARDED}, WARNING),
        (Place.HERE, {SLOTS: GOOD}, WARNING),
    ],
)
def test_prompts_in_the_slots_are_worst_where_anybody_may_read_them(
    place: Place, answers: dict[str, Answer], how: Severity
) -> None:
    shown = looks((slot(0), slot(1, has_user_text=True)))
    evidence = seen(place=place, answers=LOCKED | answers, looks=shown)
    assert severity("prompts-shown", evidence) is how


def test_slots_without_text_are_fine() -> None:
    assert severity("prompts-shown", seen()) is None


@pytest.mark.parametrize(("answer", "words"), [(GOOD, "wants no key"), (GUARDED, "hold of a key")])
def test_pages_of_any_origin_are_told_and_what_they_can_do(answer: Answer, words: str) -> None:
    evidence = seen(any_origin=True, answers=LOCKED | {PROPS: answer})
    finding = only("any-origin", evidence)
    assert finding.severity is NOTE
    assert words in finding.leads_to
    assert severity("any-origin", seen()) is None


def test_an_origin_is_told_even_where_props_were_not_asked() -> None:
    assert severity("any-origin", seen(any_origin=True, answers={HEALTH: GOOD})) is NOTE


def test_a_proxy_for_pages_and_changeable_properties_are_told() -> None:
    evidence = seen(props=props(cors_proxy=True, endpoint_props=True))
    assert severity("cors-proxy", evidence) is WARNING
    assert severity("props-changeable", evidence) is NOTE
    for quiet in (seen(), seen(props=None)):
        assert severity("cors-proxy", quiet) is None
        assert severity("props-changeable", quiet) is None
