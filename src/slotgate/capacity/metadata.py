"""The keys of a model's header, read as llama.cpp reads them: its types, defaults and demands.

Keys are given without the architecture's name that stands before them in the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from slotgate.errors import PlanRefused

# What a header's reader gives: numbers, texts, arrays of numbers, and arrays left in the file.
Meta = Mapping[str, object]


class Keys:
    """Reads the keys of the model's own architecture."""

    def __init__(self, meta: Meta) -> None:
        self.meta = meta
        self.architecture = _architecture(meta)

    def has(self, key: str) -> bool:
        return f"{self.architecture}.{key}" in self.meta

    def raw(self, key: str) -> object | None:
        return self.meta.get(f"{self.architecture}.{key}")

    def number(self, key: str, default: int | None = None) -> int:
        """One whole number; without a default the key is required."""
        value = self.raw(key)
        if value is None:
            if default is None:
                raise PlanRefused(f"the model lacks the key {self.architecture}.{key}")
            return default
        return self._checked(key, value)

    def positive(self, key: str, default: int | None = None) -> int:
        """One whole number above zero."""
        value = self.number(key, default)
        if value <= 0:
            raise PlanRefused(f"the key {self.architecture}.{key} is {value}; it must be positive")
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        value = self.raw(key)
        return default if value is None else bool(value)

    def array(self, key: str) -> tuple[int, ...] | None:
        """An array of numbers; None if the key is absent or a single number."""
        value = self.raw(key)
        if isinstance(value, Sequence) and not isinstance(value, str):
            return tuple(self._checked(key, element) for element in value)
        return None

    def _checked(self, key: str, value: object) -> int:
        if not isinstance(value, int) or value < 0:
            raise PlanRefused(f"the key {self.architecture}.{key} is no number of anything")
        return int(value)

    def per_layer(
        self, key: str, layers: int, default: tuple[int, ...] | None = None
    ) -> tuple[int, ...]:
        """A number for each layer: an array of exactly that length, or one number for all."""
        array = self.array(key)
        if array is None:
            if not self.has(key) and default is not None:
                return default
            return (self.number(key),) * layers
        if len(array) != layers:
            name = f"{self.architecture}.{key}"
            raise PlanRefused(f"the key {name} has {len(array)} elements for {layers} layers")
        return array

    def vocabulary(self) -> int:
        """Number of tokens that the model knows; 0 if the header does not say."""
        tokens = self.meta.get("tokenizer.ggml.tokens")
        if hasattr(tokens, "__len__"):
            return len(tokens)
        return self.number("vocab_size", 0)


def _architecture(meta: Meta) -> str:
    name = meta.get("general.architecture")
    if not isinstance(name, str) or not name:
        raise PlanRefused("the model's header names no architecture (general.architecture)")
    return name
