"""Slot-aware admission control for llama.cpp."""

__version__ = "0.1.0.dev0"
