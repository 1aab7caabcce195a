"""The shell around the core: clock, driver, probes, lifecycle."""
