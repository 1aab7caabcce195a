"""A fault that is planted: one edit of a module of the core."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    file: str
    old: str
    new: str
