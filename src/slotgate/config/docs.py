"""The reference tables, the JSON schema and the example file, made from the declarations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from inspect import cleandoc

from pydantic import BaseModel

from slotgate.config.describe import (
    Model,
    Setting,
    environment_names,
    settings_of,
    walk,
)
from slotgate.config.settings import Settings

EXAMPLE_HEAD = """\
# Every setting of Slotgate with its default.  What is commented out is not set by default.
# Durations: 250ms, 10s, 5m, 1h.  Sizes: 64KiB, 256MiB, 1GB.
# Check a file with `slotgate config check FILE`.
"""


def schema() -> str:
    """Return the JSON schema of the configuration file."""
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Settings.model_json_schema(by_alias=True),
        "title": "Slotgate configuration",
    }
    return json.dumps(document, indent=2, default=str) + "\n"


def reference() -> str:
    """Return the tables of the reference page, in Markdown."""
    variables = environment_names(Settings)
    parts = ["## Top level\n", _table(_plain_rows(Settings, variables))]
    for setting in settings_of(Settings):
        for model in setting.models.values():
            parts.append(f"## `{setting.key}`{_kind(setting, model)}\n")
            parts.append(f"{cleandoc(model.__doc__ or '')}\n")
            instance = None if setting.is_list else setting.default
            key = f"{setting.key}[]" if setting.is_list else setting.key
            parts.append(_table(_rows(model, (key,), instance, variables)))
    return "\n".join(parts)


def example() -> str:
    """Return a configuration file that holds every setting."""
    return EXAMPLE_HEAD + "".join(f"{line}\n" for line in _lines(Settings, None, Place()))


# Not required, but an item without them would be no good example.
SHOWN_ANYWAY = {"key_env"}

Row = tuple[str, str, str, str, str]
Names = dict[tuple[str, ...], str]


def _plain_rows(model: Model, variables: Names) -> Iterator[Row]:
    for setting in settings_of(model):
        yield _row((setting.key,), setting, variables)


def _rows(
    model: Model, path: tuple[str, ...], instance: BaseModel | None, variables: Names
) -> Iterator[Row]:
    rows = [row for row in walk(model, path, instance) if row[1].is_list or not row[1].models]
    for here, setting in sorted(rows, key=lambda row: _rank(row[1])) if instance is None else rows:
        yield _row(here, setting, variables)
        if setting.is_list:
            for inner in setting.models.values():
                yield from _rows(inner, (*path, f"{setting.key}[]"), None, variables)


def _row(path: tuple[str, ...], setting: Setting, variables: Names) -> Row:
    sentence = setting.sentence
    if name := variables.get(path):
        sentence += f"<br>`{name}`"
    default = "**required**" if setting.is_required else _code(setting)
    if setting.models and not setting.is_list:
        default = f"see [below](#{path[0]})"
    key = ".".join(path)
    return f"`{key}`", setting.type_text, default, _allowed(setting), sentence


def _code(setting: Setting) -> str:
    text = setting.default_text or "none"
    is_literal = setting.default not in (None, (), "")
    return f"`{text}`" if is_literal else text


def _allowed(setting: Setting) -> str:
    words = {"ge": "at least", "le": "at most"}
    unit = f" {setting.unit}" if setting.unit == "tokens" else ""
    return ", ".join(
        f"{words[bound]} {_bound_text(setting, value)}{unit}"
        for bound, value in setting.bounds.items()
    )


def _bound_text(setting: Setting, value: float) -> str:
    return setting.show(int(value) if setting.unit == "bytes" else value)


def _kind(setting: Setting, model: Model) -> str:
    if len(setting.models) == 1:
        return ""
    required = [inner.key for inner in settings_of(model) if inner.is_required]
    return f" with `{required[0]}`"


def _table(rows: Iterator[Row]) -> str:
    head = "| key | type | default | allowed | meaning |\n|---|---|---|---|---|\n"
    return head + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _rank(setting: Setting) -> tuple[bool, bool, bool]:
    """Within an item of a list: its name first, then what is required, groups last."""
    return setting.key != "name", not setting.is_required, bool(setting.models)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a line of the example stands, and whether it is commented out."""

    depth: int = 0
    is_off: bool = False

    def inside(self, steps: int, *, is_off: bool = False) -> Place:
        return Place(self.depth + steps, self.is_off or is_off)

    def setting(self, text: str, *, is_off: bool = False) -> str:
        return "  " * self.depth + ("#" if is_off or self.is_off else "") + text

    def note(self, setting: Setting) -> str:
        note = ", ".join(setting.choices) or _allowed(setting)
        allowed = f" ({note})" if note else ""
        return f"{'  ' * self.depth}# {setting.sentence.rstrip('.')}{allowed}."


def _lines(model: Model, instance: BaseModel | None, place: Place) -> Iterator[str]:
    for setting in settings_of(model, instance):
        if place.depth == 0:
            yield ""
        yield place.note(setting)
        yield from _setting_lines(setting, place)


def _setting_lines(setting: Setting, place: Place) -> Iterator[str]:
    if setting.is_list and setting.models:
        is_off = not setting.is_required
        yield place.setting(f"{setting.key}:", is_off=is_off)
        for index, model in enumerate(setting.models.values()):
            yield from _item(model, index, place.inside(2, is_off=is_off))
            is_off = True  # one example that works is enough
    elif setting.models:
        yield place.setting(f"{setting.key}:")
        for inner in setting.models.values():
            yield from _lines(inner, setting.default, place.inside(1))
    else:
        yield _assignment(setting, place)


def _item(model: Model, index: int, place: Place) -> Iterator[str]:
    """Yield an item of a list; it begins with its name, which takes the dash."""
    name, *others = sorted(settings_of(model), key=_rank)
    yield place.inside(-1).note(name)
    yield place.inside(-1).setting(f"- {name.key}: {name.examples[index]}")
    for setting in others:
        yield place.note(setting)
        yield from _setting_lines(setting, place)


def _assignment(setting: Setting, place: Place) -> str:
    if setting.default not in (None, (), ""):
        return place.setting(f"{setting.key}: {setting.show(setting.default)}")
    is_off = not setting.is_required and setting.key not in SHOWN_ANYWAY
    return place.setting(f"{setting.key}: {setting.examples[0]}", is_off=is_off)
