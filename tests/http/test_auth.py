"""API keys to tenants, and the operator's key."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotgate.config import Settings
from slotgate.errors import BadRequestError
from slotgate.http.auth import Keyring, UnauthorizedError

CHAT, NIGHT, OPERATOR = "chat-key-0123456789", "night-key-0123456789", "operator-key-0123456789"


def sha256(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def keyring(**changes: Any) -> Keyring:
    tenants = [
        {"name": "chat", "key_sha256": sha256(CHAT), "class": "interactive", "max_waiting": 3},
        {"name": "night", "key_sha256": sha256(NIGHT), "class": "batch", "max_in_flight": 2},
    ]
    data = {
        "backends": [{"url": "http://127.0.0.1:1"}],
        "tenants": tenants,
        "admin_key_sha256": sha256(OPERATOR),
        **changes,
    }
    return Keyring.from_settings(Settings.model_validate(data))


def bearer(key: str) -> list[tuple[bytes, bytes]]:
    return [(b"host", b"x"), (b"authorization", b"Bearer " + key.encode())]


@pytest.mark.parametrize(
    "headers",
    [
        [(b"authorization", b"Bearer " + CHAT.encode())],
        [(b"Authorization", b"bearer   " + CHAT.encode() + b" ")],
        [(b"authorization", CHAT.encode())],
        [(b"x-api-key", CHAT.encode())],
        [(b"X-Api-Key", b" " + CHAT.encode())],
        [(b"authorization", b""), (b"x-api-key", CHAT.encode())],
        [(b"authorization", b"Bearer " + CHAT.encode()), (b"x-api-key", b"another")],
    ],
)
def test_a_key_is_taken_in_every_form_that_llama_server_takes(
    headers: list[tuple[bytes, bytes]],
) -> None:
    assert keyring().tenant_for(headers).name == "chat"


def test_a_tenant_brings_its_class_and_limits() -> None:
    night = keyring().tenant_for(bearer(NIGHT))
    assert (night.name, night.priority_class, night.max_in_flight, night.max_waiting) == (
        "night", "batch", 2, None,
    )  # fmt: skip


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"authorization", b"")],
        [(b"authorization", b"Bearer ")],
        [(b"authorization", b"Basic " + CHAT.encode())],
        [(b"api-key", CHAT.encode())],
        [(b"authorization", b"Bearer " + CHAT.encode() + b"x")],
        [(b"authorization", b"Bearer " + CHAT[:-1].encode())],
        [(b"authorization", b"Bearer " + sha256(CHAT).encode())],
        [(b"authorization", b"Bearer " + OPERATOR.encode())],
        [(b"authorization", b"Bearer " + b"x" * 100_000)],
        [(b"authorization", b"Bearer \xff\xfe")],
        [(b"authorization", b"Basic abc"), (b"x-api-key", CHAT.encode())],
    ],
)
def test_no_key_or_an_unknown_one_is_not_let_in(headers: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(UnauthorizedError, match="API key") as caught:
        keyring().tenant_for(headers)
    assert caught.value.status == 401


@given(st.lists(st.tuples(st.sampled_from([b"authorization", b"x-api-key", b"x"]), st.binary())))
def test_no_headers_are_worse_than_a_refusal(headers: list[tuple[bytes, bytes]]) -> None:
    ring = keyring()
    with pytest.raises(BadRequestError) as caught:
        ring.tenant_for(headers)
    assert caught.value.status in {400, 401}


@pytest.mark.parametrize("name", [b"authorization", b"x-api-key"])
def test_two_keys_of_one_kind_are_a_contradiction(name: bytes) -> None:
    with pytest.raises(BadRequestError, match="sent twice") as caught:
        keyring().tenant_for([(name, CHAT.encode()), (name, NIGHT.encode())])
    assert caught.value.status == 400


def test_without_tenants_everybody_is_the_default_tenant() -> None:
    ring = keyring(tenants=[], default_class="batch")
    for headers in ([], bearer("anything")):
        tenant = ring.tenant_for(headers)
        assert (tenant.name, tenant.priority_class) == ("default", "batch")


def test_the_operator_is_known_by_another_key_than_the_tenants() -> None:
    ring = keyring()
    assert ring.is_admin(bearer(OPERATOR))
    assert ring.is_admin([(b"x-api-key", OPERATOR.encode())])
    assert not ring.is_admin(bearer(CHAT))
    assert not ring.is_admin([])


@pytest.mark.parametrize(
    ("changes", "is_open"),
    [
        ({"tenants": []}, True),
        ({"tenants": [], "listen": "unix:///run/s"}, True),
        ({"tenants": [], "listen": "0.0.0.0:80", "insecure": True}, False),
        ({}, False),
    ],
)
def test_without_an_operators_key_only_a_private_gateway_without_tenants_obeys(
    changes: dict[str, Any], is_open: bool
) -> None:
    ring = keyring(admin_key_sha256=None, **changes)
    assert ring.is_admin([]) is is_open
    assert ring.is_admin(bearer(CHAT)) is is_open


def test_states_and_metrics_are_shown_to_whoever_has_a_key() -> None:
    ring = keyring()
    assert ring.may_observe(bearer(CHAT))
    assert ring.may_observe(iter(bearer(OPERATOR)))
    assert not ring.may_observe([])
    assert not ring.may_observe(bearer("wrong"))
    assert keyring(tenants=[]).may_observe([])


@pytest.mark.parametrize(
    ("method", "path", "is_public"),
    [
        ("GET", "/health", True),
        ("GET", "/v1/health", True),
        ("GET", "/ready", True),
        ("OPTIONS", "/v1/chat/completions", True),
        ("GET", "/slots", False),
        ("POST", "/v1/chat/completions", False),
        ("GET", "/health/", False),
    ],
)
def test_only_liveness_and_preflights_need_no_key(method: str, path: str, is_public: bool) -> None:
    assert Keyring.is_public(method, path) is is_public


def test_a_keyring_does_not_print_what_it_holds() -> None:
    shown = repr(keyring())
    for key in (CHAT, NIGHT, OPERATOR):
        digest = hashlib.sha256(key.encode()).digest()
        assert key not in shown
        assert repr(digest) not in shown
        assert digest.hex() not in shown
