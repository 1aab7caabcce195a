"""What differs between two configurations, and what of it can change while the gateway serves."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from slotgate.config import Settings, load_settings
from slotgate.config.changes import NameChanges, adopt, compare
from slotgate.config.describe import walk
from slotgate.errors import ConfigError

LEFT = {"name": "left", "url": "http://127.0.0.1:8081"}
RIGHT = {"name": "right", "url": "http://127.0.0.1:8082"}
KEY, OTHER_KEY = "a-key-0123456789abc", "another-key-0123456789"


def sha256(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def settings(env: dict[str, str] | None = None, **changes: Any) -> Settings:
    overrides = {key.replace("__", "."): value for key, value in changes.items()}
    return load_settings(None, overrides={"backends": [LEFT], **overrides}, env=env or {})


def test_the_same_twice_is_no_change() -> None:
    changes = compare(settings(), settings())
    assert not changes
    assert changes.needs_restart == ()


def test_backends_and_tenants_are_told_apart_by_their_names() -> None:
    a, b = {"name": "a", "key_sha256": sha256(KEY)}, {"name": "b", "key_sha256": sha256(OTHER_KEY)}
    changes = compare(
        settings(backends=[LEFT, RIGHT], tenants=[a]),
        settings(backends=[{**RIGHT, "slots": 2}, {**LEFT, "name": "new"}], tenants=[b, a]),
    )
    assert changes.backends == NameChanges(added=("new",), changed=("right",), removed=("left",))
    assert changes.tenants == NameChanges(added=("b",))
    assert changes


def test_another_key_behind_the_same_words_is_a_change() -> None:
    tenants = [{"name": "a", "key_env": "A_KEY"}]
    backends = [{**LEFT, "api_key_env": "LEFT_KEY"}]
    names: dict[str, Any] = {"tenants": tenants, "backends": backends, "admin_key_env": "ADMIN"}
    env = {"A_KEY": KEY, "LEFT_KEY": KEY, "ADMIN": OTHER_KEY}
    before = settings(env, **names)
    assert not compare(before, settings(env, **names))
    changed: dict[str, str] = {"A_KEY": KEY + "1", "LEFT_KEY": KEY + "2", "ADMIN": OTHER_KEY + "3"}
    changes = compare(before, settings(changed, **names))
    assert changes.tenants.changed == ("a",)
    assert changes.backends.changed == ("left",)
    assert changes.settings == ("admin_key",)


def test_no_key_and_no_digest_is_in_what_is_told() -> None:
    changes = compare(settings(), settings(admin_key_sha256=sha256(KEY)))
    assert changes.settings == ("admin_key",)
    assert sha256(KEY) not in repr(changes)


VALUES: dict[str, Any] = {
    "listen": "127.0.0.1:1",
    "insecure": True,
    "probe_interval": "2s",
    "log.level": "debug",
    "log.format": "json",
    "log.access": True,
    "limits.idle_timeout": "1s",
}


@pytest.mark.parametrize("key", VALUES)
def test_what_only_a_restart_changes_is_kept(key: str) -> None:
    old, new = settings(), settings(**{key: VALUES[key]})
    changes = compare(old, new)
    assert (changes.settings, changes.needs_restart) == ((), (key,))
    assert not changes
    assert adopt(old, new) == old


def test_everything_else_is_adopted() -> None:
    old = settings()
    new = settings(limits__max_connections=5, drain_timeout="1s", scheduling__order="edf")
    assert adopt(old, new) == new
    assert compare(old, new).settings == (
        "scheduling.order",
        "limits.max_connections",
        "drain_timeout",
    )


def test_no_setting_that_needs_a_restart_was_renamed() -> None:
    names = {".".join(path) for path, _ in walk(Settings)}
    assert names >= set(VALUES)


def test_an_address_that_others_reach_keeps_its_keys_until_it_is_left() -> None:
    tenants = [{"name": "a", "key_sha256": sha256(KEY)}]
    public = settings(listen="0.0.0.0:80", tenants=tenants)
    with pytest.raises(ConfigError, match=r"0\.0\.0\.0:80 until a restart"):
        adopt(public, settings())
    assert adopt(public, settings(tenants=tenants)).listen == "0.0.0.0:80"
    open_to_all = settings(listen="0.0.0.0:80", insecure=True)
    assert adopt(open_to_all, settings()).insecure


def test_what_is_unwise_in_the_new_settings_is_still_told() -> None:
    open_to_all = settings(listen="0.0.0.0:80", insecure=True)
    assert adopt(settings(), open_to_all).warnings == open_to_all.warnings != ()
