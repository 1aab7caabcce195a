"""A session's key tells two requests of one client together, and nothing else."""

from __future__ import annotations

import pytest

from slotgate.wire.session import SESSION_HEADERS, SessionKeys

KEYS = SessionKeys(b"secret")


def test_the_same_name_of_one_tenant_is_one_session() -> None:
    assert KEYS.key("me", {}, "s") == KEYS.key("me", {}, "s") is not None
    assert KEYS.key("me", {}, "s") != KEYS.key("me", {}, "t")


def test_no_tenant_has_a_key_of_another_s() -> None:
    assert KEYS.key("me", {}, "s") != KEYS.key("you", {}, "s")
    assert KEYS.key("me", {}, "you s") != KEYS.key("me you", {}, "s")


def test_a_key_shows_nothing_and_is_another_in_each_process() -> None:
    key = KEYS.key("me", {}, "jane@example.org")
    assert key is not None
    assert len(key) == 24
    assert set(key) <= set("0123456789abcdef")
    assert SessionKeys(b"other").key("me", {}, "jane@example.org") != key


@pytest.mark.parametrize("name", SESSION_HEADERS)
def test_a_header_says_it_better_than_the_body(name: bytes) -> None:
    assert KEYS.key("me", {name: b"h"}, "b") == KEYS.key("me", {name: b"h"}, None)
    assert KEYS.key("me", {name: b"h"}, "b") != KEYS.key("me", {}, "b")
    assert KEYS.key("me", {name: b""}, "b") == KEYS.key("me", {}, "b")


def test_our_own_header_says_it_best() -> None:
    both = {b"x-session-id": b"theirs", b"x-slotgate-session": b"ours"}
    assert KEYS.key("me", both, None) == KEYS.key("me", {b"x-slotgate-session": b"ours"}, None)


def test_who_says_nothing_is_of_no_session() -> None:
    assert KEYS.key("me", {b"x-request-id": b"1"}, None) is None


def test_a_name_may_be_anything_and_of_any_length() -> None:
    long = "s" * 100_000
    assert KEYS.key("me", {}, long) == KEYS.key("me", {}, long + "t") is not None
    assert KEYS.key("me", {}, "\ud800 \x00") is not None
    assert KEYS.key("me", {b"session-id": b"\xff\x00"}, None) is not None
