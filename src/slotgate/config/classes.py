"""Settings of the priority classes: how long each may wait, and what each gets of a busy server."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from slotgate.config.section import Number, Section
from slotgate.config.units import Seconds

ClassName = Literal["interactive", "standard", "batch"]


# What differs between the classes is only the default.


def _budget(seconds: float) -> Any:
    return Field(
        default=seconds,
        ge=0.1,
        description="The longest time that a request of the class may wait for its first token.",
    )


def _weight(weight: float) -> Any:
    return Field(
        default=weight,
        ge=0.01,
        le=1000,
        description="The class's share of a busy server, compared with other classes' weights.",
    )


def _holdback(share: float) -> Any:
    return Field(
        default=share,
        ge=0,
        le=0.9,
        description="The part of the slots, 0 to 0.9, that the class leaves to more urgent ones.",
    )


class ClassSettings(Section):
    """One priority class."""

    budget: Seconds = _budget(30.0)
    weight: Number = _weight(4.0)
    holdback: Number = _holdback(0.0)


class InteractiveSettings(ClassSettings):
    """The most urgent class."""

    budget: Seconds = _budget(10.0)
    weight: Number = _weight(16.0)


class BatchSettings(ClassSettings):
    """The class that can wait."""

    budget: Seconds = _budget(300.0)
    weight: Number = _weight(1.0)
    holdback: Number = _holdback(0.25)


class Classes(Section):
    """The priority classes, most urgent first."""

    interactive: InteractiveSettings = Field(
        default=InteractiveSettings(), description="Somebody watches the answer appear."
    )
    standard: ClassSettings = Field(
        default=ClassSettings(), description="A program waits for the answer."
    )
    batch: BatchSettings = Field(
        default=BatchSettings(), description="Nobody waits; it must be done some time."
    )

    def named(self, name: ClassName) -> ClassSettings:
        """Return the settings of a class."""
        chosen: ClassSettings = getattr(self, name)
        return chosen

    def budget(self, name: ClassName) -> float:
        """Return the budget of a class, in seconds."""
        return self.named(name).budget
