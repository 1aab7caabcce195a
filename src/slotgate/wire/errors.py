"""Our errors in the shape that the client of each route expects.

Every route speaks OpenAI's envelope, and `/v1/messages` Anthropic's; both carry `"src":"slotgate"`,
so that a client can tell our errors from a backend's, which pass unchanged.

In a stream the official clients notice an error so (checked in the tests with the real ones):
OpenAI's raises APIError on any event whose data has an `error` object, on every route;
Anthropic's raises on an event named `error`.  The event that OpenAI documents for responses
(`type: error`, flat) does not raise in its client, so ours is both: flat, with an `error` inside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from slotgate.wire.routes import Shape

if TYPE_CHECKING:
    from collections.abc import Mapping

SOURCE = "slotgate"

_ANTHROPIC_TYPES = frozenset(
    {
        "api_error",
        "authentication_error",
        "billing_error",
        "invalid_request_error",
        "not_found_error",
        "overloaded_error",
        "permission_error",
        "rate_limit_error",
        "request_too_large",
        "timeout_error",
    }
)
# What is not one of Anthropic's own types, by our type or code; all else is an `api_error`.
_TO_ANTHROPIC = {
    "exceed_context_size_error": "invalid_request_error",
    "context_length_exceeded": "invalid_request_error",
    "model_not_found": "not_found_error",
    "rate_limit_exceeded": "rate_limit_error",
    "requests": "rate_limit_error",
    "tokens": "rate_limit_error",
    "tenant_limit": "rate_limit_error",
    "queue_full": "overloaded_error",
    "queue_timeout": "overloaded_error",
    "wait_too_long": "overloaded_error",
    "unavailable_error": "overloaded_error",
    "no_backend": "overloaded_error",
    "loading": "overloaded_error",
    "draining": "overloaded_error",
    "backend_timeout": "timeout_error",
    "timeout": "timeout_error",
}


def anthropic_type(type: str, code: object) -> str:
    """Return Anthropic's name for an error of our `type` and `code`."""
    if type in _ANTHROPIC_TYPES:
        return type
    by_code = _TO_ANTHROPIC.get(str(code))
    return by_code or _TO_ANTHROPIC.get(type) or "api_error"


def _error_value(
    shape: Shape | None,
    *,
    message: str,
    type: str,
    code: str | int | None,
    param: str | None,
    extra: Mapping[str, Any] | None,
) -> dict[str, Any]:
    more = dict(extra) if extra else {}
    if shape is not Shape.MESSAGES:
        error = {"message": message, "type": type, "param": param, "code": code, **more}
        return {"error": error, "src": SOURCE}
    error = {"type": anthropic_type(type, code), "message": message, "code": code, **more}
    if param is not None:
        error["param"] = param
    return {"type": "error", "error": error, "src": SOURCE}


def error_body(
    shape: Shape | None,
    *,
    message: str,
    type: str,
    code: str | int | None = None,
    param: str | None = None,
    extra: Mapping[str, Any] | None = None,
) -> bytes:
    """Return the JSON body of a refusal; `extra` are more fields of its `error` object."""
    return msgspec.json.encode(
        _error_value(shape, message=message, type=type, code=code, param=param, extra=extra)
    )


def stream_error(
    shape: Shape | None,
    *,
    message: str,
    type: str,
    code: str | int | None = None,
    param: str | None = None,
    extra: Mapping[str, Any] | None = None,
) -> bytes:
    """Return the one event that ends a stream which broke after its first byte.

    If the stream broke inside a frame, send a blank line first (`StreamRelay.is_between_frames`).
    """
    value = _error_value(shape, message=message, type=type, code=code, param=param, extra=extra)
    if shape is Shape.RESPONSES:
        flat = {"type": "error", "code": code, "message": message, "param": param}
        value = flat | value
    name = b"event: error\n" if shape in {Shape.MESSAGES, Shape.RESPONSES} else b""
    return name + b"data: " + msgspec.json.encode(value) + b"\n\n"


def event_of_error(shape: Shape | None, error: Mapping[str, Any]) -> bytes:
    """Return the event that says a backend's error, of which a client saw only a bare line."""
    code = error.get("code")
    return stream_error(
        shape,
        message=str(error.get("message", "")) or msgspec.json.encode(error).decode(),
        type=str(error.get("type", "server_error")),
        code=code if isinstance(code, int | str) else None,
    )


def error_in(status: int, body: bytes) -> dict[str, Any]:
    """Return the error that a backend's whole answer carries, for a client whose stream it ends."""
    try:
        error = msgspec.json.decode(body)["error"]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, LookupError, TypeError):
        error = None
    if isinstance(error, dict):
        return error
    return {"code": status, "message": f"the backend answered {status}", "type": "server_error"}
