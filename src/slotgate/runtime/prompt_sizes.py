"""How many tokens a prompt probably has, by the bytes of its text: learned from what was counted.

    tokens = overhead + bytes / bytes_per_token

`bytes_per_token` is the quotient of two decayed sums, so that a long prompt counts for more than a
short one: of the tenant with the model, or else of the model with everybody, or else 4.  A language
has its own, and so has code, so tenants differ more than models do.  The estimate has 5 % more,
since a prompt that is longer than thought does harm and a shorter one does not.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass

DEFAULT_BYTES_PER_TOKEN = 4.0
# What a template writes around the messages.
OVERHEAD_TOKENS = 8
SAFETY = 1.05
# So much of what was learned remains after each further prompt.
MEMORY = 0.95
# How far off an estimate may be, at first and at least; deviations seen are taken three times.
FIRST_SPREAD = 0.5
LEAST_SPREAD = 0.05
DEVIATIONS = 3.0
# A tenant's own prompts count alone from the third on.
ENOUGH_PROMPTS = 3
MAX_KEYS = 4096

Key = tuple[str | None, str]


@dataclass(frozen=True, slots=True)
class PromptSize:
    """A prompt's length in tokens: what to reckon with, and between what it nearly surely is."""

    tokens: int
    low: int
    high: int


@dataclass(slots=True)
class _Learned:
    """What prompts of one key have had: decayed sums, and the relative deviation."""

    bytes: float = 0.0
    tokens: float = 0.0
    deviation: float = FIRST_SPREAD / DEVIATIONS
    prompts: int = 0

    def tokens_in(self, text_bytes: int) -> float:
        per_token = self.bytes / self.tokens if self.tokens else DEFAULT_BYTES_PER_TOKEN
        return OVERHEAD_TOKENS + text_bytes / per_token

    def learn(self, text_bytes: int, tokens: int) -> None:
        expected = self.tokens_in(text_bytes)
        off = abs(tokens - expected) / expected
        self.deviation = off + (self.deviation - off) * MEMORY
        self.bytes = self.bytes * MEMORY + text_bytes
        self.tokens = self.tokens * MEMORY + max(1, tokens - OVERHEAD_TOKENS)
        self.prompts += 1


class PromptSizes:
    """Estimates prompts, and learns from those that a backend has counted."""

    def __init__(self, *, max_keys: int = MAX_KEYS) -> None:
        self._max_keys = max_keys
        # (tenant, model), or (None, model) for all tenants -> learned; the longest unused first.
        self._learned: OrderedDict[Key, _Learned] = OrderedDict()

    def __len__(self) -> int:
        return len(self._learned)

    def estimate(self, tenant: str, model: str, text_bytes: int) -> PromptSize:
        """Return how long a prompt of so many bytes is; 0 tokens for one without text."""
        if text_bytes <= 0:
            return PromptSize(0, 0, 0)
        learned = self._find(tenant, model)
        expected = learned.tokens_in(text_bytes)
        spread = min(FIRST_SPREAD, max(LEAST_SPREAD, DEVIATIONS * learned.deviation))
        return PromptSize(
            tokens=math.ceil(expected * SAFETY),
            low=max(1, math.floor(expected * (1 - spread)) - OVERHEAD_TOKENS),
            high=math.ceil(expected * max(SAFETY, 1 + spread)) + OVERHEAD_TOKENS,
        )

    def learn(self, tenant: str, model: str, text_bytes: int, tokens: int) -> None:
        """Note that a prompt of so many bytes had so many tokens; nothing is learned from 0."""
        if text_bytes <= 0 or tokens <= 0:
            return
        for key in ((None, model), (tenant, model)):
            self._take(key).learn(text_bytes, tokens)
        while len(self._learned) > self._max_keys:
            self._learned.popitem(last=False)

    def _find(self, tenant: str, model: str) -> _Learned:
        own = self._learned.get((tenant, model))
        if own is not None and own.prompts >= ENOUGH_PROMPTS:
            return own
        return self._learned.get((None, model)) or _Learned()

    def _take(self, key: Key) -> _Learned:
        learned = self._learned.setdefault(key, _Learned())
        self._learned.move_to_end(key)
        return learned
