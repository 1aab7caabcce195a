"""The counters of `/metrics`."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(slots=True)
class Counters:
    """Totals since the start, in tokens and seconds; what is not a total says so."""

    prompt_tokens: int = 0
    prompt_tokens_cached: int = 0
    prompt_seconds: float = 0.0
    output_tokens: int = 0
    output_seconds: float = 0.0
    decodes: int = 0
    busy_slots: int = 0
    largest_sequence: int = 0
    # Gauges, as of the moment they were asked for.
    processing: int = 0
    deferred: int = 0

    def add_output(self, tokens: int, seconds: float, held: int) -> None:
        """A slot was released after `tokens`, the last of them `seconds` after the first."""
        if tokens:
            self.output_tokens += tokens
            self.output_seconds += seconds
            self.largest_sequence = max(self.largest_sequence, held)

    def copy(self, *, processing: int, deferred: int) -> Counters:
        return replace(self, processing=processing, deferred=deferred)
