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

    def gpu_layers(self, slots: int, ctx_per_slot: int) -> int | None:
        """How many layers the GPUs can hold beside so much context; None: all of them."""
        if self._wish.n_gpu_layers is not None:
            return self._wish.n_gpu_layers
        if self._fits(slots, ctx_per_slot, None):
            return None
        layers = self._model.shape.layers.all
        return _most(layers, lambda n: self._fits(slots, ctx_per_slot, n))

    def _fits(self, slots: int, ctx_per_slot: int, n_gpu_layers: int | None) -> bool:
        try:
            return self.usage(slots, ctx_per_slot, n_gpu_layers).fits
        except PlanRefused:
            # Of a number of slots that llama.cpp cannot do with, such as more than a batch holds.
            return False

    def choose(self) -> Usage:
        """The settings that the wish leaves open, chosen; the smallest there are if none fit."""
        if self._wish.ctx_size is not None:
            return self._as_asked(self._wish.ctx_size)
        slots, context = self._wish.slots, self._wish.ctx_per_slot
        useful = min(USEFUL_TOKENS, self._trained) if context is None else context
        layers = self._gpu_layers_for(slots, useful)
        if slots is None and context is None:
            slots = self._default_slots(useful, layers)
        if slots is None:
            slots = self.most_slots(useful, layers) or 1
        if context is None:
            context = self.largest_context(slots, layers) or PAD_TOKENS
        return self.usage(slots, context, layers)

    def _as_asked(self, ctx_size: int) -> Usage:
        slots = self._wish.slots or DEFAULT_SLOTS
        settings = self._wish.settings_as_asked(slots, ctx_size)
        own = settings.n_ctx if self._wish.unified else -(-ctx_size // slots)
        return self._uses.of(settings, self.gpu_layers(1 if self._wish.unified else slots, own))

    def _gpu_layers_for(self, slots: int | None, useful: int) -> int | None:
        """All layers if anything useful fits beside them: a layer on the host slows all down."""
        if slots is not None:
            return self.gpu_layers(slots, useful)
        return self.gpu_layers(1, useful)

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
