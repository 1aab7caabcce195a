"""Whose fault the errors of backends are, by recorded bodies."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slotgate.wire.blame import RULES, Blame, Rule, blame_of, blame_of_event, blame_reference
from slotgate.wire.routes import Shape


def error(status: int, message: str, type: str = "server_error") -> bytes:
    return json.dumps({"error": {"code": status, "message": message, "type": type}}).encode()


CASES: list[tuple[int, bytes, Blame]] = [
    (503, error(503, "Loading model", "unavailable_error"), Blame.LOADING),
    (503, b'{"status":"loading model"}', Blame.LOADING),
    (500, error(500, "Context size has been exceeded."), Blame.OVERFLOW),
    (500, error(500, "Compute error."), Blame.BACKEND),
    (500, error(500, "Invalid input batch."), Blame.BACKEND),
    (500, error(500, "decode() failed: -3"), Blame.BACKEND),
    (500, error(500, "got exception: bad_alloc"), Blame.BACKEND),
    (500, b"proxy error: Could not establish connection", Blame.BACKEND),
    (500, error(500, "model name=bad failed to load"), Blame.REQUEST),
    (500, error(500, "image input is not supported - hint: mmproj"), Blame.REQUEST),
    (
        500,
        error(500, "input (9 tokens) is too large to process. increase the physical batch size"),
        Blame.REQUEST,
    ),
    (500, error(500, "something that nobody has seen"), Blame.UNKNOWN),
    (500, b"Internal Server Error", Blame.UNKNOWN),
    (501, error(501, "This server does not support embeddings", "x"), Blame.REQUEST),
    (502, b"<html>Bad Gateway</html>", Blame.BACKEND),
    (503, b"upstream connect error", Blame.BACKEND),
    (504, b"", Blame.BACKEND),
    (429, b'{"error":{"message":"slow down"}}', Blame.BUSY),
    (409, b"", Blame.BUSY),
    (400, error(400, "request (9 tokens) exceeds", "exceed_context_size_error"), Blame.REQUEST),
    (400, error(400, "Failed to parse grammar", "invalid_request_error"), Blame.REQUEST),
    (401, error(401, "Invalid API Key", "authentication_error"), Blame.REQUEST),
    (404, b"", Blame.REQUEST),
    (413, b"", Blame.REQUEST),
]


@pytest.mark.parametrize(("status", "body", "blame"), CASES)
def test_each_recorded_error_has_its_culprit(status: int, body: bytes, blame: Blame) -> None:
    assert blame_of(status, body, Shape.CHAT) is blame


def test_every_rule_decides_about_a_case() -> None:
    known = [*CASES, (500, error(500, "'messages' is required"), Blame.REQUEST)]

    def decides(rule: Rule, status: int, body: bytes) -> bool:
        return next(r for r in RULES if r.fits(status, body, Shape.MESSAGES)) is rule

    for rule in RULES:
        assert any(decides(rule, status, body) for status, body, _ in known), rule.example


def test_a_500_on_the_messages_route_is_the_requests_unless_it_is_known_to_be_the_servers() -> None:
    bad_body = error(500, "'messages' is required")
    assert blame_of(500, bad_body, Shape.MESSAGES) is Blame.REQUEST
    assert blame_of(500, bad_body, Shape.CHAT) is Blame.UNKNOWN
    assert blame_of(500, error(500, "Compute error."), Shape.MESSAGES) is Blame.BACKEND
    assert blame_of(500, b"oops", Shape.MESSAGES) is Blame.UNKNOWN


@pytest.mark.parametrize(
    ("event", "blame"),
    [
        ({"code": 500, "message": "Compute error.", "type": "server_error"}, Blame.BACKEND),
        ({"message": "proxy error: Failed to read connection"}, Blame.BACKEND),
        ({"code": 400, "message": "bad"}, Blame.REQUEST),
        ({"code": "overloaded", "message": "who knows"}, Blame.UNKNOWN),
        ({"code": 7, "message": "who knows"}, Blame.UNKNOWN),
        ({"code": 429, "message": "slow down"}, Blame.BUSY),
    ],
)
def test_an_error_inside_a_stream_is_judged_by_the_same_table(
    event: dict[str, Any], blame: Blame
) -> None:
    assert blame_of_event(event) is blame


def test_the_documentation_shows_every_rule() -> None:
    text = blame_reference()
    assert all(f"| {rule.example} | `{rule.blame}` |" in text for rule in RULES)
    assert all(f"| `{blame}` | {blame.meaning} |" in text for blame in Blame)
