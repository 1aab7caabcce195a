"""A request's model name finds its pool, whoever gave the name."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from slotgate.runtime.names import UNNAMED, PoolNames, resolve


@dataclass(frozen=True)
class Backend:
    model: str
    given: tuple[str, ...] = ()
    told: tuple[str, ...] = ()


def test_a_single_model_answers_to_any_name() -> None:
    backends = [Backend("qwen"), Backend("qwen")]
    for name in ("gpt-4", "qwen", None):
        assert resolve(name, backends) == "qwen"


def test_of_several_models_only_their_names_will_do() -> None:
    backends = [
        Backend("qwen", given=("fast",)),
        Backend(UNNAMED, told=("/m/llama.gguf", "big")),
        Backend("phi"),
    ]
    assert resolve("fast", backends) == "qwen"
    for name in ("/m/llama.gguf", "llama", "big", UNNAMED):
        assert resolve(name, backends) == UNNAMED
    assert resolve("phi", backends) == "phi"
    assert resolve("gpt-4", backends) is None
    assert resolve(None, backends) is None
    assert resolve("phi", []) is None


def test_what_the_operator_says_goes_before_what_backends_tell() -> None:
    backends = [Backend("qwen", told=("fast",)), Backend("llama", given=("fast",))]
    assert resolve("fast", backends) == "llama"


def test_the_first_model_without_an_alias_has_the_pool_without_a_name() -> None:
    names = PoolNames()
    assert names.pool_of("", ()) == UNNAMED
    assert names.pool_of("alias", ("/a/qwen.gguf",)) == "alias"
    assert names.pool_of("", ("/a/qwen.gguf", "q")) == UNNAMED
    assert names.pool_of("", ("/elsewhere/qwen.gguf",)) == UNNAMED
    assert names.pool_of("", ("llama",)) == "llama"
    # It stays so, whoever comes and goes: its requests wait under that name.
    assert names.pool_of("", ("qwen",)) == UNNAMED


@pytest.mark.parametrize("told", [("",), ("x" * 1000,)])
def test_odd_names_are_names(told: tuple[str, ...]) -> None:
    assert PoolNames().pool_of("", told) == UNNAMED
