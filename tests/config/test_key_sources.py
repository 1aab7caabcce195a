"""Keys come from the environment, files or digests, and are never shown."""

from __future__ import annotations

import hashlib
import secrets
import string
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotgate.config import ServerSettings, Settings, Sources, key_digest
from slotgate.config.load import check
from slotgate.config.yaml import parse_yaml
from slotgate.errors import ConfigError

KEY = "correct-horse-battery-staple"
BACKENDS = 'backends: [{url: "http://127.0.0.1:8081"}]\n'


CASES = [
    tuple(block.split("\n=> "))
    for block in (Path(__file__).parent / "key_faults.txt").read_text().strip().split("\n\n")
]


def read(text: str, env: Mapping[str, str] | None = None, base: Path = Path()) -> Settings:
    document = parse_yaml((BACKENDS + text).encode(), name="a.yaml")
    return check(document.data, Sources(env=env or {}, base=base), document)


def fault(text: str, env: Mapping[str, str] | None = None, base: Path = Path()) -> str:
    with pytest.raises(ConfigError) as caught:
        read(text, env, base)
    return str(caught.value)


def write_key(path: Path, content: str, *, mode: int = 0o600) -> None:
    path.write_text(content)
    path.chmod(mode)


def test_a_key_is_found_in_the_environment_in_a_file_or_as_a_digest(tmp_path: Path) -> None:
    write_key(tmp_path / "b.key", f"{KEY}-b\n")
    made = read(
        f"""
tenants:
  - {{name: a, key_env: A}}
  - {{name: b, key_file: b.key}}
  - {{name: c, key_sha256: {hashlib.sha256(b"whatever").hexdigest()}}}
""",
        {"A": f" {KEY} "},
        tmp_path,
    )
    assert [tenant.key_digest for tenant in made.tenants] == [
        key_digest(KEY),
        key_digest(f"{KEY}-b"),
        hashlib.sha256(b"whatever").digest(),
    ]
    assert made.warnings == ()


def test_a_digest_of_digits_alone_is_asked_for_in_quotes() -> None:
    digits = "1" * 18
    assert "put it in quotes" in fault(f"tenants: [{{name: c, key_sha256: {digits}}}]")


def test_a_key_file_that_others_can_read_is_warned_about(tmp_path: Path) -> None:
    write_key(tmp_path / "k", KEY, mode=0o644)
    (warning,) = read("tenants: [{name: a, key_file: k}]", base=tmp_path).warnings
    assert warning.startswith("key_file: ")
    assert "chmod 600" in warning
    assert KEY not in warning


def test_the_key_of_a_backend_is_kept_whole_but_does_not_print() -> None:
    text = "backends: [{name: left, url: 'http://127.0.0.1:8081', api_key_env: LEFT}]\n"
    document = parse_yaml(text.encode(), name="a.yaml")
    made = check(document.data, Sources(env={"LEFT": KEY}), document)
    (server,) = made.backends
    assert isinstance(server, ServerSettings)
    assert server.api_key is not None
    assert server.api_key.get_secret_value() == KEY
    for shown in (repr(made), str(made), made.model_dump_json(), repr(server.api_key)):
        assert KEY not in shown


@pytest.mark.parametrize(("text", "why"), CASES)
def test_a_key_that_cannot_be_had_is_named_by_its_setting(text: str, why: str) -> None:
    env = {"A": "short", "B": "with a space inside", "C": "x" * 513, "D": KEY, "E": KEY + "2"}
    assert fault(text.removeprefix(BACKENDS), env) == why


@pytest.mark.parametrize(
    ("setting", "hint"),
    [
        ("tenants: [{name: a, key: KEY}]", "use key_env or key_file or key_sha256"),
        ("admin_key: KEY", "use admin_key_env or admin_key_file or admin_key_sha256"),
        ("tenants: [{name: a, token: KEY}]", "use key_env or key_file or key_sha256"),
    ],
)
def test_a_key_in_the_file_itself_is_refused_without_repeating_it(setting: str, hint: str) -> None:
    told = fault(setting.replace("KEY", KEY))
    assert f"a key never stands in the file; {hint}" in told
    assert KEY not in told


@given(st.sampled_from(["key_env", "key_file", "key_sha256"]), st.data())
def test_a_key_pasted_in_the_wrong_place_is_not_repeated(setting: str, data: st.DataObject) -> None:
    pasted = data.draw(
        st.text(alphabet=string.ascii_letters + string.digits + "-_", min_size=24).filter(
            lambda text: any(letter.islower() for letter in text)
        )
    )
    told = fault(f"tenants: [{{name: a, {setting}: '{pasted}'}}]")
    assert pasted not in told


def test_a_fresh_key_is_long_enough_for_us() -> None:
    made = read("admin_key_env: A", {"A": "sg_" + secrets.token_urlsafe(32)})
    assert made.admin_digest is not None
