"""Bytes and JSON shapes of the protocols that pass through.  Pure."""
