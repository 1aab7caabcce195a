"""What is rehearsed on: so many servers of such a pace, and how much of a load they can bear."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Final

from slotgate.errors import ConfigError
from slotgate.slotsim import Pace, ServerSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slotgate.load.arrival import Arrival
    from slotgate.load.lengths import LengthClass

# Milliseconds a step, milliseconds a busy slot, prompt tokens a second.
PACES: Final = {"gpu": (15.0, 1.2, 8000.0), "cpu": (60.0, 30.0, 250.0)}
_PARTS: Final = 3


def parse_pace(text: str, slots: int) -> Pace:
    """Read `gpu`, `cpu` or `STEP,EACH,PREFILL`; ConfigError if it is none of them."""
    numbers = PACES.get(text)
    if numbers is None:
        numbers = _numbers(text)
    fixed, each, prefill = numbers
    return Pace.linear(fixed / 1000, each / 1000, slots=slots, prefill=prefill)


def _numbers(text: str) -> tuple[float, float, float]:
    parts = text.split(",")
    expected = f"expected {', '.join(PACES)} or MS,MS,TOKENS such as 15,1.2,8000"
    if len(parts) != _PARTS:
        raise ConfigError(f"--pace {text}: {expected}")
    try:
        fixed, each, prefill = (float(part) for part in parts)
    except ValueError as error:
        raise ConfigError(f"--pace {text}: {expected}") from error
    if not (0 < fixed < inf and 0 <= each < inf and prefill > 0):
        raise ConfigError(f"--pace {text}: steps take time, and prompts are read at some speed")
    return fixed, each, prefill


@dataclass(frozen=True, slots=True)
class Servers:
    """So many servers alike; as a `Capacity`, what they bear together."""

    spec: ServerSpec
    count: int

    @property
    def specs(self) -> Sequence[ServerSpec]:
        return [self.spec] * self.count

    def cost(self, kind: LengthClass) -> float:
        """Seconds of all servers that a request of the class takes on average, at full batches."""
        return self._seconds(kind.input.mean, kind.output.mean)

    def load_of(self, arrivals: Sequence[Arrival], seconds: float) -> float:
        """How many times their capacity the arrivals ask for."""
        costs = (self._seconds(a.input_tokens, a.wanted_tokens * a.width) for a in arrivals)
        return sum(costs) / seconds

    def _seconds(self, input_tokens: float, output_tokens: float) -> float:
        pace, slots = self.spec.pace, self.spec.slots
        return (
            input_tokens / pace.prefill + output_tokens * pace.steps[slots] / slots
        ) / self.count


def faster(arrivals: Sequence[Arrival], factor: float) -> tuple[Arrival, ...]:
    """The same requests in less time: so many times the load."""
    return tuple(replace(arrival, at=arrival.at / factor) for arrival in arrivals)
