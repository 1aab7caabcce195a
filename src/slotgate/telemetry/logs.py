"""Structured logs: one event a line, for people or for machines, and no prompt text in any of them.

Rule 1: an event's name comes from `events.py`; everything else is a field.
Rule 2: fields that could carry a client's text or a key are dropped by name, at any depth.
Rule 3: a field is short and printable: long text is cut, control characters are escaped, so that
        no client can write a line of its own into the log.
Rule 4: below the level in force, a call does nothing.
"""

from __future__ import annotations

import functools
import logging
import sys
import traceback
from collections.abc import Mapping, MutableMapping
from typing import Any, TextIO, cast

import msgspec
import structlog
from structlog.typing import FilteringBoundLogger, Processor
from typing_extensions import override

from slotgate.config import LogSettings
from slotgate.errors import SlotgateError
from slotgate.telemetry.events import Event

Logger = FilteringBoundLogger

MAX_FIELD_CHARACTERS = 300
MAX_DEPTH = 4

# Names of fields that carry what clients and models say, or what they must not show.
DROPPED = frozenset({
    "answer", "api_key", "authorization", "body", "chunk", "completion", "content", "cookie",
    "delta", "document", "documents", "headers", "input", "key", "messages", "output", "password",
    "payload", "prompt", "query", "reasoning", "reasoning_content", "request_body", "response",
    "response_body", "secret", "set_cookie", "system", "text", "token", "tool_calls", "tools",
    "x_api_key",
})  # fmt: skip

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def make_logger(settings: LogSettings, stream: TextIO | None = None) -> Logger:
    """Make a logger that writes to `stream` (standard error).  Nothing global is changed."""
    target = sys.stderr if stream is None else stream
    logger = structlog.wrap_logger(
        structlog.WriteLogger(target),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _exception_without_its_text,
            redact,
            _renderer(settings, target),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[settings.level]),
        context_class=dict,
    )
    return cast("Logger", logger.bind())


def log(logger: Logger, event: Event, **fields: object) -> None:
    """Log an event at its own level."""
    getattr(logger, event.level)(event.value, **fields)


def is_logged(logger: Logger, event: Event) -> bool:
    """Whether the event is at or above the level in force."""
    return logger.is_enabled_for(_LEVELS[event.level])


def redact(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """Drop what must not be logged and tame the rest (structlog processor)."""
    return {
        key: _tamed(value, 0) if key != "exception" else value
        for key, value in event.items()
        if not _is_dropped(key)
    }


class LibraryHandler(logging.Handler):
    """Brings what libraries log through `logging` into our own log."""

    def __init__(self, logger: Logger, *, level: int = logging.WARNING) -> None:
        super().__init__(level)
        self._logger = logger

    @override
    def emit(self, record: logging.LogRecord) -> None:
        name = "error" if record.levelno >= logging.ERROR else "warning"
        getattr(self._logger, name)(
            Event.LIBRARY_MESSAGE.value, library=record.name, message=record.getMessage()
        )


def _renderer(settings: LogSettings, target: TextIO) -> Processor:
    if settings.format == "json":
        return cast("Processor", structlog.processors.JSONRenderer(serializer=_json))
    return structlog.dev.ConsoleRenderer(
        colors=target.isatty(), pad_event_to=24, exception_formatter=structlog.dev.plain_traceback
    )


def _json(event: object, **_options: object) -> str:
    return msgspec.json.encode(event, enc_hook=str).decode()


def _exception_without_its_text(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Show where an exception came from.

    Its message stays out unless it is ours: those of libraries quote what they could not read,
    and that may be a prompt.
    """
    info = event.pop("exc_info", None)
    error = info if isinstance(info, BaseException) else sys.exc_info()[1] if info else None
    if error is not None:
        frames = "".join(traceback.format_tb(error.__traceback__))
        message = f": {error}" if isinstance(error, SlotgateError) else ""
        event["exception"] = f"{frames}{type(error).__qualname__}{message}"
    return event


@functools.lru_cache(maxsize=1024)
def _is_dropped(key: str) -> bool:
    return key.lower().replace("-", "_") in DROPPED


def _tamed(value: Any, depth: int) -> Any:
    if type(value) is str:
        return _line(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if depth < MAX_DEPTH and isinstance(value, Mapping):
        return {
            _line(str(key)): _tamed(inner, depth + 1)
            for key, inner in value.items()
            if not _is_dropped(str(key))
        }
    if depth < MAX_DEPTH and isinstance(value, (list, tuple, set, frozenset)):
        return [_tamed(inner, depth + 1) for inner in value]
    return _line(str(value))


def _line(text: str) -> str:
    if len(text) > MAX_FIELD_CHARACTERS:
        text = f"{text[:MAX_FIELD_CHARACTERS]}... ({len(text)} characters)"
    return text if text.isprintable() else text.encode("unicode_escape").decode()
