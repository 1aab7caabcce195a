"""`slotgate config` and `slotgate keys`."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from slotgate.cli import config, keys
from slotgate.config import docs, load_settings

BACKENDS = "backends: [{name: left, url: 'http://127.0.0.1:8081'}]\n"


@pytest.fixture
def runner() -> CliRunner:
    return CliRunner()


def test_check_says_that_a_good_file_is_good(runner: CliRunner, tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(BACKENDS + "tenants: [{name: a, key_env: K}]\n")
    result = runner.invoke(config.app, ["check", str(file)], env={"K": "k" * 32})
    assert result.exit_code == 0
    assert result.stdout == f"{file}: good (1 backend, 1 tenant)\n"


def test_check_lists_the_faults_of_a_bad_file_and_fails(runner: CliRunner, tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(BACKENDS + "listn: 1\nprobe_interval: 1s\n")
    result = runner.invoke(config.app, ["check", str(file)])
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        f"{file}:3: probe_interval: must be at least 1.2s",
        f"{file}:2: listn: unknown key; did you mean listen?",
    ]


def test_check_warns_of_what_is_unwise(runner: CliRunner, tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(BACKENDS + "listen: 0.0.0.0:80\ninsecure: true\n")
    result = runner.invoke(config.app, ["check", str(file)])
    assert result.exit_code == 0
    assert result.stderr.startswith("warning: listen: anybody")


def test_show_prints_what_is_in_force_and_hides_keys(runner: CliRunner, tmp_path: Path) -> None:
    digest = hashlib.sha256(b"k").hexdigest()
    file = tmp_path / "a.yaml"
    file.write_text(BACKENDS + f"tenants: [{{name: a, class: batch, key_sha256: {digest}}}]\n")
    result = runner.invoke(config.app, ["show", str(file)], env={"SLOTGATE_PROBE_INTERVAL": "2s"})
    assert result.exit_code == 0
    assert digest not in result.stdout
    shown = yaml.safe_load(result.stdout)
    assert shown["probe_interval"] == "2s"
    assert shown["queue"] == {"max_waiting": 512, "max_waiting_bytes": "256MiB"}
    tenant = {"name": "a", "key_sha256": "(hidden)", "class": "batch"}
    assert shown["tenants"] == [tenant | {"weight": 1.0, "wait_comments": "allow"}]
    assert shown["backends"][0]["timeouts"]["connect"] == "5s"


def test_what_show_prints_is_a_configuration_again(runner: CliRunner, tmp_path: Path) -> None:
    file, again = tmp_path / "a.yaml", tmp_path / "b.yaml"
    file.write_text(BACKENDS + "- {model: default, llama_server: x, args: [--jinja]}\n")
    file.write_text(
        "backends: [{name: l, url: 'http://a:1'}, {model: m, llama_server: x, args: [--jinja]}]"
    )
    again.write_text(runner.invoke(config.app, ["show", str(file)]).stdout)
    assert load_settings(again) == load_settings(file)


def test_schema_prints_the_schema(runner: CliRunner) -> None:
    assert runner.invoke(config.app, ["schema"]).stdout == docs.schema()


def test_a_new_key_comes_with_the_line_that_admits_it(runner: CliRunner, tmp_path: Path) -> None:
    key, line = runner.invoke(keys.app, ["new"]).stdout.splitlines()
    file = tmp_path / "a.yaml"
    file.write_text(BACKENDS + f"tenants:\n  - name: a\n    {line}\n")
    (tenant,) = load_settings(file).tenants
    assert tenant.key_digest == hashlib.sha256(key.encode()).digest()


def test_no_two_keys_are_alike(runner: CliRunner) -> None:
    first, second = (runner.invoke(keys.app, ["new"]).stdout.split()[0] for _ in range(2))
    assert first != second
    assert len(first) == len("sg_") + 43  # 256 bits in base64
