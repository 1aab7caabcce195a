"""Benchmarks; each prints one table."""
