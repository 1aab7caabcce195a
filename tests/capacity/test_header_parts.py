"""A model that is cut into parts reads as one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from slotgate.capacity.header import part_names, read_header
from slotgate.errors import HeaderError
from tests.capacity.gguf_writer import U16, TensorSpec, Typed, write_gguf

if TYPE_CHECKING:
    from pathlib import Path

META = {"general.architecture": "llama", "llama.block_count": 3}
TENSORS = [TensorSpec(f"blk.{layer}.attn_norm.weight", (40 + layer,)) for layer in range(3)]


def split_keys(number: int, *, count: int = 3, tensors: int = 3) -> dict[str, Any]:
    return {
        "split.no": Typed(U16, number),
        "split.count": Typed(U16, count),
        "split.tensors.count": tensors,
    }


def part(directory: Path, number: int, of: int = 3) -> Path:
    return directory / f"m-{number:05d}-of-{of:05d}.gguf"


def write_parts(directory: Path, **changed: Any) -> list[Path]:
    """Write three parts with a tensor each; `changed` replaces keys of the first one."""
    for number in (1, 2, 3):
        meta = META if number == 1 else {}
        keys = {**meta, **split_keys(number - 1), **(changed if number == 1 else {})}
        write_gguf(part(directory, number), keys, [TENSORS[number - 1]])
    return [part(directory, number) for number in (1, 2, 3)]


@pytest.mark.parametrize("named", [0, 1, 2])
def test_any_part_names_the_whole_model(tmp_path: Path, named: int) -> None:
    paths = write_parts(tmp_path)
    header = read_header(paths[named])
    assert header.path == str(paths[0])
    assert header.meta["llama.block_count"] == 3
    assert [(one.name, one.shape, one.part) for one in header.tensors] == [
        (spec.name, spec.shape, number) for number, spec in enumerate(TENSORS, 1)
    ]
    assert header.n_bytes == sum(path.stat().st_size for path in paths)


def test_offsets_are_those_in_the_parts_own_file(tmp_path: Path) -> None:
    for number in (1, 2):
        keys = {**META, **split_keys(number - 1, count=2, tensors=2), "padding": "x" * number * 99}
        write_gguf(part(tmp_path, number, of=2), keys, [TENSORS[number - 1]], alignment=64)
    header = read_header(part(tmp_path, 1, of=2))
    for one in header.tensors:
        size = part(tmp_path, one.part, of=2).stat().st_size
        assert one.offset == size - -(-one.n_bytes // 64) * 64


@pytest.mark.parametrize("missing", [1, 2, 3])
def test_a_missing_part_is_named(tmp_path: Path, missing: int) -> None:
    write_parts(tmp_path)
    part(tmp_path, missing).unlink()
    said = rf"m-0000{missing}-of-00003\.gguf: cannot be opened: No such file"
    with pytest.raises(HeaderError, match=said) as caught:
        read_header(part(tmp_path, 2 if missing == 1 else 1))
    assert ("part 3 of 3" in str(caught.value)) == (missing == 3)


def test_a_broken_part_is_named(tmp_path: Path) -> None:
    paths = write_parts(tmp_path)
    paths[1].write_bytes(paths[1].read_bytes()[:60])
    with pytest.raises(HeaderError, match=r"part 2 of 3: .*m-00002-of-00003\.gguf: at byte"):
        read_header(paths[0])


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"split.no": 1}, r"m-00001-of-00003\.gguf: named as the first part"),
        ({"split.count": 4}, r"speaks of 4 parts, its name of 3"),
        ({"split.tensors.count": 4}, r"its parts have 3 tensors, not 4"),
        ({"split.tensors.count": "3"}, r"its parts have 3 tensors, not 3"),
    ],
)
def test_a_first_part_that_does_not_fit_is_refused(
    tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    paths = write_parts(tmp_path, **changed)
    with pytest.raises(HeaderError, match=said):
        read_header(paths[0])


def test_parts_in_the_wrong_order_are_refused(tmp_path: Path) -> None:
    paths = write_parts(tmp_path)
    second, third = paths[1].read_bytes(), paths[2].read_bytes()
    paths[1].write_bytes(third)
    paths[2].write_bytes(second)
    with pytest.raises(HeaderError, match=r"m-00002-of-00003\.gguf: named as part 2"):
        read_header(paths[0])


def test_a_tensor_in_two_parts_is_refused(tmp_path: Path) -> None:
    paths = write_parts(tmp_path)
    write_gguf(paths[2], split_keys(2), [TENSORS[0]])
    with pytest.raises(HeaderError, match="two of its parts have the same tensor"):
        read_header(paths[0])


def test_parts_that_are_named_otherwise_are_refused(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", {**META, **split_keys(0)}, TENSORS[:1])
    with pytest.raises(HeaderError, match=r"its header speaks of 3 parts, its name of 1"):
        read_header(path)


def test_parts_are_named_as_llama_cpp_names_them_or_not_found(tmp_path: Path) -> None:
    path = write_parts(tmp_path)[0]
    with pytest.raises(HeaderError, match=r"its header speaks of 3 parts, its name of 1"):
        read_header(path.rename(tmp_path / "m-00001-OF-00003.gguf"))


def test_a_whole_model_that_is_named_like_a_part_is_read(tmp_path: Path) -> None:
    """llama.cpp goes by the header too."""
    path = write_gguf(part(tmp_path, 1), META, TENSORS)
    assert len(read_header(path).tensors) == 3
    with pytest.raises(HeaderError, match="says that it is a whole model"):
        read_header(part(tmp_path, 2))


def test_a_model_of_one_part_is_read(tmp_path: Path) -> None:
    keys = {**META, **split_keys(0, count=1)}
    path = write_gguf(part(tmp_path, 1, of=1), keys, TENSORS)
    assert len(read_header(path).tensors) == 3


def test_part_zero_of_zero_is_refused(tmp_path: Path) -> None:
    write_gguf(part(tmp_path, 0, of=0), META)
    with pytest.raises(HeaderError, match=r"m-00001-of-00000\.gguf: cannot be opened"):
        read_header(part(tmp_path, 0, of=0))


def test_parts_cannot_have_more_tensors_than_one_model_may(tmp_path: Path) -> None:
    for number in (1, 2):
        specs = [TensorSpec(f"{number}.{index}", (1,)) for index in range(20_000)]
        keys = {**META, **split_keys(number - 1, count=2, tensors=40_000)}
        write_gguf(part(tmp_path, number, of=2), keys, specs)
    with pytest.raises(HeaderError, match=r"its parts have more than 32,768 tensors"):
        read_header(part(tmp_path, 1, of=2))


def test_the_parts_of_a_model_are_counted_from_any_of_them_and_stay_in_their_directory() -> None:
    parts = ("a/m-00001-of-00002.gguf", "a/m-00002-of-00002.gguf")
    assert part_names("a/m-00002-of-00002.gguf") == parts
    assert part_names("a/m.gguf") == ("a/m.gguf",)
