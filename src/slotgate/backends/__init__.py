"""Things that run models."""
