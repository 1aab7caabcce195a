"""`slotgate plan --json`: one document, whose keys and kinds programs can rely on."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

import pytest

from slotgate.capacity import LLAMA_CPP_BUILD, Settings, context_memory, read_header
from tests.capacity.tiny_models import write_model
from tests.cli.plans import LLAMA, document, run

if TYPE_CHECKING:
    from pathlib import Path

GiB = 1 << 30
NULL = type(None)


class Each:
    """A list of what is like this."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind


class By:
    """An object of any keys whose values are like this."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind


OUTCOME = {
    "what": str,
    "slots": int,
    "ctx_per_slot": int,
    "context_bytes": int,
    "fits": bool,
    "refusal": str,
}
SCHEMA = {
    "fits": bool,
    "slots": int,
    "ctx_per_slot": int,
    "n_ctx": int,
    "kv_unified": bool,
    "cache_type_k": str,
    "cache_type_v": str,
    "n_gpu_layers": (int, NULL),
    "context_bytes": int,
    "weights_bytes": int,
    "compute_bytes": int,
    "compute_planned_bytes": int,
    "overhead_bytes": int,
    "bytes_per_token": int,
    "bytes_per_slot": int,
    "parts": By(int),
    "compute_parts": By(int),
    "devices": Each(
        {
            "name": str,
            "kind": (str, NULL),
            "total_bytes": (int, NULL),
            "free_bytes": (int, NULL),
            "overhead_bytes": (int, NULL),
            "reserved_bytes": (int, NULL),
            "weights_bytes": int,
            "context_bytes": int,
            "compute_planned_bytes": int,
            "left_bytes": (int, NULL),
        }
    ),
    "host": {
        "cache_ram_bytes": int,
        "checkpoint_bytes": int,
        "checkpoints_per_slot": int,
        "checkpoints_bytes": int,
        "prompt_bytes": int,
        "total_bytes": int,
        "free_bytes": (int, NULL),
    },
    "command": Each(str),
    "command_line": str,
    "would_fit": Each({"slots": int, "ctx_per_slot": int}),
    "concurrency": ({"request_tokens": int, "requests": int, "most": int}, NULL),
    "table": {
        "slots": Each(int),
        "rows": Each({"cache_type": str, "ctx_per_slot": Each(int), "refusal": str}),
    },
    "warnings": Each({"code": str, "message": str}),
    "remedies": Each(
        {
            "code": str,
            "question": str,
            "verdict": str,
            "answer": str,
            "before": OUTCOME,
            "after": Each(OUTCOME),
        }
    ),
    "notes": Each(str),
    "explanation": Each(str),
    "server": NULL,
    "model": {
        "name": str,
        "source": str,
        "architecture": str,
        "verified": bool,
        "from_file": bool,
        "n_ctx_train": int,
        "layers": int,
    },
    "llama_cpp_build": int,
}


def mismatch(value: Any, kind: Any, where: str = "document") -> str:
    """Say where a value is not of its kind; "" if it is."""
    if isinstance(kind, tuple):
        found = [mismatch(value, one, where) for one in kind]
        return "" if "" in found else found[0]
    if isinstance(kind, Each):
        kind, value = dict(enumerate([kind.kind] * len(value))), dict(enumerate(value))
    if isinstance(kind, By):
        kind = dict.fromkeys(value, kind.kind)
    if not isinstance(kind, dict):
        return "" if type(value) is kind else f"{where}: {value!r} is no {kind.__name__}"
    if not isinstance(value, dict) or value.keys() != kind.keys():
        return f"{where}: {value!r} has not the keys {list(kind)}"
    found = [mismatch(value[key], kind[key], f"{where}.{key}") for key in kind]
    return next(filter(None, found), "")


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("-np", "4", "--context", "8192", "--request", "100", "--explain"),
        ("-np", "64", "--context", "8192"),
        ("-ngl", "0"),
        ("-c", "8192", "-np", "2", "-kvu", "--cache-type", "q4_0"),
    ],
)
def test_every_document_has_the_same_keys_and_kinds(arguments: tuple[str, ...]) -> None:
    result = run(*LLAMA, *arguments, "--json")
    assert mismatch(json.loads(result.stdout), SCHEMA) == ""
    assert result.stderr == ""


def test_a_wrong_kind_would_be_noticed() -> None:
    told = document(*LLAMA)
    assert "document.slots" in mismatch({**told, "slots": "4"}, SCHEMA)
    assert "document" in mismatch({**told, "more": 1}, SCHEMA)
    told["devices"][0]["left_bytes"] = 0.5
    assert "document.devices.0.left_bytes" in mismatch(told, SCHEMA)


def test_the_bytes_of_a_file_are_those_of_the_library(tmp_path: Path) -> None:
    path = write_model("gemma3", tmp_path)
    told = document(str(path), "--memory", "64MiB", "-ngl", "0", "-np", "3", "--context", "1000")
    memory = context_memory(
        read_header(path).meta, Settings(n_ctx=3 * 1024, n_seq=3, unified=False)
    )
    assert told["context_bytes"] == memory.total == sum(told["parts"].values())
    assert (told["n_ctx"], told["slots"], told["ctx_per_slot"]) == (3072, 3, 1024)
    assert told["llama_cpp_build"] == LLAMA_CPP_BUILD


def test_the_bytes_add_up_on_every_device() -> None:
    told = document(*LLAMA[:3], "--memory", "12GiB,8GiB", "-np", "4")
    assert [device["name"] for device in told["devices"]] == ["GPU 0", "GPU 1", "host"]
    for device in told["devices"][:2]:
        used = sum(device[f"{what}_bytes"] for what in ("weights", "context", "compute_planned"))
        assert device["left_bytes"] == device["free_bytes"] - device["overhead_bytes"] - used
        assert device["left_bytes"] >= 0
    for what in ("weights", "context", "compute_planned"):
        assert told[f"{what}_bytes"] == sum(device[f"{what}_bytes"] for device in told["devices"])
    assert told["devices"][2]["left_bytes"] is None


def test_the_command_is_there_as_words_and_as_a_line_for_a_shell(tmp_path: Path) -> None:
    directory = tmp_path / "with a space"
    directory.mkdir()
    told = document(str(write_model("llama", directory)), "--memory", "64MiB", "-ngl", "0")
    assert shlex.split(told["command_line"]) == told["command"]
    assert told["command"][2] == str(directory / "llama.gguf")


def test_the_arithmetic_is_in_the_document_if_it_was_asked() -> None:
    assert document(*LLAMA)["explanation"] == []
    explained = "\n".join(document(*LLAMA, "--explain")["explanation"])
    assert "2 x 32 x 8 x 128 x 2 = 131,072" in explained


def test_nothing_beside_the_document_is_written_where_a_machine_is_measured() -> None:
    result = run(*LLAMA[:3], "--json")
    assert result.exit_code in {0, 1}
    assert mismatch(json.loads(result.stdout), SCHEMA) == ""
