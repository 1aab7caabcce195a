"""What a model's header says, read from whole files."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pytest
from typing_extensions import override

from slotgate.capacity.header import Skipped, read_header
from slotgate.errors import HeaderError
from tests.capacity import gguf_writer as gguf
from tests.capacity.gguf_writer import TensorSpec, Typed, encode_header, write_gguf
from tests.capacity.tiny_models import META, NAMES, TENSORS, write_model

if TYPE_CHECKING:
    from pathlib import Path

    from slotgate.capacity.header import Header

SMALL = {"general.architecture": "llama", "llama.context_length": 8192, "llama.block_count": 30}


class Watched(io.BytesIO):
    """A file that counts what is asked of it."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.reads: list[int] = []

    @override
    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(size)
        self.reads.append(len(found))
        return found

    @override
    def seek(self, offset: int, whence: int = 0, /) -> int:
        raise AssertionError(f"seek({offset}, {whence})")


def read_bytes(content: bytes) -> Header:
    return read_header("m.gguf", opener=lambda _name, _mode: io.BytesIO(content))


@pytest.mark.parametrize("name", NAMES)
def test_a_written_model_reads_back_as_its_recipe(name: str, tmp_path: Path) -> None:
    path = write_model(name, tmp_path)
    header = read_header(path)
    assert {key: header.meta[key] for key in META[name]} == META[name]
    assert [(one.name, one.shape, one.type, one.n_bytes) for one in header.tensors] == [
        (*spec, spec.n_bytes) for spec in TENSORS[name]
    ]
    assert header.path == str(path)
    assert header.n_bytes == path.stat().st_size


def test_every_type_of_value_reads_back() -> None:
    values: dict[str, tuple[int, Any]] = {
        "u8": (gguf.U8, 255),
        "i8": (gguf.I8, -128),
        "u16": (gguf.U16, 65535),
        "i16": (gguf.I16, -32768),
        "u32": (gguf.U32, 2**32 - 1),
        "i32": (gguf.I32, -(2**31)),
        "f32": (gguf.F32, 0.5),
        "bool": (gguf.BOOL, True),
        "string": (gguf.STRING, "grüße"),
        "u64": (gguf.U64, 2**64 - 1),
        "i64": (gguf.I64, -(2**63)),
        "f64": (gguf.F64, 0.1),
        "array": (gguf.U16, (1, 2, 3)),
        "flags": (gguf.BOOL, (True, False)),
        "none": (gguf.F32, ()),
    }
    meta = read_bytes(encode_header({key: Typed(*value) for key, value in values.items()})).meta
    assert meta == {key: value for key, (_, value) in values.items()}
    assert meta["bool"] is True


def test_a_vocabulary_is_counted_and_left_in_the_file() -> None:
    content = encode_header({"tokens": ["a", "", "ccc"], "after": 7, "no tokens": Typed(8, [])})
    meta = read_bytes(content).meta
    assert meta == {"tokens": Skipped(3), "after": 7, "no tokens": Skipped(0)}
    assert len(meta["tokens"]) == 3  # type: ignore[arg-type]


def test_long_arrays_and_long_texts_are_left_in_the_file() -> None:
    content = encode_header({"scores": [1] * 5000, "text": "x" * (1 << 21), "after": 7})
    assert read_bytes(content).meta == {
        "scores": Skipped(5000),
        "text": Skipped(1 << 21),
        "after": 7,
    }


def test_strings_longer_than_a_block_are_stepped_over() -> None:
    tokens = ["x" * (9 << 20), "y", "z" * (5 << 20)]
    content = encode_header({"tokens": tokens, "after": "told"})
    assert read_bytes(content).meta == {"tokens": Skipped(3), "after": "told"}


def test_a_text_that_is_no_utf8_is_shown_with_marks() -> None:
    content = encode_header({"name": "a?b"}).replace(b"a?b", b"a\xffb")
    assert read_bytes(content).meta["name"] == "a\ufffdb"


@pytest.mark.parametrize("version", [2, 3])
def test_both_versions_in_use_are_read(version: int) -> None:
    header = read_bytes(encode_header(SMALL, version=version))
    assert (header.version, dict(header.meta)) == (version, SMALL)


def test_the_alignment_decides_where_tensors_lie(tmp_path: Path) -> None:
    specs = [TensorSpec("a", (3,)), TensorSpec("b", (32, 2), "q8_0"), TensorSpec("c", (5, 1, 2))]
    path = write_gguf(tmp_path / "m.gguf", SMALL, specs, alignment=128)
    header = read_header(path)
    assert header.alignment == 128
    begin = header.tensors[0].offset
    assert [one.offset - begin for one in header.tensors] == [0, 128, 256]
    assert [one.n_bytes for one in header.tensors] == [12, 68, 40]
    assert begin % 128 == 0
    assert header.n_bytes == path.stat().st_size


def test_a_header_cannot_be_changed() -> None:
    header = read_bytes(encode_header(SMALL))
    with pytest.raises(TypeError):
        header.meta["llama.block_count"] = 1  # type: ignore[index]


def test_a_far_file_is_read_forward_in_blocks_and_only_as_far_as_its_header() -> None:
    meta = {**SMALL, "tokens": ["token"] * 500_000, "scores": [1.0] * 500_000}
    header = encode_header(meta, [TensorSpec("w", (1 << 20,), "f32")])
    block = 4 << 20
    file = Watched(header + bytes(10 * block))
    assert read_header("far.gguf", opener=lambda _name, _mode: file).tensors[0].name == "w"
    assert file.reads == [block] * (-(-len(header) // block))
    assert file.closed


def test_the_opener_is_given_the_name_and_asked_for_bytes() -> None:
    asked: list[tuple[str, str]] = []

    def opener(name: str, mode: str) -> io.BytesIO:
        asked.append((name, mode))
        return io.BytesIO(encode_header(SMALL))

    assert read_header("org/repo/m.gguf", opener=opener).meta == SMALL
    assert asked == [("org/repo/m.gguf", "rb")]


def test_the_real_model_says_what_it_was_trained_for(small_model: Path) -> None:
    header = read_header(small_model)
    assert header.meta["llama.context_length"] == 8192
    assert header.meta["general.architecture"] == "llama"
    assert len(header.meta["tokenizer.ggml.tokens"]) == 49152  # type: ignore[arg-type]
    assert header.n_bytes == small_model.stat().st_size


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        HeaderError, match=r"absent\.gguf: cannot be opened: No such file"
    ) as caught:
        read_header(tmp_path / "absent.gguf")
    assert isinstance(caught.value.__cause__, FileNotFoundError)
    with pytest.raises(HeaderError, match="cannot be opened: embedded null byte"):
        read_header("a\0b.gguf")
