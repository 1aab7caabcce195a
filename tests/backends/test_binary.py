"""Whether a path is a llama-server that runs here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slotgate.backends.binary import read_version
from slotgate.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.anyio, pytest.mark.process]


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., Path]:
    def make(text: str, *, mode: int = 0o755) -> Path:
        path = tmp_path / "llama-server"
        path.write_text(text)
        path.chmod(mode)
        return path

    return make


async def test_its_version_is_read(program: Callable[..., Path]) -> None:
    path = program("#!/bin/sh\necho loading >&2\necho 'version: 6660 (72b24d96)'\n")
    assert await read_version(path) == "6660 (72b24d96)"


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        ("#!/bin/sh\necho hello\n", 0o755, "not a llama-server: `--version` said 'hello'"),
        ("#!/bin/sh\nexit 3\n", 0o755, r"said 'nothing' \(status 3\)"),
        ("#!/no/such/interpreter\n", 0o755, "cannot be run: No such file"),
        ("\x7fELF garbage", 0o755, "cannot be run: Exec format error"),
        ("#!/bin/sh\n", 0o644, "not executable; run `chmod"),
    ],
)
async def test_anything_else_is_refused_with_the_reason(
    program: Callable[..., Path], text: str, mode: int, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        await read_version(program(text, mode=mode))


async def test_a_missing_file_and_a_directory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        await read_version(tmp_path / "none")
    with pytest.raises(ConfigError, match="a directory"):
        await read_version(tmp_path)
