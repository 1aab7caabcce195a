"""Settings of the patience with backends that fail."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from slotgate.config.keys import problem
from slotgate.config.section import Count, Section
from slotgate.config.units import Seconds


class HealthSettings(Section):
    """When a backend that fails is left alone."""

    failures: Count = Field(
        default=3,
        ge=1,
        le=1000,
        description="How many requests in a row must fail on a backend before it gets no more.",
    )
    first_pause: Seconds = Field(
        default=5.0,
        ge=0.1,
        description="How long it is left alone the first time; then twice as long each time.",
    )
    longest_pause: Seconds = Field(
        default=120.0, ge=0.1, description="How long it is left alone at most."
    )

    @model_validator(mode="after")
    def _the_longest_is_not_shorter(self) -> Self:
        if self.longest_pause < self.first_pause:
            raise problem("is shorter than first_pause", "longest_pause")
        return self
