"""Why a llama.cpp did not start, from what it printed; the lines are llama.cpp's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from slotgate.backends.failures import explain
from slotgate.backends.options import EngineOptions

OPTIONS = EngineOptions(model=Path("/m.gguf"), alias="m", parallel=4, ctx_size=8192, port=8081)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "E gguf_init_from_file: failed to open GGUF file '/m.gguf' (No such file or directory)",
            "/m.gguf does not exist",
        ),
        (
            "E gguf_init_from_file: failed to open GGUF file '/m.gguf' (Permission denied)",
            "may not be read",
        ),
        (
            "E gguf_init_from_reader: invalid magic characters: 'impo', expected 'GGUF'",
            "/m.gguf is not a GGUF model",
        ),
        (
            "E llama_model_load: error loading model: tensor 'blk.0.attn_k.weight' data is not "
            "within the file bounds, model is corrupted or incomplete",
            "cut short or damaged; fetch it again",
        ),
        (
            "E llama_model_load: error loading model: error loading model architecture: unknown "
            "model architecture: 'brandnew'",
            "does not know the architecture brandnew",
        ),
        (
            "E ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 9",
            "not enough memory; take fewer slots or a shorter context (--parallel, --ctx-size",
        ),
        ("terminate called after throwing an instance of 'std::bad_alloc'", "not enough memory"),
        (
            "E srv start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8081",
            "already in use; choose another port than 8081",
        ),
        ("error: invalid argument: --bogus", "does not know the argument --bogus"),
        (
            'error while handling argument "--ctx-size": stoi',
            "refuses the argument --ctx-size: stoi",
        ),
        ("E llama_init_from_model: n_seq_max must be <= 256", "takes at most 256"),
        (
            "/x/llama-server: error while loading shared libraries: libcudart.so.12: cannot open",
            "lacks the shared library libcudart.so.12",
        ),
        ("engine: xllamacpp cannot be loaded: no AVX {here}", "(no AVX (here))"),
    ],
)
def test_a_known_complaint_becomes_a_sentence_with_a_remedy(line: str, said: str) -> None:
    words = explain(["first", line, "cleaning up before exit..."], 1, OPTIONS)
    assert said in words.splitlines()[0]
    assert words.splitlines()[-1] == "  | cleaning up before exit..."


@pytest.mark.parametrize(
    ("status", "said"),
    [(-9, "ran out of memory"), (-4, "GGML_NATIVE=OFF"), (-11, "crashed"), (7, "status 7")],
)
def test_without_a_complaint_the_way_it_ended_is_explained(status: int, said: str) -> None:
    assert said in explain([], status, OPTIONS)


def test_only_the_last_lines_are_shown() -> None:
    words = explain([f"line {n}" for n in range(100)], 1, OPTIONS)
    assert words.count("  | ") == 8
    assert "line 99" in words
    assert "line 91" not in words
