"""What the user may write for a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slotgate.backends.models import ResolvedModel, resolve_model
from slotgate.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.anyio


async def resolve(spec: str) -> ResolvedModel:
    lines: list[str] = []
    model = await resolve_model(spec, progress=lines.append)
    assert lines == []  # nothing to wait for, nothing to say
    return model


async def test_a_path_is_taken_as_it_is(tmp_path: Path, make_gguf: Callable[..., bytes]) -> None:
    path = tmp_path / "My-Model.Q4_K_M.gguf"
    path.write_bytes(make_gguf())
    assert await resolve(str(path)) == ResolvedModel(path, "my-model")


async def test_a_path_may_begin_with_a_tilde_or_be_relative(
    tmp_path: Path, make_gguf: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "m.gguf").write_bytes(make_gguf())
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert (await resolve("~/m.gguf")).path == tmp_path / "m.gguf"
    assert (await resolve("m.gguf")).path == tmp_path / "m.gguf"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("", "the model's name is empty"),
        ("  ", "the model's name is empty"),
        ("no-such.gguf", "no such file"),
        ("org/no-such.gguf", "no such file"),
        ("Qwen/Qwen3-8B-GGUF", "write hf:Qwen/Qwen3-8B-GGUF"),
        ("Qwen/Qwen3-8B-GGUF:Q8_0", "write hf:Qwen/Qwen3-8B-GGUF:Q8_0"),
        ("hf:nonsense", "write hf:ORG/REPO"),
        ("pypi:", "write pypi:NAME"),
    ],
)
async def test_what_cannot_be_a_model_says_what_to_write(spec: str, said: str) -> None:
    with pytest.raises(ModelError) as caught:
        await resolve(spec)
    assert said in str(caught.value)
