"""How hypothesis runs: `faults` tries the same examples each time, and seeks no smaller ones."""

from __future__ import annotations

from hypothesis import Phase, settings

settings.register_profile("faults", derandomize=True, database=None, phases=(Phase.generate,))
