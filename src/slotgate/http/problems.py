"""The one table of refusals and faults: reason -> status, error type, and whether to come back.

Everything that Slotgate itself answers with an error passes through here, for streams and
non-streams alike, so that a reason has one status everywhere.  docs/reference/errors.md is
generated from `TABLE`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from slotgate.core.decision import Reason
from slotgate.wire.errors import error_body, stream_error
from slotgate.wire.routes import Shape

if TYPE_CHECKING:
    from slotgate.core.decision import Refused

# openai-python up to 2.50 ignores a longer Retry-After and comes back after half a second.
RETRY_AFTER_CAP_SECONDS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """How a code is shown.  `anthropic` is (status, type) on `/v1/messages`."""

    status: int
    type: str
    anthropic: tuple[int, str]
    when: str
    should_retry: bool = True


OVERLOADED = (529, "overloaded_error")
UNAVAILABLE = (503, "api_error")

TABLE: dict[str, Kind] = {
    Reason.QUEUE_FULL: Kind(
        status=429,
        type="rate_limit_error",
        anthropic=OVERLOADED,
        when="the waiting room, or the tenant's part of it, is full",
    ),
    Reason.WAIT_TOO_LONG: Kind(
        status=429,
        type="rate_limit_error",
        anthropic=OVERLOADED,
        when="the predicted wait exceeds the request's deadline",
    ),
    Reason.QUEUE_TIMEOUT: Kind(
        status=429,
        type="rate_limit_error",
        anthropic=OVERLOADED,
        when="it waited to its deadline",
    ),
    Reason.TENANT_LIMIT: Kind(
        status=429,
        type="rate_limit_error",
        anthropic=(429, "rate_limit_error"),
        when="the tenant's own limit is reached",
    ),
    Reason.NO_BACKEND: Kind(
        status=503,
        type="unavailable_error",
        anthropic=UNAVAILABLE,
        when="no backend of the model can be reached",
    ),
    Reason.LOADING: Kind(
        status=503,
        type="unavailable_error",
        anthropic=UNAVAILABLE,
        when="the backends of the model still load at the request's deadline",
    ),
    Reason.DRAINING: Kind(
        status=503,
        type="unavailable_error",
        anthropic=UNAVAILABLE,
        when="the gateway is shutting down, or the operator drains all backends of the model",
    ),
    Reason.CONTEXT_LENGTH_EXCEEDED: Kind(
        status=400,
        type="exceed_context_size_error",
        anthropic=(400, "invalid_request_error"),
        when="the prompt cannot fit any slot",
        should_retry=False,
    ),
    Reason.MODEL_NOT_FOUND: Kind(
        status=404,
        type="not_found_error",
        anthropic=(404, "not_found_error"),
        when="no backend serves the model",
        should_retry=False,
    ),
    Reason.INVALID_REQUEST: Kind(
        status=400,
        type="invalid_request_error",
        anthropic=(400, "invalid_request_error"),
        when="the request is malformed, or asks for more slots than any backend has",
        should_retry=False,
    ),
    "authentication_error": Kind(
        status=401,
        type="authentication_error",
        anthropic=(401, "authentication_error"),
        when="the API key is missing or unknown",
        should_retry=False,
    ),
    "not_found": Kind(
        status=404,
        type="not_found_error",
        anthropic=(404, "not_found_error"),
        when="there is no such path, or not with this method",
        should_retry=False,
    ),
    "method_not_allowed": Kind(
        status=405,
        type="invalid_request_error",
        anthropic=(405, "invalid_request_error"),
        when="a path below `/-/` was asked with another method than its own, which `allow` names",
        should_retry=False,
    ),
    "forbidden": Kind(
        status=403,
        type="permission_error",
        anthropic=(403, "permission_error"),
        when="a web page of another origin asked for what is the operator's",
        should_retry=False,
    ),
    "unsupported_media_type": Kind(
        status=415,
        type="invalid_request_error",
        anthropic=(415, "invalid_request_error"),
        when="a body below `/-/` is not JSON",
        should_retry=False,
    ),
    "conflict": Kind(
        status=409,
        type="invalid_request_error",
        anthropic=(409, "invalid_request_error"),
        when="what the operator asks has no meaning as things are",
        should_retry=False,
    ),
    "invalid_config": Kind(
        status=422,
        type="invalid_request_error",
        anthropic=(422, "invalid_request_error"),
        when="the configuration that was to be loaded has faults, all named; nothing has changed",
        should_retry=False,
    ),
    "killed": Kind(
        status=503,
        type="unavailable_error",
        anthropic=UNAVAILABLE,
        when="the operator has ended the request",
        should_retry=False,
    ),
    "request_too_large": Kind(
        status=413,
        type="invalid_request_error",
        anthropic=(413, "request_too_large"),
        when="the body is larger than limits.max_body_bytes",
        should_retry=False,
    ),
    "backend_unreachable": Kind(
        status=502,
        type="server_error",
        anthropic=(502, "api_error"),
        when="the backend broke before the first byte, and the retries are spent",
    ),
    "kv_pressure": Kind(
        status=429,
        type="rate_limit_error",
        anthropic=OVERLOADED,
        when="it was stopped, so that a shared context did not overflow and end all that ran there",
    ),
    "backend_timeout": Kind(
        status=504,
        type="server_error",
        anthropic=(504, "timeout_error"),
        when="the backend sent nothing in time",
    ),
    "internal_error": Kind(
        status=500,
        type="server_error",
        anthropic=(500, "api_error"),
        when="a fault in Slotgate; the log has its trace under the request's id",
    ),
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One refusal or fault, ready to be shown to a client.

    `retry_after` is in seconds, as is `predicted_wait`, what was predicted when the request came;
    None leaves the header out.  `allow` are the methods that there are instead.
    """

    code: str
    message: str
    retry_after: float | None = None
    param: str | None = None
    extra: dict[str, object] = field(default_factory=dict)
    predicted_wait: float | None = None
    allow: str = ""

    def status(self, shape: Shape | None) -> int:
        kind = TABLE[self.code]
        return kind.anthropic[0] if shape is Shape.MESSAGES else kind.status

    def headers(self) -> list[tuple[bytes, bytes]]:
        headers = [
            (b"content-type", b"application/json; charset=utf-8"),
            (b"x-slotgate-reason", self.code.encode()),
        ]
        if not TABLE[self.code].should_retry:
            headers.append((b"x-should-retry", b"false"))
        if self.code == "authentication_error":
            headers.append((b"www-authenticate", b"Bearer"))
        if self.allow:
            headers.append((b"allow", self.allow.encode()))
        if self.retry_after is not None:
            seconds = min(self.retry_after, RETRY_AFTER_CAP_SECONDS)
            headers.append((b"retry-after", b"%d" % max(1, math.ceil(seconds))))
            headers.append((b"retry-after-ms", b"%d" % max(1, round(seconds * 1000))))
        return headers + predicted_wait_header(self.predicted_wait)

    def body(self, shape: Shape | None) -> bytes:
        return error_body(shape, **self._fields(shape))

    def event(self, shape: Shape) -> bytes:
        """The same as one in-band error event, for a stream that has already begun."""
        return stream_error(shape, **self._fields(shape))

    def _fields(self, shape: Shape | None) -> dict[str, Any]:
        kind = TABLE[self.code]
        return {
            "message": f"{self.code}: {self.message}",
            "type": kind.anthropic[1] if shape is Shape.MESSAGES else kind.type,
            "code": self.code,
            "param": self.param,
            "extra": self.extra,
        }


def from_refusal(refused: Refused, *, setting: str | None = None) -> Problem:
    """Say a refusal of the scheduler in words; `setting` replaces the name of the limit."""
    if refused.reason is Reason.CONTEXT_LENGTH_EXCEEDED:
        return context_exceeded(int(refused.value or 0), int(refused.limit or 0))
    words = _WORDS.get(refused.reason, _say_plainly)(refused, setting or refused.setting)
    return Problem(
        refused.reason, words, refused.retry_after, predicted_wait=refused.predicted_wait
    )


def predicted_wait_header(seconds: float | None) -> list[tuple[bytes, bytes]]:
    """Return the header that says how long a request was expected to wait, if anybody knew."""
    if seconds is None:
        return []
    return [(b"x-slotgate-predicted-wait-ms", b"%d" % round(seconds * 1000))]


def overlong_prompt(status: int, body: bytes) -> Problem | None:
    """Recognize llama-server's refusal of a prompt longer than its slot, and say it as ours."""
    if status != 400 or b"exceed_context_size_error" not in body:
        return None
    try:
        error = msgspec.json.decode(body)["error"]
        prompt, context = int(error["n_prompt_tokens"]), int(error["n_ctx"])
    except (msgspec.DecodeError, LookupError, TypeError, ValueError):
        return None
    return context_exceeded(prompt, context)


def context_exceeded(prompt_tokens: int, context_tokens: int) -> Problem:
    """Say that a prompt of so many tokens fits no slot of so many."""
    # llama-server's own words first: agents look for them to know that they must shorten.
    words = (
        f"request ({prompt_tokens} tokens) exceeds the available context size "
        f"({context_tokens} tokens), which is a slot's: llama-server divides --ctx-size by "
        "--parallel"
    )
    extra: dict[str, object] = {"n_prompt_tokens": prompt_tokens, "n_ctx": context_tokens}
    return Problem(Reason.CONTEXT_LENGTH_EXCEEDED, words, extra=extra)


def _back(refused: Refused) -> str:
    if refused.retry_after is None:
        return ""
    return f"; come back in {max(1, math.ceil(refused.retry_after))} s"


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:g}"


def _expected(refused: Refused) -> str:
    if refused.predicted_wait is None:
        return ""
    return f"; the wait was expected to be {refused.predicted_wait:.1f} s"


def _say_full(refused: Refused, setting: str) -> str:
    limit, value = _number(refused.limit), _number(refused.value)
    return f"{value} are waiting and {setting} is {limit}{_expected(refused)}{_back(refused)}"


def _say_timeout(refused: Refused, setting: str) -> str:
    limit = f"{_budget(refused):g} s"
    words = f"no slot came free in {refused.waited:.1f} s ({setting} is {limit})"
    return f"{words}{_expected(refused)}{_back(refused)}"


def _say_too_long(refused: Refused, setting: str) -> str:
    predicted = refused.value if refused.predicted_wait is None else refused.predicted_wait
    about = "?" if predicted is None else f"{predicted:.1f}"
    return (
        f"its first token would come after the deadline: it would wait about {about} s for a slot, "
        f"and {setting} is {_budget(refused):g} s{_back(refused)}"
    )


def _budget(refused: Refused) -> float:
    # Rounded, because the difference of two times of a clock is not the number that was configured.
    return round(refused.ticket.deadline - refused.ticket.arrival, 6)


def _say_no_backend(refused: Refused, _setting: str) -> str:
    return f"no backend of {refused.ticket.model or 'the model'} can be reached{_back(refused)}"


def _say_loading(refused: Refused, _setting: str) -> str:
    return f"{refused.ticket.model or 'the model'} is still loading{_back(refused)}"


def _say_draining(refused: Refused, setting: str) -> str:
    if setting:
        name = refused.ticket.model or "the model"
        return f"the operator drains the backends of {name}{_back(refused)}"
    return f"the gateway is shutting down{_back(refused)}"


def _say_model(refused: Refused, _setting: str) -> str:
    return f"no backend serves the model {refused.ticket.model!r}"


def _say_plainly(refused: Refused, setting: str) -> str:
    limit, value = _number(refused.limit), _number(refused.value)
    return f"{value} exceeds {setting or 'the limit'}, which is {limit}{_back(refused)}"


_WORDS = {
    Reason.QUEUE_FULL: _say_full,
    Reason.TENANT_LIMIT: _say_full,
    Reason.QUEUE_TIMEOUT: _say_timeout,
    Reason.WAIT_TOO_LONG: _say_too_long,
    Reason.NO_BACKEND: _say_no_backend,
    Reason.LOADING: _say_loading,
    Reason.DRAINING: _say_draining,
    Reason.MODEL_NOT_FOUND: _say_model,
}


def queue_position_header(position: int) -> tuple[bytes, bytes]:
    """Say where a request stood in the queue when it came; 0 if it did not have to wait."""
    return b"x-slotgate-queue-position", b"%d" % position
