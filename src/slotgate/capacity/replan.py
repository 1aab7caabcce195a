"""What if: the same plan with other settings, for its warnings and its remedies.

The layers stay where the plan has them, and so do the devices: what is compared differs in nothing
but what was changed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from slotgate.capacity.search import Search
from slotgate.capacity.settings import PAD_TOKENS
from slotgate.capacity.usage import Usage, Uses
from slotgate.errors import PlanRefused

if TYPE_CHECKING:
    from slotgate.capacity.plan import Plan
    from slotgate.capacity.wish import Wish


class Replan:
    """Answers what a plan would be with something changed."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.model = plan.model
        self.shape = plan.model.shape
        self.usage = plan.usage
        self.settings = plan.usage.settings
        self.memory = plan.usage.memory
        self.n_gpu_layers = plan.usage.placement.n_gpu_layers
        self._uses = Uses(plan.model, plan.devices, plan.wish)

    @property
    def own_tokens(self) -> int:
        """Tokens of memory that each slot has if all take as much as they can."""
        return self.memory.n_ctx // self.settings.n_seq

    def with_settings(self, **changes: Any) -> Usage | None:
        """The usage with some settings changed; None where llama.cpp would refuse them."""
        try:
            return self._uses.of(replace(self.settings, **changes), self.n_gpu_layers)
        except PlanRefused:
            return None

    def more_context(self, **changes: Any) -> int:
        """Bytes of context more with some settings changed, below zero if less; 0 if refused."""
        other = self.with_settings(**changes)
        return 0 if other is None else other.context_bytes - self.usage.context_bytes

    def more(self, **changes: Any) -> int:
        """The same for everything on the devices: context, scratch and inputs."""
        other = self.with_settings(**changes)
        return 0 if other is None else used_bytes(other) - used_bytes(self.usage)

    def planned(self, wish: Wish, slots: int, ctx_per_slot: int) -> Usage:
        """The usage of so many slots of so many tokens each; PlanRefused as llama.cpp would."""
        return self._search(wish).usage(slots, ctx_per_slot, self.n_gpu_layers)

    def most_slots(self, wish: Wish, ctx_per_slot: int) -> int:
        """How many slots of so many tokens each fit."""
        return self._search(wish).most_slots(ctx_per_slot, self.n_gpu_layers)

    def largest_context(self, wish: Wish, slots: int) -> int:
        """How many tokens each of so many slots can have; 0 if none fit or it would be refused."""
        try:
            return self._search(wish).largest_context(slots, self.n_gpu_layers)
        except PlanRefused:
            return 0

    def _search(self, wish: Wish) -> Search:
        return Search(self.model, self._uses, wish)


def used_bytes(usage: Usage) -> int:
    """What llama.cpp allocates, on all devices."""
    return sum(use.used for use in usage.devices)


def halved(tokens: int, times: int = 1) -> int:
    """Half of a context, a quarter, ..., as llama.cpp can have it; 0 if there is none."""
    return (tokens >> times) // PAD_TOKENS * PAD_TOKENS
