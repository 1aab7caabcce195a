"""Public helpers for tests: a clock and dice under control, and scheduler tests as scripts."""

from __future__ import annotations

from slotgate.testing.clock import FakeClock, FakeDice
from slotgate.testing.script import Script, ready, routed

__all__ = ["FakeClock", "FakeDice", "Script", "ready", "routed"]
