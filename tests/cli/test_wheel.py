"""What is installed from a wheel works without the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

# What the package reads at run time besides its modules.
DATA = {"slotgate/capacity/catalog.json"}
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out)]
    subprocess.run([*build, str(ROOT)], check=True, capture_output=True)
    [made] = out.glob("*.whl")
    return made


def test_the_wheel_has_every_module_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    source = ROOT / "src"
    modules = {str(path.relative_to(source)) for path in source.rglob("*.py")}
    assert modules | DATA <= names
    assert "slotgate/py.typed" in names
    strangers = [
        name
        for name in names - modules - DATA
        if not name.startswith("slotgate-") and "py.typed" not in name
    ]
    assert strangers == []


def test_the_command_runs_from_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "site"
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), str(wheel)]
    subprocess.run([sys.executable, *install], check=True, capture_output=True)
    env = {**os.environ, "PYTHONPATH": str(target)}
    code = "import slotgate, sys; sys.stdout.write(slotgate.__file__)"
    found = subprocess.run(
        [sys.executable, "-c", code],
        env=env,
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    assert found.stdout.startswith(str(target))
    shown = subprocess.run(
        [str(target / "bin" / "slotgate"), "--version"],
        env=env,
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    assert shown.stdout.startswith("slotgate 0.")
