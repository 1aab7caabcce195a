"""What servers of every age say of themselves is understood; nonsense is a broken answer."""

from __future__ import annotations

import json
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotgate.errors import BrokenAnswerError
from slotgate.wire.llama_cpp import (
    HealthState,
    parse_health,
    parse_props,
    parse_slots,
    prompt_work,
    requests_deferred,
    requests_processing,
)

# Recorded; `params` shortened.
SLOTS_NOW = b"""[{"id":0,"n_ctx":512,"speculative":false,"is_processing":false},
{"id":1,"n_ctx":512,"speculative":false,"is_processing":true,"id_task":7,"n_prompt_tokens":16,
"n_prompt_tokens_processed":1,"n_prompt_tokens_cache":0,
"params":{"temperature":0.800000011920929,"top_k":40},
"next_token":[{"has_next_token":true,"has_new_line":false,"n_remain":45,"n_decoded":15}]}]"""
SLOTS_MIDDLE = b"""[{"id":0,"id_task":-1,"n_ctx":1024,"speculative":false,"is_processing":false,
"non_causal":false,"params":{"n_predict":-1},"prompt":"a secret",
"next_token":{"has_next_token":true,"has_new_line":false,"n_remain":-1,"n_decoded":3,
"stopping_word":""}}]"""
SLOTS_OLD = b"""[{"id":0,"task_id":4,"n_ctx":2048,"n_predict":-1,"state":1,"prompt":"a secret",
"next_token":{"has_next_token":true,"n_remain":-1,"n_decoded":9,"stopped_eos":false}},
{"id":1,"task_id":-1,"n_ctx":2048,"state":0,"next_token":{"n_decoded":0}}]"""
PROPS_NOW = json.dumps(
    {
        "default_generation_settings": {"params": {"n_predict": -1}, "n_ctx": 512},
        "total_slots": 2,
        "model_alias": "small",
        "model_path": "small.gguf",
        "modalities": {"vision": False},
        "endpoint_slots": True,
        "endpoint_props": False,
        "endpoint_metrics": False,
        "build_info": "b11434-abc",
        "is_sleeping": False,
    }
).encode()
ROUTER = b"""{"role":"router","max_instances":1,"models_autoload":true,
"default_generation_settings":{"params":null,"n_ctx":0}}"""
JUNK = [b"", b"{", b"[" * 100_000, b"\xff", b"nonsense", b'"text"', b"3", b"null", b"[1]", b"NaN"]


def test_slots_of_today() -> None:
    idle, busy = parse_slots(SLOTS_NOW)
    assert (idle.id, idle.n_ctx, idle.is_processing) == (0, 512, False)
    assert (idle.id_task, idle.n_decoded, idle.n_prompt_tokens) == (None, None, None)
    assert (busy.id, busy.is_processing, busy.id_task) == (1, True, 7)
    assert (busy.n_decoded, busy.n_prompt_tokens) == (15, 16)


def test_slots_before_next_token_was_a_list() -> None:
    (slot,) = parse_slots(SLOTS_MIDDLE)
    assert (slot.id, slot.n_ctx, slot.is_processing, slot.id_task) == (0, 1024, False, -1)
    assert (slot.n_decoded, slot.n_prompt_tokens) == (3, None)


def test_slots_whose_state_is_a_number() -> None:
    busy, idle = parse_slots(SLOTS_OLD)
    assert (busy.is_processing, busy.id_task, busy.n_decoded) == (True, 4, 9)
    assert (idle.is_processing, idle.id_task, idle.n_decoded) == (False, -1, 0)


@pytest.mark.parametrize("body", [SLOTS_MIDDLE, SLOTS_OLD])
def test_no_text_of_users_is_kept(body: bytes) -> None:
    body = body.replace(b'"prompt"', b'"generated":"another secret","prompt"')
    for slot in parse_slots(body):
        assert "secret" not in repr(slot)
        assert b"secret" not in msgspec.json.encode(slot.raw)
        assert not {"prompt", "generated"} & set(slot.raw)


@pytest.mark.parametrize(
    ("text", "has_some"),
    [(b'"a secret"', True), (b'""', False), (b"null", False), (b"[1,2]", True)],
)
def test_whether_users_text_was_shown_is_kept(text: bytes, *, has_some: bool) -> None:
    for name in (b"prompt", b"generated"):
        body = b'[{"id":0,"is_processing":false,"%b":%b}]' % (name, text)
        assert parse_slots(body)[0].has_user_text is has_some
    assert not any(slot.has_user_text for slot in parse_slots(SLOTS_NOW))


def test_how_far_a_prompt_is_read_is_told_by_newer_builds() -> None:
    assert [slot.n_prompt_processed for slot in parse_slots(SLOTS_NOW)] == [None, 1]
    assert parse_slots(SLOTS_OLD)[0].n_prompt_processed is None


@pytest.mark.parametrize(
    ("info", "build"),
    [("b11434-abc", 11434), ("11434", 11434), ("b9460", 9460), ("b0-unknown", None), ("", None)],
)
def test_a_build_has_a_number_or_none(info: str, build: int | None) -> None:
    assert parse_props(json.dumps({"build_info": info}).encode()).build == build
    assert parse_props(b"{}").build is None


def test_what_is_open_to_clients_is_told() -> None:
    told = parse_props(
        b'{"endpoint_props":true,"cors_proxy_enabled":true,"chat_template":"{{ x }}"}'
    )
    assert (told.endpoint_props, told.cors_proxy, told.chat_template) == (True, True, "{{ x }}")
    mute = parse_props(b"{}")
    assert (mute.endpoint_props, mute.cors_proxy, mute.chat_template) == (None, None, None)


def test_what_waits_inside_is_counted() -> None:
    text = b"# HELP x\nllamacpp:requests_processing 2\nllamacpp:requests_deferred 3\n"
    assert (requests_processing(text), requests_deferred(text)) == (2, 3)
    assert requests_deferred(b"llamacpp:requests_deferred nan\n") is None
    assert requests_deferred(b"") is None


def test_the_work_on_prompts_is_read() -> None:
    tokens, seconds = (
        b"llamacpp:prompt_tokens_total 2048\n",
        b"llamacpp:prompt_seconds_total 20.5\n",
    )
    assert prompt_work(tokens + seconds) == (2048.0, 20.5)
    assert prompt_work(tokens) is None
    assert prompt_work(tokens + b"llamacpp:prompt_seconds_total inf\n") is None
    assert prompt_work(tokens + b"llamacpp:prompt_seconds_total x\n") is None


def test_only_slotgate_tells_a_queue() -> None:
    assert parse_health(200, b'{"status":"ok","queue":3}').queue == 3
    assert parse_health(200, b'{"status":"ok"}').queue is None


def test_a_slot_is_shown_again_in_its_own_bytes() -> None:
    shown = msgspec.json.encode([slot.raw for slot in parse_slots(SLOTS_NOW)])
    assert shown.replace(b"\n", b"") == SLOTS_NOW.replace(b"\n", b"")
    assert b"0.800000011920929" in shown


@pytest.mark.parametrize("next_token", ["[]", "[3]", "3", "null", "{}", '{"n_decoded":"x"}'])
def test_a_strange_next_token_counts_nothing(next_token: str) -> None:
    body = f'[{{"id":0,"is_processing":true,"next_token":{next_token},"n_prompt_tokens":"x"}}]'
    (slot,) = parse_slots(body.encode())
    assert (slot.n_decoded, slot.n_prompt_tokens) == (None, None)


def test_a_server_may_have_no_slots() -> None:
    assert parse_slots(b"[]") == ()


@pytest.mark.parametrize(
    "body",
    [
        *JUNK,
        b'{"error":{"code":501}}',
        b"[{}]",
        b'[{"id":"0","is_processing":true}]',
        b'[{"id":true,"is_processing":true}]',
        b'[{"id":0}]',
        b'[{"id":0,"is_processing":null}]',
        b'[{"id":0,"is_processing":1,"state":"busy"}]',
        b'[{"id":0,"is_processing":true,"next_token":' + b"[" * 50_000 + b"]" * 50_000 + b"}]",
        b'[{"id":"\xff","is_processing":true}]',
    ],
)
def test_what_is_no_list_of_slots_is_a_broken_answer(body: bytes) -> None:
    with pytest.raises(BrokenAnswerError, match="/slots"):
        parse_slots(body)


def test_props_of_today() -> None:
    props = parse_props(PROPS_NOW)
    assert (props.slots, props.ctx_per_slot, props.model_alias) == (2, 512, "small")
    assert (props.build_info, props.model_path) == ("b11434-abc", "small.gguf")
    assert (props.endpoint_slots, props.endpoint_metrics, props.is_sleeping) == (True, False, False)
    assert props.role is None


def test_props_of_a_router_have_no_slots() -> None:
    props = parse_props(ROUTER)
    assert (props.role, props.slots, props.ctx_per_slot) == ("router", None, None)
    assert (props.room, props.loads) == (1, True)


@pytest.mark.parametrize(("told", "room"), [(0, 0), (4, 4), (-1, 0)])
def test_a_router_tells_how_many_models_it_holds_and_whether_it_loads(told: int, room: int) -> None:
    body = b'{"role":"router","max_instances":%d,"models_autoload":false}' % told
    props = parse_props(body)
    assert (props.room, props.loads) == (room, False)


def test_props_of_an_old_build_tell_little() -> None:
    props = parse_props(b'{"total_slots":1,"default_generation_settings":{"n_ctx":2048}}')
    assert (props.slots, props.ctx_per_slot) == (1, 2048)
    assert props.endpoint_slots is None


def test_a_sleeping_server_says_so() -> None:
    assert parse_props(b'{"is_sleeping":true}').is_sleeping


def test_fields_of_a_wrong_type_are_as_if_missing() -> None:
    props = parse_props(
        b'{"total_slots":"2","model_alias":3,"endpoint_slots":"yes","is_sleeping":1,'
        b'"default_generation_settings":[1],"role":{}}'
    )
    assert props == parse_props(b"{}")


@pytest.mark.parametrize("body", JUNK)
def test_what_are_no_props_is_a_broken_answer(body: bytes) -> None:
    with pytest.raises(BrokenAnswerError, match="/props"):
        parse_props(body)


@pytest.mark.parametrize(
    ("status", "body", "state", "counts"),
    [
        (200, b'{"status":"ok"}', HealthState.OK, (None, None)),
        (
            200,
            b'{"status":"ok","slots_idle":3,"slots_processing":1}',
            HealthState.OK,
            (3, 1),
        ),
        (
            503,
            b'{"status":"no slot available","slots_idle":0,"slots_processing":4}',
            HealthState.NO_SLOT,
            (0, 4),
        ),
        (
            200,
            b'{"status":"no slot available","slots_idle":0,"slots_processing":4}',
            HealthState.NO_SLOT,
            (0, 4),
        ),
        (503, b'{"status":"loading model"}', HealthState.LOADING, (None, None)),
        (
            503,
            b'{"error":{"message":"Loading model","type":"unavailable_error","code":503}}',
            HealthState.LOADING,
            (None, None),
        ),
        (
            503,
            b'{"error":{"message":"no slot available","type":"unavailable_error","code":503}}',
            HealthState.NO_SLOT,
            (None, None),
        ),
        (500, b'{"status":"error"}', HealthState.ERROR, (None, None)),
        (200, b'{"status":"error"}', HealthState.ERROR, (None, None)),
        (401, b'{"error":{"message":"Invalid API Key"}}', HealthState.ERROR, (None, None)),
        (404, b"<html>", HealthState.ERROR, (None, None)),
        (503, b"", HealthState.ERROR, (None, None)),
        (200, b"", HealthState.OK, (None, None)),
        (200, b"OK", HealthState.OK, (None, None)),
        (200, b"[" * 100_000, HealthState.OK, (None, None)),
    ],
)
def test_health_of_every_age(
    status: int, body: bytes, state: HealthState, counts: tuple[int | None, int | None]
) -> None:
    health = parse_health(status, body)
    assert health.state is state
    assert (health.slots_idle, health.slots_processing) == counts


def test_health_keeps_what_was_said() -> None:
    body = b'{"error":{"message":"Invalid API Key"}}'
    assert parse_health(401, body).message == "Invalid API Key"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "is_processing", "next_token", "n_ctx", "total_slots", "state"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@given(JSON)
def test_any_json_is_read_or_refused_clearly(value: object) -> None:
    body = json.dumps(value).encode()
    parse_health(200, body)
    for parse in (parse_props, parse_slots):
        with suppress(BrokenAnswerError):
            parse(body)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused_clearly(body: bytes) -> None:
    parse_health(503, body)
    for parse in (parse_props, parse_slots):
        with suppress(BrokenAnswerError):
            parse(body)
