"""The search for slots and context: the most that fits, found by halving.

What a context takes never shrinks when it has more slots or more tokens, so the largest that fits
is where fitting ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.capacity.settings import MAX_SEQUENCES, PAD_TOKENS, padded
from slotgate.capacity.wish import DEFAULT_SLOTS
from slotgate.errors import PlanRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    from slotgate.capacity.model import Model
    from slotgate.capacity.usage import Usage, Uses
    from slotgate.capacity.wish import Wish

# A slot smaller than this is of little use: llama.cpp's own planner goes no lower either.
USEFUL_TOKENS = 4096


class Search:
    """Finds what fits of one wish on some devices."""

    def __init__(self, model: Model, uses: Uses, wish: Wish) -> None:
        self._model = model
        self._uses = uses
        self._wish = wish
        self._trained = padded(model.shape.n_ctx_train)

    def usage(self, slots: int, ctx_per_slot: int, n_gpu_layers: int | None) -> Usage:
        return self._uses.of(self._wish.settings(slots, ctx_per_slot), n_gpu_layers)

    def largest_context(self, slots: int, n_gpu_layers: int | None) -> int:
        """Tokens that each of so many slots can have, at most those of the training; 0: none."""
        steps = self._trained // PAD_TOKENS
        return PAD_TOKENS * _most(
            steps, lambda n: self.usage(slots, n * PAD_TOKENS, n_gpu_layers).fits
        )

    def most_slots(self, ctx_per_slot: int, n_gpu_layers: int | None) -> int:
        """How many slots of so many tokens fit; 0: none."""
        return _most(MAX_SEQUENCES, lambda n: self._fits(n, ctx_per_slot, n_gpu_layers))

    def gpu_layers(self) -> int | None:
        """How many layers go to the GPUs; None: all of them.

        All, if a slot of any use fits beside them: a layer on the host slows every token down, so
        it is never moved there to make room for more context.  Else as many as leave room for what
        was asked, or for that slot.
        """
        if self._wish.n_gpu_layers is not None:
            return self._wish.n_gpu_layers
        useful = min(USEFUL_TOKENS, self._trained)
        if self._fits(1, useful, None):
            return None
        slots, context = self._wish.slots or 1, self._wish.ctx_per_slot or useful
        layers = self._model.shape.layers.all
        return _most(layers, lambda n: self._fits(slots, context, n))

    def _fits(self, slots: int, ctx_per_slot: int, n_gpu_layers: int | None) -> bool:
        try:
            return self.usage(slots, ctx_per_slot, n_gpu_layers).fits
        except PlanRefused:
            # Of a number of slots that llama.cpp cannot do with, such as more than a batch holds.
            return False

    def choose(self) -> Usage:
        """The settings that the wish leaves open, chosen; the smallest there are if none fit."""
        layers = self.gpu_layers()
        if self._wish.ctx_size is not None:
            slots = self._wish.slots or DEFAULT_SLOTS
            return self._uses.of(self._wish.settings_as_asked(slots, self._wish.ctx_size), layers)
        slots, context = self._slots(layers), self._wish.ctx_per_slot
        if context is None:
            context = self.largest_context(slots, layers) or PAD_TOKENS
        return self.usage(slots, context, layers)

    def _slots(self, n_gpu_layers: int | None) -> int:
        if self._wish.slots is not None:
            return self._wish.slots
        if self._wish.ctx_per_slot is not None:
            return self.most_slots(self._wish.ctx_per_slot, n_gpu_layers) or 1
        return self._default_slots(min(USEFUL_TOKENS, self._trained), n_gpu_layers)

    def _default_slots(self, useful: int, n_gpu_layers: int | None) -> int:
        fitting = (n for n in range(DEFAULT_SLOTS, 1, -1) if self._fits(n, useful, n_gpu_layers))
        return next(fitting, 1)


def _most(limit: int, fits: Callable[[int], bool]) -> int:
    """The largest number from 0 to the limit that fits, if all smaller ones do."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low
