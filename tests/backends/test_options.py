"""One set of options in two languages: a command line, and the embedded engine's attributes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slotgate.backends.options import EngineOptions, command_line, engine_document
from slotgate.errors import ConfigError


def options(**changes: Any) -> EngineOptions:
    told: dict[str, Any] = {"model": Path("/m.gguf"), "alias": "m", "parallel": 4, "ctx_size": 8192}
    return EngineOptions(**{**told, "threads": 1, **changes})


def words(**changes: Any) -> str:
    return " ".join(command_line(options(**changes), host="127.0.0.1", port=8081))


def document(**changes: Any) -> dict[str, Any]:
    return engine_document(options(**changes), host="127.0.0.1", port=8081)


def test_the_command_line_is_complete_and_in_a_steady_order() -> None:
    assert words() == (
        "llama-server --model /m.gguf --alias m --host 127.0.0.1 --port 8081 --parallel 4 "
        "--ctx-size 8192 --threads 1 --threads-batch 1 --batch-size 512 --ubatch-size 512 "
        "--metrics --slots --no-ui"
    )


@pytest.mark.parametrize(
    ("changes", "argument", "attribute", "value"),
    [
        ({"kv_unified": True}, "--kv-unified", "kv_unified", True),
        ({"slots": False}, "--no-slots", "endpoint_slots", False),
        ({"batch": 128}, "--batch-size 128 --ubatch-size 128", "n_ubatch", 128),
        ({"batch": 2048}, "--batch-size 2048 --ubatch-size 512", "n_batch", 2048),
        ({"ubatch": 64}, "--ubatch-size 64", "n_ubatch", 64),
        ({"threads": 3}, "--threads 3 --threads-batch 3", "cpuparams_batch.n_threads", 3),
        ({"gpu_layers": 0}, "--n-gpu-layers 0", "n_gpu_layers", 0),
        ({"cache_ram_mib": 0}, "--cache-ram 0", "cache_ram_mib", 0),
        ({"cache_type_k": "q8_0"}, "--cache-type-k q8_0", "cache_type_k", "q8_0"),
        ({"sleep_idle_seconds": 9}, "--sleep-idle-seconds 9", "sleep_idle_seconds", 9),
        ({"slot_save_path": Path("/s")}, "--slot-save-path /s/", "slot_save_path", "/s/"),
        ({"api_prefix": "/llm"}, "--api-prefix /llm", "api_prefix", "/llm"),
        ({"embeddings": True}, "--embeddings", "embedding", True),
        ({"reranking": True}, "--reranking", "pooling_type", "rank"),
    ],
)
def test_an_option_is_told_in_both_languages(
    changes: dict[str, Any], argument: str, attribute: str, value: object
) -> None:
    assert argument in words(**changes)
    assert document(**changes)[attribute] == value


def test_what_is_left_open_is_left_to_llama_cpp() -> None:
    assert "cache" not in words()
    assert "n_gpu_layers" not in document()
    assert "--kv-unified" not in words()
    assert document()["kv_unified"] is False


@pytest.mark.parametrize(
    ("changes", "pool"),
    [
        ({}, None),  # each slot has its own
        ({"kv_unified": True}, 8192),
        ({"kv_unified": True, "ctx_size": 8000}, 8192),
        ({"kv_unified": True, "parallel": 1}, None),
        ({"kv_unified": True, "kv_unified_per_slot": 2048}, None),
        ({"kv_unified": True, "kv_unified_per_slot": 2049}, 8192),
    ],
)
def test_slots_share_a_pool_that_they_could_overflow_only_if_it_is_said(
    changes: dict[str, Any], pool: int | None
) -> None:
    assert options(**changes).kv_pool_tokens == pool


def test_metrics_are_off_only_on_request() -> None:
    assert "--metrics" not in words(metrics=False)
    assert document(metrics=False)["endpoint_metrics"] is False


def test_a_key_never_stands_on_the_command_line() -> None:
    assert "secret" not in words(api_key="secret")
    assert document(api_key="secret")["api_keys"] == ["secret"]


def test_the_binary_is_named_and_its_own_arguments_come_last() -> None:
    line = words(llama_server=Path("/opt/llama-server"), extra_args=("--flash-attn", "on"))
    assert line.startswith("/opt/llama-server --model")
    assert line.endswith("--no-ui --flash-attn on")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"parallel": 0}, "llama.cpp takes 1 to 256"),
        ({"parallel": 257}, "llama.cpp takes 1 to 256"),
        ({"ctx_size": 3}, "too few for 4 slots"),
        ({"extra_args": ("--x",)}, "name the binary with --llama-server"),
        ({"threads": 0}, "threads"),
        ({"batch": 0}, "batch"),
        ({"port": 70000}, "port"),
        ({"cache_type_v": "q9"}, "cache_type_v: 'q9'; llama.cpp has f32, .*q8_0"),
    ],
)
def test_impossible_options_are_refused_by_name(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        options(**changes)
