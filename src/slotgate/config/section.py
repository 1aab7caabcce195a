"""What every group of settings shares: frozen, complete, and silent about what it was given."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from slotgate.config.units import refuse_bool


class Section(BaseModel):
    """A group of settings.  Unknown keys are errors; values never appear in pydantic's messages."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        allow_inf_nan=False,
        validate_by_name=False,
        validate_by_alias=True,
    )


Count = Annotated[int, BeforeValidator(refuse_bool)]
Number = Annotated[float, BeforeValidator(refuse_bool)]

# It becomes a metric label, a column and a word of a command.
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,62}$"
Name = Annotated[str, Field(pattern=NAME_PATTERN)]
