"""Turns pydantic's errors into lines that name the source, the key, the fault and the way out."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from slotgate.config.describe import Model, Setting, settings_of
from slotgate.config.yaml import Document, KeyPath, dotted

_WRITTEN_KEYS = {"key": "key", "api_key": "api_key", "admin_key": "admin_key", "token": "key"}


def explain(error: ValidationError, model: Model, document: Document) -> list[str]:
    """Return one line for each fault, in the order of the settings."""
    details = error.errors(include_url=False, include_input=False)
    # A list whose items are at fault is also too short in pydantic's eyes; once is enough.
    faulty = {detail["loc"][:1] for detail in details if len(detail["loc"]) > 1}
    details = [d for d in details if d["type"] != "too_short" or d["loc"] not in faulty]
    return list(dict.fromkeys(_line(detail, model, document) for detail in details))


def _line(detail: ErrorDetails, model: Model, document: Document) -> str:
    context: dict[str, Any] = detail.get("ctx") or {}
    path, known, setting = _locate((*detail["loc"], *context.get("path", ())), model)
    message = _message(detail, context, path, known, setting)
    return f"{document.source_of(path)}: {dotted(path) or 'settings'}: {message}"


def _locate(loc: KeyPath, model: Model) -> tuple[KeyPath, list[str], Setting | None]:
    """Drop the tags of unions from a location.

    Returns the path, the keys known where its last part stands, and the setting it names, if any.
    """
    path: list[str | int] = []
    here = {setting.key: setting for setting in settings_of(model)}
    known, setting = list(here), None
    for part in loc:
        if setting is not None and isinstance(part, str) and part in setting.models:
            here = _settings_in(setting.models[part])
            known = list(here)
            continue
        path.append(part)
        if isinstance(part, int):
            continue
        known = list(here)
        setting = here.get(part)
        models = list(setting.models.values()) if setting is not None else []
        here = _settings_in(models[0]) if models else {}
    return tuple(path), known, setting


def _settings_in(model: Model) -> dict[str, Setting]:
    return {setting.key: setting for setting in settings_of(model)}


def _message(
    detail: ErrorDetails,
    context: dict[str, Any],
    path: KeyPath,
    known: list[str],
    setting: Setting | None,
) -> str:
    kind = detail["type"]
    if kind == "setting":
        return str(context.get("text", detail["msg"]))
    if kind == "extra_forbidden":
        return _unknown(str(path[-1]), known)
    if kind in _GROUP_WANTED:
        inner = [k for m in (setting.models if setting else {}).values() for k in _settings_in(m)]
        return f"must be a group of settings: {', '.join(inner or known)}"
    if setting is not None and kind in _OF_A_SETTING:
        return _OF_A_SETTING[kind](context, setting)
    return _PLAIN.get(kind, detail["msg"].removeprefix("Value error, "))


def _unknown(key: str, known: list[str]) -> str:
    if (prefix := _WRITTEN_KEYS.get(key)) and f"{prefix}_env" in known:
        sources = [name for name in known if name.startswith(f"{prefix}_")]
        return f"a key never stands in the file; use {' or '.join(sources)}"
    close = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"known here: {', '.join(known)}"
    return f"unknown key; {hint}"


def _bound(context: dict[str, Any], setting: Setting) -> str:
    which = "ge" if "ge" in context else "le"
    value = context[which]
    words = {"ge": "at least", "le": "at most"}[which]
    suffix = f" {setting.unit}" if setting.unit not in {"", "seconds", "bytes"} else ""
    return f"must be {words} {setting.show(value)}{suffix}"


_GROUP_WANTED = {"model_type", "model_attributes_type", "dict_type"}
_OF_A_SETTING: dict[str, Callable[[dict[str, Any], Setting], str]] = {
    "missing": lambda _, setting: f"is missing: {setting.sentence}",
    "greater_than_equal": _bound,
    "less_than_equal": _bound,
    "literal_error": lambda _, setting: f"must be {setting.type_text}",
    "too_short": lambda _, setting: f"is empty: {setting.sentence}",
}
_PLAIN = {
    "string_type": "must be text; put it in quotes",
    "string_pattern_mismatch": "must be at most 63 letters, digits and . _ : - "
    "and begin with a letter or digit",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
}
