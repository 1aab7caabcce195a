"""Whether a server can be seen, and what looking at it costs."""

from __future__ import annotations

from typing import Any

import pytest

from slotgate.doctor.evidence import (
    HEALTH,
    METRICS,
    MODELS,
    PROPS,
    SLOTS,
    Answer,
    Listener,
    Trouble,
)
from slotgate.doctor.finding import Severity
from slotgate.wire.llama_cpp import Props
from slotgate.wire.models import ListedModel
from tests.doctor.seen import (
    ERROR,
    GOOD,
    NOTE,
    OK,
    WARNING,
    found,
    only,
    props,
    seen,
    severity,
    stated,
)

BASE = {HEALTH: GOOD, MODELS: GOOD, PROPS: GOOD}
SILENT = Answer(trouble=Trouble.SILENT, message="no answer within 5 s")


def without_slots(answer: Answer | None, **more: Any) -> Any:
    answers = BASE if answer is None else BASE | {SLOTS: answer}
    return seen(answers=answers, looks=(), **more)


@pytest.mark.parametrize(
    ("answer", "flag", "how"),
    [
        (Answer(without_key=501), True, WARNING),
        (Answer(without_key=404), None, WARNING),
        (None, False, WARNING),
        (Answer(without_key=401, with_key=401), True, WARNING),
        (Answer(without_key=500), True, None),
        (None, None, None),
    ],
)
def test_slots_that_cannot_be_seen_are_told(
    answer: Answer | None, flag: bool | None, how: Severity | None
) -> None:
    evidence = without_slots(answer, props=props(endpoint_slots=flag))
    assert severity("slots-off", evidence) is how


def test_how_it_is_known_that_slots_are_off() -> None:
    asked = without_slots(Answer(without_key=501))
    assert only("slots-off", asked).known_by == "GET /slots: 501"
    told = without_slots(None, props=props(endpoint_slots=False))
    assert only("slots-off", told).known_by == "GET /props: endpoint_slots is false"
    assert only("slots-off", told).mend == ("--slots",)


def test_slots_that_were_seen_are_fine() -> None:
    assert severity("slots-off", seen()) is OK


@pytest.mark.parametrize(
    ("status", "flag", "how"),
    [
        (200, True, OK),
        (501, True, NOTE),
        (404, None, NOTE),
        (None, False, NOTE),
        (None, None, None),
    ],
)
def test_metrics_that_are_off_are_a_note(
    status: int | None, flag: bool | None, how: Severity | None
) -> None:
    answers = BASE if status is None else BASE | {METRICS: Answer(without_key=status)}
    evidence = seen(answers=answers, props=props(endpoint_metrics=flag))
    assert severity("metrics-off", evidence) is how


@pytest.mark.parametrize(
    ("build", "how"),
    [("b10429-x", ERROR), ("b11434-x", ERROR), ("b10428-x", WARNING), ("b0-unknown", WARNING)],
)
def test_slots_without_an_answer_are_a_wedge_where_nothing_else_explains_it(
    build: str, how: Severity
) -> None:
    evidence = without_slots(SILENT, props=props(build_info=build))
    finding = only("wedged", evidence)
    assert finding.severity is how
    assert finding.known_by == "GET /health: 200; GET /slots: no answer within 5 s"


def test_another_trouble_of_slots_is_no_wedge() -> None:
    broken = Answer(trouble=Trouble.BROKEN, message="x")
    assert severity("wedged", without_slots(broken)) is None
    assert severity("wedged", without_slots(None)) is None
    assert severity("wedged", seen()) is None


def test_a_server_that_sleeps_was_left_so() -> None:
    evidence = without_slots(None, props=props(is_sleeping=True))
    finding = only("sleeping", evidence)
    assert finding.severity is NOTE
    assert "It was left so" in finding.found


@pytest.mark.parametrize(
    ("flags", "how"),
    [
        ("--sleep-idle-seconds 60", NOTE),
        ("--sleep-idle-seconds -1", None),
        ("-np 4", None),
        (None, None),
    ],
)
def test_sleep_and_polling_are_told_to_fight_where_both_may(
    flags: str | None, how: Severity | None
) -> None:
    assert severity("sleeping", seen(stated=stated(flags))) is how


def test_a_sleeper_is_told_once_even_if_its_flags_say_so_too() -> None:
    both = without_slots(
        None, props=props(is_sleeping=True), stated=stated("--sleep-idle-seconds 60")
    )
    assert "It sleeps" in only("sleeping", both).found


@pytest.mark.parametrize(
    ("words", "how"),
    [
        (("--sleep-idle-seconds", "300"), NOTE),
        (("--sleep-idle-seconds", "-1"), None),
        (("--sleep-idle-seconds",), None),
        (("-c", "8192"), None),
    ],
)
def test_a_router_tells_which_of_its_models_try_to_sleep(
    words: tuple[str, ...], how: Severity | None
) -> None:
    models = (ListedModel(id="a", arguments=words),)
    evidence = seen(props=Props(role="router"), models=models, looks=(), sharing=None)
    assert severity("model-sleeps", evidence) is how


def test_models_that_sleep_alike_are_told_at_once_and_those_examined_not_at_all() -> None:
    def model(name: str, seconds: str, status: str = "unloaded") -> ListedModel:
        return ListedModel(id=name, arguments=("--sleep-idle-seconds", seconds), status=status)

    models = (model("a", "60"), model("b", "60", "sleeping"), model("c", "9"), model("d", "8"))
    loaded = (*models[:3], model("d", "8", "loaded"))
    evidence = seen(props=Props(role="router"), models=loaded, looks=(), sharing=None)
    both, one = found("model-sleeps", evidence)
    assert both.known_by == "GET /v1/models: a, b are started with --sleep-idle-seconds 60"
    assert one.known_by == "GET /v1/models: c is started with --sleep-idle-seconds 9"


# Connections.


@pytest.mark.parametrize(("held", "how"), [(799, None), (800, WARNING), (1100, WARNING)])
def test_connections_that_use_up_its_threads_are_told(held: int, how: Severity | None) -> None:
    listener = Listener(listens_at=("127.0.0.1",), connections=held)
    assert severity("connections", seen(listener=listener)) is how
    silent = {HEALTH: SILENT}
    assert severity("connections", seen(listener=listener, answers=silent, props=None)) is how
    assert severity("connections", seen(listener=listener, has_queue=True)) is None
    assert severity("connections", seen()) is None
