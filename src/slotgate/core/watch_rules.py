"""How patient a watchdog is: the operator's numbers."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockRules:
    """Of the streams' clocks: seconds and factors.

    `unknown` is how long what was never measured may take.
    """

    first_token_floor: float = 10.0
    first_token_factor: float = 4.0
    gap_floor: float = 10.0
    gap_factor: float = 20.0
    unknown: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRules:
    """Of everything.  Times are seconds.

    A question about its state that is open for `mute_after` counts as not answered.  `errors` is
    how many "Compute error" in a row are too many.  Only if `quarantines` is a deployment ever kept
    from getting work.
    """

    clocks: ClockRules = field(default_factory=ClockRules)
    mute_after: float = 3.0
    slow_factor: float = 1.6
    slow_after: float = 20.0
    outside_after: float = 10.0
    errors: int = 5
    quarantines: bool = True
    shortest_quarantine: float = 5.0
    longest_quarantine: float = 120.0
