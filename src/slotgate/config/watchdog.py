"""Settings of the watchdog: how patient it is, and what it does about what it finds."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from slotgate.config.section import Count, Number, Section
from slotgate.config.units import Seconds

__all__ = ["WatchdogSettings"]


class WatchdogSettings(Section):
    """Notices servers that are stuck although they look healthy."""

    enabled: bool = Field(default=True, description="Whether backends are watched at all.")
    action: Literal["alert", "quarantine", "restart"] = Field(
        default="restart",
        description="What is done at most: tell; also end stuck streams and give the backend no "
        "work; also restart an engine that Slotgate started.",
    )
    first_token_floor: Seconds = Field(
        default=10.0,
        ge=1.0,
        description="How long a first token may take, besides the reading of prompts.",
    )
    first_token_factor: Number = Field(
        default=4.0,
        ge=1,
        le=100,
        description="How many times longer than measured the reading of prompts may take.",
    )
    gap_floor: Seconds = Field(
        default=10.0, ge=1.0, description="How long the next token of a stream may always take."
    )
    gap_factor: Number = Field(
        default=20.0,
        ge=2,
        le=1000,
        description="How many times longer than measured the next token may take.",
    )
    slow_factor: Number = Field(
        default=1.6,
        ge=1.1,
        le=100,
        description="How many times longer than usual a token takes on a backend that is slow.",
    )
    slow_after: Seconds = Field(
        default=20.0, ge=2.0, description="How long a backend must be slow before it is told."
    )
    outside_after: Seconds = Field(
        default=10.0,
        ge=1.0,
        description="How long work that is not ours must last before it is told.",
    )
    compute_errors: Count = Field(
        default=5,
        ge=1,
        le=1000,
        description='How many answers "Compute error" in a row are too many: more than make a '
        "backend wait (`health.failures`), so that it was tried again.",
    )
    quarantine: Seconds = Field(
        default=5.0,
        ge=1.0,
        le=120.0,
        description="How long a stuck backend gets no work at least; "
        "each time in vain twice as long, up to 2 minutes.",
    )
    restarts_per_hour: Count = Field(
        default=4, ge=0, le=1000, description="The most restarts of one engine within an hour."
    )
    restart_grace: Seconds = Field(
        default=5.0,
        ge=0.0,
        description="How long a stuck engine may take to end after SIGTERM, before SIGKILL.",
    )
    hook: tuple[Annotated[str, Field(max_length=4096)], ...] = Field(
        default=(),
        max_length=64,
        examples=[["/usr/local/bin/tell-me", "--about", "slotgate"]],
        description="The command that is run for each finding, and its arguments; not by a shell. "
        "It gets the finding as JSON on its standard input.",
    )
    hook_timeout: Seconds = Field(
        default=30.0, ge=0.1, description="How long the hook may run before it is killed."
    )
    cooldown: Seconds = Field(
        default=300.0,
        ge=0.0,
        description="The time between two restarts of an engine, "
        "and between two runs of the hook for the same finding of a backend.",
    )
