"""A scheduler that writes down what it is told of running requests."""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from slotgate.core import Ending, Scheduler
from slotgate.core.decision import Decision


class RecordingScheduler(Scheduler):
    """`told` has one tuple an event: its name, then what it said."""

    told: list[tuple[Any, ...]]

    @override
    def charge(
        self, ticket_id: str, *, input_tokens: int, cached_tokens: int, output_tokens: int
    ) -> list[Decision]:
        self.told.append(("charge", input_tokens, cached_tokens, output_tokens))
        return super().charge(
            ticket_id,
            input_tokens=input_tokens,
            cached_tokens=cached_tokens,
            output_tokens=output_tokens,
        )

    @override
    def timed(
        self,
        ticket_id: str,
        *,
        prompt_tokens: int,
        prompt_seconds: float,
        output_tokens: int,
        output_seconds: float,
    ) -> list[Decision]:
        del ticket_id, prompt_seconds, output_seconds
        self.told.append(("timed", prompt_tokens, output_tokens))
        return []

    @override
    def leave(
        self, ticket_id: str, ending: Ending, *, slot_free: bool | None = None
    ) -> list[Decision]:
        self.told.append(("leave", ending, slot_free))
        return super().leave(ticket_id, ending, slot_free=slot_free)

    @property
    def charged(self) -> list[tuple[Any, ...]]:
        """What was charged: input, cached and output tokens of each call."""
        return [event[1:] for event in self.told if event[0] == "charge"]
