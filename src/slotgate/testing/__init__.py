"""Public helpers for tests: FakeClock, Script, a scripted backend."""
