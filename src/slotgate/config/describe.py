"""The settings as a list of descriptions, for messages, documents and the environment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, Tag
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from slotgate.capacity.units import format_size
from slotgate.config.choice import Choices
from slotgate.config.units import Unit, format_duration

Model = type[BaseModel]

_PLAIN = {int: "whole number", float: "number", bool: "true or false", str: "text"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting as it is declared.

    `models` are the groups that its value is made of (several: one of them, by tag), and `default`
    is then such a group.
    """

    key: str
    type_text: str
    sentence: str
    is_required: bool
    default: Any
    default_text: str
    unit: str
    bounds: dict[str, float] = field(default_factory=dict)
    choices: tuple[str, ...] = ()
    models: dict[str, Model] = field(default_factory=dict)
    is_list: bool = False
    examples: tuple[Any, ...] = ()

    def show(self, value: Any) -> str:
        """Write a value as it would stand in the file."""
        return show(value, self.unit)


def settings_of(model: Model, instance: BaseModel | None = None) -> tuple[Setting, ...]:
    """Describe the settings of one group, in the order they are declared.

    `instance` is the group as it is by default, where that is not what its fields say.
    """
    return tuple(
        _describe(
            str(info.validation_alias or name),
            info,
            getattr(instance, name) if instance is not None else info.default,
        )
        for name, info in model.model_fields.items()
    )


def walk(
    model: Model, path: tuple[str, ...] = (), instance: BaseModel | None = None
) -> Iterator[tuple[tuple[str, ...], Setting]]:
    """Yield every setting and group that is not inside a list, with its path."""
    for setting in settings_of(model, instance):
        here = (*path, setting.key)
        yield here, setting
        if setting.models and not setting.is_list:
            for inner in setting.models.values():
                yield from walk(inner, here, setting.default)


def environment_names(model: Model) -> dict[tuple[str, ...], str]:
    """Return the variable of each setting that holds a single value: SLOTGATE_QUEUE_MAX_WAITING."""
    return {
        path: "SLOTGATE_" + "_".join(path).upper()
        for path, setting in walk(model)
        if not setting.models and not setting.is_list and not path[0].startswith("admin_")
    }


def show(value: Any, unit: str = "") -> str:
    """Write a plain value as it would stand in the file."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if unit == "seconds":
        return format_duration(value)
    if unit == "bytes":
        return format_size(value)
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _describe(key: str, info: FieldInfo, default: Any) -> Setting:
    extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
    unit = next((m.name for m in info.metadata if isinstance(m, Unit)), str(extra.get("unit", "")))
    inner, is_list = _unwrapped(info.annotation)
    models = dict(_models(inner))
    choices = _choices(inner, info)
    is_required = default is PydanticUndefined
    default = None if is_required else default
    text = "" if models or is_required else show(default, unit)
    return Setting(
        key=key,
        type_text=_type_text(inner, unit, choices, is_list=is_list, has_models=bool(models)),
        sentence=info.description or "",
        is_required=is_required,
        default=default,
        default_text=str(extra.get("default_text", "none" if text == "()" else text)),
        unit=unit,
        bounds={
            bound: float(value)
            for m in info.metadata
            for bound in ("ge", "le")
            if (value := getattr(m, bound, None)) is not None
        },
        choices=choices,
        models=models,
        is_list=is_list,
        examples=tuple(info.examples or ()),
    )


def _choices(annotation: Any, info: FieldInfo) -> tuple[str, ...]:
    if get_origin(annotation) is Literal:
        return tuple(map(str, get_args(annotation)))
    return next((m.names for m in info.metadata if isinstance(m, Choices)), ())


def _unwrapped(annotation: Any) -> tuple[Any, bool]:
    """Strip `| None`, `tuple[..., ...]` and Annotated."""
    is_list = False
    while True:
        origin, args = get_origin(annotation), get_args(annotation)
        if origin is tuple:
            annotation, is_list = args[0], True
        elif origin in {Union, UnionType} and NoneType in args:
            annotation = next(arg for arg in args if arg is not NoneType)
        elif origin is Annotated and not any(isinstance(m, Tag) for m in args[1:]):
            annotation = args[0]
        else:
            return annotation, is_list


def _models(annotation: Any) -> Iterator[tuple[str, Model]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield "", annotation
    elif get_origin(annotation) in {Union, UnionType}:
        for arg in get_args(annotation):
            for tag in get_args(arg)[1:]:
                if isinstance(tag, Tag):
                    yield str(tag.tag), get_args(arg)[0]


def _type_text(
    annotation: Any, unit: str, choices: tuple[str, ...], *, is_list: bool, has_models: bool
) -> str:
    if choices:
        return " or ".join(choices)
    named = {"seconds": "duration", "bytes": "size"}.get(unit)
    text = "group" if has_models else named or _PLAIN.get(annotation, "")
    return f"list of {text}s" if is_list else text
