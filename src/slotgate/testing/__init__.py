"""Public helpers for tests: a clock and dice under control."""

from __future__ import annotations

from slotgate.testing.clock import FakeClock, FakeDice

__all__ = ["FakeClock", "FakeDice"]
