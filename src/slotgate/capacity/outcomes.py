"""What a remedy is made of: a question, what there is, what there would be, and a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from typing_extensions import override

from slotgate.capacity.replan import Replan
from slotgate.capacity.units import show_size
from slotgate.errors import PlanRefused

if TYPE_CHECKING:
    from slotgate.capacity.plan import Plan
    from slotgate.capacity.usage import Usage
    from slotgate.capacity.wish import Wish


class Verdict(StrEnum):
    """What a remedy comes to."""

    HELPS = "helps"
    DOES_NOT_HELP = "does not help"
    NOT_POSSIBLE = "not possible"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Slots, the tokens that each can use, and the bytes of their context on all devices.

    `what`: what is changed, in words.
    `fits`: whether there is room for it.
    `refusal`: why llama.cpp would refuse it, "" if it would not.
    """

    what: str
    slots: int
    ctx_per_slot: int
    context_bytes: int = 0
    fits: bool = False
    refusal: str = ""

    @override
    def __str__(self) -> str:
        if self.refusal:
            return f"{self.what}: refused, {self.refusal}"
        if not self.slots or not self.ctx_per_slot:
            return f"{self.what}: no slot fits"
        ending = "" if self.fits else ", which does not fit"
        return f"{self.what}: {self.size}, {show_size(self.context_bytes)} of context{ending}"

    @property
    def size(self) -> str:
        """Such as `4 slots of 8,192 tokens`."""
        return size_in_words(self.slots, self.ctx_per_slot)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A question with its answer; `code` is for programs and does not change."""

    code: str
    question: str
    before: Outcome
    after: tuple[Outcome, ...]
    verdict: Verdict
    answer: str


class Judge:
    """Plans again with something changed.

    `tokens` is the memory of each slot, which may be more than a slot can use.
    `most` and `longest` are the slots and the context that have room now, asked for or not: what a
    remedy yields is measured against them.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.what = Replan(plan)
        self.tokens = self.what.own_tokens
        self.before = self._outcome("now", plan.usage)
        self.most = self.what.most_slots(plan.wish, self.tokens)
        self.longest = self.what.largest_context(plan.wish, plan.slots)

    def outcome(self, what: str, wish: Wish, slots: int, tokens: int) -> Outcome:
        """What so many slots of so many tokens each come to; 0 of either is that none fit."""
        if not slots or not tokens:
            return Outcome(what=what, slots=slots, ctx_per_slot=tokens)
        try:
            return self._outcome(what, self.what.planned(wish, slots, tokens))
        except PlanRefused as refusal:
            return Outcome(what=what, slots=slots, ctx_per_slot=tokens, refusal=str(refusal))

    def _outcome(self, what: str, usage: Usage) -> Outcome:
        slots = usage.settings.n_seq
        return Outcome(
            what=what,
            slots=slots,
            ctx_per_slot=min(usage.memory.n_ctx // slots, usage.memory.n_ctx_train),
            context_bytes=usage.context_bytes,
            fits=usage.fits,
        )


def size_in_words(slots: int, tokens: int) -> str:
    """Such as `4 slots of 8,192 tokens`, or `no slot of 8,192 tokens`."""
    count = str(slots or "no")
    return f"{count} {'slots' if slots > 1 else 'slot'} of {tokens:,} tokens"
