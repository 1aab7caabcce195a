"""Whole answers that several routes give."""

from __future__ import annotations

from typing import Any

import msgspec

from slotgate.stub.connection import Answer
from slotgate.stub.status import early_error_body, error_body


def json_answer(value: Any, code: int = 200) -> Answer:
    return Answer(code, msgspec.json.encode(value))


def unsupported(what: str, flag: str) -> Answer:
    message = f"This server does not support {what}. Start it with `{flag}`"
    return Answer(501, error_body(501, "not_supported_error", message))


def failure(code: int, type: str, message: str) -> Answer:
    return Answer(code, error_body(code, type, message))


PREFLIGHT = Answer(
    200,
    content_type="text/html",
    headers=(
        ("Access-Control-Allow-Credentials", "true"),
        ("Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS"),
        ("Access-Control-Allow-Headers", "*"),
    ),
)


NO_AUDIO = failure(501, "not_supported_error", "The current model does not support audio input.")


NOT_FOUND = Answer(404, early_error_body(404, "not_found_error", "File Not Found"))
LOADING = Answer(503, early_error_body(503, "unavailable_error", "Loading model"))
LOADING_OLD = json_answer({"status": "loading model"}, 503)
WRONG_KEY = Answer(401, early_error_body(401, "authentication_error", "Invalid API Key"))
NO_SLOT = failure(503, "unavailable_error", "no slot available")
