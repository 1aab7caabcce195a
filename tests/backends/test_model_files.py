"""What a model file must look like, and what it is called."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import pytest

from slotgate.backends.model_files import find_model_file, short_name
from slotgate.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2-135m-instruct"),
        ("Qwen3-8B-GGUF-q4_k_m.gguf", "qwen3-8b"),
        ("DeepSeek-R1-UD-IQ1_S-00001-of-00003.gguf", "deepseek-r1"),
        ("gpt-oss-20b-MXFP4.gguf", "gpt-oss-20b"),
        ("Qwen2.5-7B.gguf", "qwen2.5-7b"),
        ("llama-3-8b-bf16.gguf", "llama-3-8b"),
        ("Q4_K_M.gguf", "q4_k_m"),
        ("x" * 100 + ".gguf", "x" * 64),
        ("._.gguf", "model"),
    ],
)
def test_a_model_is_called_by_its_stem_without_quantisation(file: str, name: str) -> None:
    assert short_name(PurePosixPath(file)) == name


def test_a_split_model_is_loaded_from_its_first_part(
    tmp_path: Path, make_gguf: Callable[..., bytes]
) -> None:
    for name in ("m-00001-of-00002.gguf", "m-00002-of-00002.gguf"):
        (tmp_path / name).write_bytes(make_gguf())
    found = find_model_file(tmp_path / "m-00002-of-00002.gguf")
    assert found.name == "m-00001-of-00002.gguf"


def test_a_missing_part_is_named(tmp_path: Path, make_gguf: Callable[..., bytes]) -> None:
    (tmp_path / "m-00001-of-00003.gguf").write_bytes(make_gguf())
    with pytest.raises(ModelError, match=r"2 of its 3 parts are missing.*m-00002-of-00003"):
        find_model_file(tmp_path / "m-00001-of-00003.gguf")


def test_a_model_of_no_parts_lacks_its_first(
    tmp_path: Path, make_gguf: Callable[..., bytes]
) -> None:
    (tmp_path / "m-00002-of-00000.gguf").write_bytes(make_gguf())
    with pytest.raises(ModelError, match=r"1 of its 1 parts are missing.*m-00001-of-00000"):
        find_model_file(tmp_path / "m-00002-of-00000.gguf")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "an empty file"),
        (b"<html>not found</html>", "begins with b'<html>no'"),
        (b"GGUF\3\0\0\0", "not a GGUF model"),
    ],
)
def test_a_file_that_is_no_gguf_is_refused_with_what_was_found(
    tmp_path: Path, content: bytes, said: str
) -> None:
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises(ModelError) as caught:
        find_model_file(tmp_path / "m.gguf")
    assert said in str(caught.value)


def test_a_directory_is_refused_and_its_models_are_offered(
    tmp_path: Path, make_gguf: Callable[..., bytes]
) -> None:
    (tmp_path / "real.gguf").write_bytes(make_gguf())
    with pytest.raises(ModelError, match=r"a directory; name one file .*real\.gguf"):
        find_model_file(tmp_path)
    with pytest.raises(ModelError, match=r"no such file .*real\.gguf"):
        find_model_file(tmp_path / "rael.gguf")
