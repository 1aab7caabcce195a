"""Models from Hugging Face, with its own library against a hub on loopback."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slotgate.backends.models import resolve_model
from slotgate.errors import ModelError
from tests.backends.fake_hub import Hub, running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.anyio, pytest.mark.process]


@pytest.fixture
def hub(
    make_gguf: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Hub]:
    files = {
        "README.md": b"hello",
        "Tiny-Q4_K_M.gguf": make_gguf(size=1 << 20),
        "Tiny-Q8_0-00001-of-00002.gguf": make_gguf(size=1000),
        "Tiny-Q8_0-00002-of-00002.gguf": make_gguf(size=2000),
    }
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    with running(files) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server


class Said(list[str]):
    def __call__(self, line: str) -> None:
        self.append(line)


async def test_the_default_file_is_fetched_once_and_its_progress_is_told(hub: Hub) -> None:
    said = Said()
    model = await resolve_model("hf:org/repo", progress=said)
    assert model.name == "tiny"
    assert model.path.read_bytes() == hub.files["Tiny-Q4_K_M.gguf"]
    assert any(line.endswith("(100 %)") for line in said)
    assert await resolve_model("hf:org/repo", progress=Said()) == model
    assert hub.fetched == ["Tiny-Q4_K_M.gguf"]


async def test_a_split_model_comes_with_all_its_parts(hub: Hub) -> None:
    model = await resolve_model("hf:org/repo:q8_0", progress=Said())
    assert model.path.name == "Tiny-Q8_0-00001-of-00002.gguf"
    assert sorted(hub.fetched) == [
        "Tiny-Q8_0-00001-of-00002.gguf",
        "Tiny-Q8_0-00002-of-00002.gguf",
    ]


async def test_what_was_fetched_before_is_taken_when_the_hub_is_away(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = await resolve_model("hf:org/repo:Q8_0", progress=Said())
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert await resolve_model("hf:org/repo:Q8_0", progress=Said()) == named
    said = Said()
    # Nothing named: the hub might have had a better one, so the user is told.
    assert await resolve_model("hf:org/repo", progress=said) == named
    assert any("cannot be reached; taking Tiny-Q8_0" in line for line in said)


async def test_with_no_connection_and_nothing_kept_the_error_says_what_to_do(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelError, match="cannot be reached") as caught:
        await resolve_model("hf:org/repo", progress=Said())
    assert "give the path of a .gguf file" in str(caught.value)


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (404, "RepoNotFound", "no such repository"),
        (401, "RepoNotFound", "no such repository"),
        (403, "GatedRepo", "accept a licence"),
        (400, "", "Hugging Face answered"),
    ],
)
async def test_a_refusal_of_the_hub_is_put_into_words(
    hub: Hub, status: int, code: str, said: str
) -> None:
    hub.refusal = (status, code)
    with pytest.raises(ModelError, match=rf"hf:org/repo: .*{said}"):
        await resolve_model("hf:org/repo", progress=Said())


async def test_a_file_that_is_no_model_is_refused(hub: Hub) -> None:
    hub.files["Tiny-Q4_K_M.gguf"] = b"version https://git-lfs.github.com/spec/v1\n"
    with pytest.raises(ModelError, match="not a GGUF model"):
        await resolve_model("hf:org/repo", progress=Said())


async def test_a_quantisation_the_repository_lacks_is_an_error_that_lists_what_it_has(
    hub: Hub,
) -> None:
    with pytest.raises(ModelError, match="it has no Q6_K; it has Q4_K_M, Q8_0"):
        await resolve_model("hf:org/repo:Q6_K", progress=Said())
