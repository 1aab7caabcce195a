"""Whether a server can be examined, and what it is."""

from __future__ import annotations

from typing import Any

import pytest

from slotgate.doctor.evidence import HEALTH, MODELS, PROPS, Answer, Make, Trouble
from slotgate.doctor.judge import ExitStatus, judge
from slotgate.wire.llama_cpp import Health, HealthState, Props
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
)

NOTHING: dict[str, Any] = {
    "health": None,
    "props": None,
    "models": (),
    "looks": (),
    "sharing": None,
}
MISSING = Answer(without_key=404)
TROUBLES = {
    "unreachable": Trouble.UNREACHABLE,
    "tls": Trouble.TLS,
    "silent": Trouble.SILENT,
    "not-http": Trouble.BROKEN,
}


@pytest.mark.parametrize("check", TROUBLES)
def test_each_trouble_is_told_by_its_name_and_by_no_other(check: str) -> None:
    answer = Answer(trouble=TROUBLES[check], message="what happened")
    examined = judge(seen(answers={HEALTH: answer}, **NOTHING))
    (finding,) = examined.findings
    assert (finding.check, finding.severity) == (check, ERROR)
    assert "what happened" in finding.known_by
    assert examined.status is ExitStatus.NOT_EXAMINED


def test_a_server_that_loads_is_to_be_examined_later() -> None:
    health = Health(state=HealthState.LOADING, message="Loading model")
    answers = {HEALTH: Answer(without_key=503)}
    evidence = seen(**(NOTHING | {"health": health, "answers": answers}))
    assert only("loading", evidence).known_by == 'GET /health: 503, "Loading model"'
    assert judge(evidence).status is ExitStatus.NOT_EXAMINED
    assert severity("not-serving", evidence) is None


def test_a_proxy_without_its_server_is_told() -> None:
    health = Health(state=HealthState.ERROR)
    evidence = seen(**(NOTHING | {"health": health, "answers": {HEALTH: Answer(without_key=502)}}))
    assert "502" in only("not-serving", evidence).known_by
    assert judge(evidence).status is ExitStatus.NOT_EXAMINED


def test_a_make_without_health_is_not_ill() -> None:
    health = Health(state=HealthState.ERROR)
    answers = {HEALTH: MISSING, MODELS: GOOD, PROPS: MISSING}
    evidence = seen(answers=answers, health=health, props=None, looks=(), sharing=None)
    assert severity("not-serving", evidence) is None
    assert severity("other-make", evidence) is NOTE
    assert judge(evidence).status is ExitStatus.GOOD


@pytest.mark.parametrize("status", [401, 403])
def test_a_key_that_is_missing_and_one_that_is_wrong_are_told_apart(status: int) -> None:
    without = Answer(without_key=status)
    evidence = seen(**(NOTHING | {"answers": {HEALTH: GOOD, MODELS: without, PROPS: without}}))
    assert severity("key-needed", evidence) is ERROR
    assert severity("key-wrong", evidence) is None
    wrong = Answer(without_key=status, with_key=status)
    answers = {HEALTH: GOOD, MODELS: wrong, PROPS: wrong}
    evidence = seen(**(NOTHING | {"answers": answers}), has_key=True)
    assert severity("key-needed", evidence) is None
    assert severity("key-wrong", evidence) is ERROR
    assert severity("other-make", evidence) is None
    assert judge(evidence).status is ExitStatus.NOT_EXAMINED


def test_a_page_that_is_no_model_server_is_told() -> None:
    answers = {HEALTH: MISSING, MODELS: MISSING, PROPS: MISSING}
    evidence = seen(**(NOTHING | {"answers": answers}))
    assert evidence.make is Make.UNKNOWN
    finding = only("other-make", evidence)
    assert finding.severity is ERROR
    assert "--api-prefix" in " ".join(finding.mend)
    assert severity("no-key", evidence) is None


@pytest.mark.parametrize(
    "told", [{"slots": 2}, {"ctx_per_slot": 512}, {"build_info": "b1-x"}], ids=str
)
def test_a_llama_server_is_known_by_any_of_what_only_it_tells(told: dict[str, Any]) -> None:
    evidence = seen(props=Props(**told))
    assert evidence.make is Make.LLAMA_SERVER
    assert severity("other-make", evidence) is None


def test_props_that_tell_nothing_are_another_makes() -> None:
    assert seen(props=Props()).make is Make.OPENAI


def test_a_router_names_its_models_and_is_not_asked_for_their_slots() -> None:
    models = (
        ListedModel(id="a", status="loaded"),
        ListedModel(id="b", status="unloaded", has_failed=True),
    )
    evidence = seen(props=Props(role="router"), models=models, looks=(), sharing=None)
    assert evidence.make is Make.ROUTER
    assert "a (loaded), b (unloaded)" in only("router", evidence).found
    assert "The model b" in only("model-failed", evidence).found
    assert severity("slots-off", evidence) is None
    assert severity("metrics-off", evidence) is None
    assert severity("chat-template", evidence) is None


def test_a_router_without_models_is_one_too() -> None:
    evidence = seen(props=Props(role="router"), models=(), looks=(), sharing=None)
    assert only("router", evidence).found.endswith("no slots of its own.")


def test_slotgate_is_known_by_its_queue() -> None:
    evidence = seen(has_queue=True, any_origin=True)
    assert severity("gateway", evidence) is NOTE
    assert severity("slots-off", evidence) is None
    assert severity("any-origin", evidence) is None
    assert severity("gateway", seen()) is None


@pytest.mark.parametrize(("template", "how"), [("", NOTE), (None, None), ("{{ x }}", OK)])
def test_a_model_without_a_chat_template_is_told(template: str | None, how: object) -> None:
    assert severity("chat-template", seen(props=props(chat_template=template))) is how


def test_a_healthy_server_has_none_of_these() -> None:
    for check in (*TROUBLES, "loading", "not-serving", "key-needed", "key-wrong", "router"):
        assert found(check, seen()) == []
    assert WARNING not in {each.severity for each in judge(seen()).findings}
