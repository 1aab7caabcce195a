"""What llama-server says of itself: `/props`, `/slots`, `/health` and `/metrics`, of every age.

Unknown and missing fields are no error: builds differ, and forks stay behind.  An answer that is
not of the expected kind at all is a `BrokenAnswerError`.  The text of users, which debug builds
put into `/slots`, is dropped here and never travels further (llama.cpp #16534).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from typing import Any

import msgspec

from slotgate.errors import BrokenAnswerError
from slotgate.wire.usage import as_mapping

_USER_TEXT = ("prompt", "generated")
_BUILD = re.compile(r"b?(\d{3,6})(?:\D|$)")
_NO_TEXT = (msgspec.Raw(b'""'), msgspec.Raw(b"null"))
_READ = (
    *("id", "n_ctx", "is_processing", "state", "id_task", "task_id", "next_token"),
    *("n_prompt_tokens", "n_prompt_tokens_processed"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Props:
    """`/props`: None where the build does not tell.

    `slots` is `total_slots`; a router has none and says `role`.  `ctx_per_slot` is in tokens.
    `room` is how many models a router holds at once (0: all), `loads` whether it loads what it is
    asked for.  `endpoint_props` is whether `POST /props` is on, `cors_proxy` whether
    `/cors-proxy` is.
    """

    slots: int | None = None
    ctx_per_slot: int | None = None
    model_alias: str | None = None
    model_path: str | None = None
    build_info: str | None = None
    is_sleeping: bool = False
    endpoint_slots: bool | None = None
    endpoint_metrics: bool | None = None
    endpoint_props: bool | None = None
    cors_proxy: bool | None = None
    chat_template: str | None = None
    role: str | None = None
    room: int = 0
    loads: bool = True

    @property
    def is_llama_cpp(self) -> bool:
        """Whether a llama-server has told any of it; servers of other makes have no `/props`."""
        told = (self.slots, self.ctx_per_slot, self.model_path, self.build_info, self.role)
        return any(each is not None for each in told)

    @property
    def build(self) -> int | None:
        """llama.cpp's number of the build, None if it is not told: some say `b0-unknown`."""
        found = _BUILD.match(self.build_info or "")
        return int(found[1]) if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotView:
    """One slot as `/slots` shows it: true at the last decode boundary, not now.

    `n_prompt_processed` is how much of the prompt has been read, where the build tells.
    `has_user_text` is whether the server showed what users wrote.
    `raw` is every field but the users' text, in its own bytes, to be shown again.
    """

    id: int
    n_ctx: int | None
    is_processing: bool
    id_task: int | None
    n_decoded: int | None
    n_prompt_tokens: int | None
    raw: dict[str, msgspec.Raw]
    n_prompt_processed: int | None = None
    has_user_text: bool = False


class HealthState(StrEnum):
    """What `/health` can say; `no_slot` only from builds before August 2024."""

    OK = "ok"
    LOADING = "loading"
    NO_SLOT = "no_slot"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """`/health`: the counts are there only in builds before August 2024, and in Slotgate's own.

    `queue` is how many requests wait; only Slotgate tells it.
    """

    state: HealthState
    slots_idle: int | None = None
    slots_processing: int | None = None
    queue: int | None = None
    message: str = ""


def _decode(body: bytes, what: str) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BrokenAnswerError(f"{what} is not JSON: {error}") from error


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def parse_props(body: bytes) -> Props:
    """Read `/props`.  Raises BrokenAnswerError when it is not a JSON object."""
    props = _decode(body, "/props")
    if not isinstance(props, dict):
        raise BrokenAnswerError("/props is not a JSON object")
    settings = as_mapping(props.get("default_generation_settings"))
    ctx = _whole(settings.get("n_ctx"))
    return Props(
        slots=_whole(props.get("total_slots")),
        ctx_per_slot=ctx if ctx is not None and ctx > 0 else None,
        model_alias=_text(props.get("model_alias")),
        model_path=_text(props.get("model_path")),
        build_info=_text(props.get("build_info")),
        is_sleeping=_flag(props.get("is_sleeping")) or False,
        endpoint_slots=_flag(props.get("endpoint_slots")),
        endpoint_metrics=_flag(props.get("endpoint_metrics")),
        endpoint_props=_flag(props.get("endpoint_props")),
        cors_proxy=_flag(props.get("cors_proxy_enabled")),
        chat_template=_text(props.get("chat_template")),
        role=_text(props.get("role")),
        room=max(0, _whole(props.get("max_instances")) or 0),
        loads=_flag(props.get("models_autoload")) is not False,
    )


def parse_slots(body: bytes) -> tuple[SlotView, ...]:
    """Read `/slots`.  Raises BrokenAnswerError when it is not a list of objects with ids."""
    try:
        slots = msgspec.json.decode(body, type=list[dict[str, msgspec.Raw]])
        return tuple(_slot_view(slot) for slot in slots)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BrokenAnswerError(f"/slots is not a list of slots: {error}") from error


def _slot_view(slot: dict[str, msgspec.Raw]) -> SlotView:
    said = [slot.pop(name) for name in _USER_TEXT if name in slot]
    # Fields are decoded one by one: `params` is long and of no use here.
    fields: dict[str, Any] = {
        name: msgspec.json.decode(slot[name]) for name in _READ if name in slot
    }
    slot_id = _whole(fields.get("id"))
    if slot_id is None:
        raise BrokenAnswerError("/slots has a slot without an id")
    next_token = fields.get("next_token")
    if isinstance(next_token, list):  # an array of one since speculative decoding had its say
        next_token = next_token[0] if next_token else None
    return SlotView(
        id=slot_id,
        n_ctx=_whole(fields.get("n_ctx")),
        is_processing=_is_processing(fields),
        id_task=_whole(fields.get("id_task", fields.get("task_id"))),
        n_decoded=_whole(as_mapping(next_token).get("n_decoded")),
        n_prompt_tokens=_whole(fields.get("n_prompt_tokens")),
        raw=slot,
        n_prompt_processed=_whole(fields.get("n_prompt_tokens_processed")),
        has_user_text=any(text not in _NO_TEXT for text in said),
    )


def _is_processing(fields: dict[str, Any]) -> bool:
    """Read `is_processing`, or before build 4027 the number `state`, where 0 is idle."""
    is_processing = _flag(fields.get("is_processing"))
    if is_processing is not None:
        return is_processing
    state = _whole(fields.get("state"))
    if state is None:
        raise BrokenAnswerError("/slots has a slot with neither 'is_processing' nor 'state'")
    return state != 0


def parse_health(status: int, body: bytes) -> Health:
    """Read `/health`, whatever it says: an unhealthy server may answer anything."""
    try:
        answer = as_mapping(msgspec.json.decode(body)) if body else {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        answer = {}
    said = answer.get("status")
    error = as_mapping(answer.get("error"))
    message = _text(error.get("message")) or _text(said) or ""
    return Health(
        state=_health_state(status, message.lower()),
        slots_idle=_whole(answer.get("slots_idle")),
        slots_processing=_whole(answer.get("slots_processing")),
        queue=_whole(answer.get("queue")),
        message=message,
    )


def _health_state(status: int, message: str) -> HealthState:
    if "loading" in message:
        return HealthState.LOADING
    if message.startswith("no slot"):
        return HealthState.NO_SLOT
    return HealthState.OK if status == 200 and message != "error" else HealthState.ERROR


def requests_processing(metrics: bytes) -> int | None:
    """Read how many slots are busy from llama-server's own metrics."""
    return _counted(metrics, b"llamacpp:requests_processing")


def requests_deferred(metrics: bytes) -> int | None:
    """Read how many requests wait inside llama-server, as of its last batch."""
    return _counted(metrics, b"llamacpp:requests_deferred")


def prompt_work(metrics: bytes) -> tuple[float, float] | None:
    """Read how many tokens of prompts llama-server has read so far, and in how many seconds."""
    tokens = _sample(metrics, b"llamacpp:prompt_tokens_total")
    seconds = _sample(metrics, b"llamacpp:prompt_seconds_total")
    return None if tokens is None or seconds is None else (tokens, seconds)


def _counted(metrics: bytes, name: bytes) -> int | None:
    value = _sample(metrics, name)
    return int(value) if value is not None and value.is_integer() else None


def _sample(metrics: bytes, name: bytes) -> float | None:
    for line in metrics.splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == name:
            try:
                value = float(words[1])
            except ValueError:
                return None
            return value if isfinite(value) and value >= 0 else None
    return None
