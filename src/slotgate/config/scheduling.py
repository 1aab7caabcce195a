"""Settings of the scheduler: which rule decides what, by name, and the rules' few numbers."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from slotgate.config.choice import one_of
from slotgate.config.keys import problem
from slotgate.config.section import Count, Number, Section
from slotgate.config.units import Seconds
from slotgate.core import policies


class SchedulingSettings(Section):
    """Who runs next, and what is not let in."""

    fairness: Annotated[str, *one_of(policies.FAIRNESS)] = Field(
        default="vtc", description="How the tenants share a busy server."
    )
    order: Annotated[str, *one_of(policies.ORDER)] = Field(
        default="fifo", description="Whose turn it is among the requests of one tenant."
    )
    admission: Annotated[str, *one_of(policies.ADMISSION)] = Field(
        default="deadline",
        description="When a request that would wait too long is refused: "
        "at its arrival, or when its time is over.",
    )
    retry_after: Annotated[str, *one_of(policies.RETRY_AFTER)] = Field(
        default="calendar", description="When a refused client is told to come back."
    )
    kv: Annotated[str, *one_of(policies.KV)] = Field(
        default="chance",
        description="What a request is counted with where the slots share one pool of context.",
    )
    concurrency: Annotated[str, *one_of(policies.CONCURRENCY)] = Field(
        default="gap_table", description="How many slots of a backend are used at once."
    )
    placement: Annotated[str, *one_of(policies.PLACEMENT)] = Field(
        default="predicted_finish",
        description="Which of the backends with a free slot a request runs on.",
    )
    tpot_target: Seconds | None = Field(
        default=None,
        ge=0.001,
        examples=["100ms"],
        description="The longest time between two tokens of a stream that is still good.",
        json_schema_extra={
            "unit": "seconds",
            "default_text": "four times what a stream takes that runs alone",
        },
    )
    kv_confidence: Number = Field(
        default=1.0,
        ge=0,
        le=5,
        description="How many standard deviations of its use a shared pool keeps in reserve.",
    )
    kv_watermark: Number = Field(
        default=0.03, ge=0, le=0.5, description="The part of a shared pool that always stays free."
    )
    long_prefill_tokens: Count = Field(
        default=2048,
        ge=1,
        le=1 << 24,
        description="The most prompt tokens a backend reads at once; a longer prompt goes alone.",
        json_schema_extra={"unit": "tokens"},
    )
    affinity_patience: Seconds = Field(
        default=0.0,
        ge=0,
        le=30,
        examples=["2s"],
        description="How long a request is held back, at most, for the backend that remembers its "
        "session, if that is full and saves more than the wait takes.",
    )
    max_bypass: Count = Field(
        default=4,
        ge=0,
        le=1000,
        description="How many requests may overtake one that does not fit yet.",
    )
    bypass_seconds: Seconds = Field(
        default=2.0,
        ge=0,
        description="How long after the first such request others still may.",
    )

    model_turn: Seconds = Field(
        default=10.0,
        ge=0.1,
        le=3600.0,
        description="How long a model of a router keeps being given requests while others wait "
        "that do not fit in memory beside it; at least as long as it took to load.",
    )

    @model_validator(mode="after")
    def _shortest_first_is_within_a_tenant(self) -> Self:
        if self.order == "sjf" and self.fairness == "none":
            raise problem(
                "sjf over all tenants starves those with long answers; set fairness too", "order"
            )
        return self
