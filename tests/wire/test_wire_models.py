"""What servers of several makes say of their models is understood."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotgate.errors import BrokenAnswerError
from slotgate.wire.models import ListedModel, listing, parse_models, public_name, with_model


def listed(*models: Any) -> bytes:
    return json.dumps({"object": "list", "data": list(models)}).encode()


def test_a_llama_server_tells_training_and_size() -> None:
    meta = {"n_ctx_train": 8192, "size": 96576768, "n_ctx": 512}
    (model,) = parse_models(listed({"id": "small", "meta": meta}))
    assert model == ListedModel(id="small", ctx_train=8192, size_bytes=96576768)


def test_a_router_tells_the_state_of_each() -> None:
    status = {"value": "loaded", "args": ["llama-server", "-c", 8192]}
    failed = {"value": "unloaded", "failed": True, "exit_code": 1}
    one, other = parse_models(listed({"id": "a", "status": status}, {"id": "b", "status": failed}))
    assert one == ListedModel(id="a", status="loaded", arguments=("llama-server", "-c", "8192"))
    assert other == ListedModel(id="b", status="unloaded", has_failed=True)


@pytest.mark.parametrize("size", [None, 0, -1, True, "large", 1.5])
def test_a_size_that_makes_no_sense_is_none(size: Any) -> None:
    (model,) = parse_models(listed({"id": "a", "meta": {"size": size, "n_ctx_train": size}}))
    assert (model.size_bytes, model.ctx_train) == (None, None)


def test_other_makes_tell_names() -> None:
    assert parse_models(listed({"id": "gpt"}, {"name": "no id"}, 3)) == (ListedModel(id="gpt"),)
    odd = {"id": "a", "meta": None, "status": "ok"}
    assert parse_models(listed(odd)) == (ListedModel(id="a"),)
    assert parse_models(listed({"id": "a", "status": {"value": 3, "args": "x"}}))[0].status is None


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b'{"data":{}}', b"[" * 100_000])
def test_what_is_no_list_of_models_is_a_broken_answer(body: bytes) -> None:
    with pytest.raises(BrokenAnswerError, match="/v1/models"):
        parse_models(body)


@given(st.binary(max_size=60))
def test_nonsense_is_a_broken_answer_or_a_list(body: bytes) -> None:
    with suppress(BrokenAnswerError):
        assert isinstance(parse_models(body), tuple)


def test_a_model_answers_to_its_id_and_its_aliases() -> None:
    (model,) = parse_models(listed({"id": "/m/a.gguf", "aliases": ["a", "/m/a.gguf", 3, ""]}))
    assert model.names == ("/m/a.gguf", "a")
    assert parse_models(listed({"id": "a", "aliases": "b"}))[0].names == ("a",)


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ("/models/qwen3-8b-q4.gguf", "qwen3-8b-q4"),
        ("C:\\models\\qwen3.gguf", "qwen3"),
        ("qwen3.gguf", "qwen3"),
        ("org/qwen3", "org/qwen3"),
        ("llama3.2:3b", "llama3.2:3b"),
        (".gguf", ".gguf"),
        ("/models/.gguf", "/models/.gguf"),
    ],
)
def test_a_file_is_called_by_its_name_alone(told: str, name: str) -> None:
    assert public_name(told) == name


def test_one_list_names_the_models_of_several_servers() -> None:
    models = parse_models(listed({"id": "/m/a.gguf", "aliases": ["a"], "created": 7}, {"id": "b"}))
    body = listing(zip(("a", "fast"), models, strict=True))
    first, second = json.loads(body)["data"]
    assert (first["id"], first["aliases"], first["created"]) == ("a", ["/m/a.gguf"], 7)
    assert (second["id"], second["aliases"], second["object"]) == ("fast", ["b"], "model")
    assert [model.id for model in parse_models(body)] == ["a", "fast"]


@pytest.mark.parametrize(
    ("words", "slots"),
    [
        (["-c", "512", "-np", "3"], 3),
        (["--parallel", "2"], 2),
        (["-np"], None),
        (["-np", "x"], None),
        (["-np", "0"], None),
        ([], None),
    ],
)
def test_a_router_tells_how_many_slots_a_model_is_started_with(
    words: list[str], slots: int | None
) -> None:
    (model,) = parse_models(listed({"id": "a", "status": {"value": "unloaded", "args": words}}))
    assert model.slots == slots


def test_a_body_keeps_a_model_name_that_is_known_byte_by_byte() -> None:
    body = b'{"stream": true,  "model" : "quick", "messages":[]}'
    assert with_model(body, "alpha", ("alpha", "quick")) is body


@pytest.mark.parametrize(
    ("body", "written"),
    [
        (b'{"model":"fast","n":1.50}', b'{"model":"alpha","n":1.50}'),
        (b'{"prompt":"x"}', b'{"prompt":"x","model":"alpha"}'),
        (b'{"model":null}', b'{"model":"alpha"}'),
        (b'{"model":7}', b'{"model":"alpha"}'),
    ],
)
def test_any_other_model_name_is_written_anew_and_nothing_else(body: bytes, written: bytes) -> None:
    assert with_model(body, "alpha", ("alpha", "quick")) == written


@pytest.mark.parametrize("body", [b"", b"[1]", b"--frontier\r\nmodel", b"{"])
def test_a_body_that_is_no_object_stays_as_it_is(body: bytes) -> None:
    assert with_model(body, "alpha", ("alpha",)) is body
