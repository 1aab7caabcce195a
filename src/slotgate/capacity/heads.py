"""The sizes of a token's keys and values on each layer."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """Heads per layer, and the elements of one: full layers and window layers may differ.

    `latent`: one row stands for keys and values, and there are no value rows (MLA).
    """

    kv_heads: tuple[int, ...]
    key: int
    value: int
    key_swa: int
    value_swa: int
    windowed: tuple[bool, ...]
    latent: bool = False

    def key_size(self, layer: int) -> int:
        """Elements of one head's key."""
        return self.key_swa if self.windowed[layer] else self.key

    def value_size(self, layer: int) -> int:
        """Elements of one head's value."""
        return self.value_swa if self.windowed[layer] else self.value

    def key_row(self, layer: int) -> int:
        """Elements of a token's keys."""
        return self.key_size(layer) * self.kv_heads[layer]

    def value_row(self, layer: int) -> int:
        """Elements of a token's values."""
        return self.value_size(layer) * self.kv_heads[layer]

    def widest_value_row(self) -> int:
        """Elements that values take on every layer when they are stored transposed."""
        return max((self.value_row(layer) for layer in range(len(self.kv_heads))), default=0)

    def of_one_head(self, elements: int, *, everywhere: bool = False) -> Heads:
        """The heads of an indexer: one key head of that size, on full layers or `everywhere`."""
        one = replace(self, kv_heads=(1,) * len(self.kv_heads), key=elements)
        return replace(one, key_swa=elements) if everywhere else one
