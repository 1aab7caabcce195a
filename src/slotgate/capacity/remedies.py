"""What to do when slots are unavailable: four questions, answered for this model and devices.

    more-slots        raise slots and context together
    quantize-cache    keep keys and values in fewer bits
    shorten-windows   give each slot a shorter context
    queue             let requests wait where they take nothing of the device

Each is planned again with that one thing changed, and judged by what comes of it: what helps one
model does nothing for another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slotgate.capacity.outcomes import Judge, Outcome, Remedy, Verdict, size_in_words
from slotgate.capacity.replan import halved
from slotgate.capacity.settings import MAX_SEQUENCES, PAD_TOKENS, padded
from slotgate.capacity.units import show_size
from slotgate.errors import PlanRefused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slotgate.capacity.plan import Plan
    from slotgate.capacity.usage import Usage

# Half the bits, and a quarter.
_CHEAPER_TYPES = ("q8_0", "q4_0")
# Fewer bits that save less of the context, or make less room, are not worth what they may do to
# the answers.
_WORTH_SAVED = 0.25
_WORTH_ROOM = 1.1
# Half the context should yield twice the slots; below this it is given up for too little.
_WORTH_HALF = 1.6
# What a request that waits takes of the gateway's memory, its connection included.
WAITING_BYTES = 10 * 1024
_NOTHING_SAVED = "There is nothing in this context that would take fewer bits."


def remedies_of(plan: Plan) -> tuple[Remedy, ...]:
    """The four remedies, always in the same order."""
    judge = Judge(plan)
    return (_more_slots(judge), _quantize(judge), _shorten(judge), _queue(judge))


def _more_slots(judge: Judge) -> Remedy:
    plan, tokens = judge.plan, judge.tokens
    doubled = judge.outcome("twice the slots and the pool", plan.wish, 2 * plan.slots, tokens)
    after = [doubled]
    verdict = Verdict.HELPS
    if doubled.fits:
        answer = f"There is room for {doubled.size}."
    elif judge.most > plan.slots:
        after.append(judge.outcome("as many as fit", plan.wish, judge.most, tokens))
        answer = f"There is no room for twice as many, but for {after[-1].size}."
    else:
        verdict = Verdict.NOT_POSSIBLE
        room = size_in_words(judge.most or 1, tokens)
        answer = f"There is room for {room}, and for no more."
        if not judge.most:
            answer = f"There is not even room for {room}."
    answer += _price_of_slots(judge)
    return Remedy(
        code="more-slots",
        question="What if slots and context are raised together?",
        before=judge.before,
        after=tuple(after),
        verdict=verdict,
        answer=answer,
    )


def _price_of_slots(judge: Judge) -> str:
    plan = judge.plan
    price = f" A slot more costs {show_size(plan.bytes_per_slot)}." if plan.bytes_per_slot else ""
    if plan.usage.settings.unified or judge.tokens <= PAD_TOKENS:
        return price
    alone = size_in_words(2 * plan.slots, padded(judge.tokens // 2))
    return f"{price} Raising --parallel alone divides what there is: {alone}."


@dataclass(frozen=True, slots=True)
class _Quantized:
    """What one cache type comes to; `same` is its usage at the same slots and context."""

    kind: str
    same: Usage | None
    outcomes: tuple[Outcome, ...]
    room: float = 0.0

    def saved(self, judge: Judge) -> int:
        now = judge.before.context_bytes
        return 0 if self.same is None else now - self.same.context_bytes

    def scratch(self, judge: Judge) -> int:
        """Bytes of scratch more, for the copy that a GPU makes of a quantised layer."""
        now = judge.plan.usage.compute.planned
        return 0 if self.same is None else self.same.compute.planned - now

    def is_worthwhile(self, judge: Judge) -> bool:
        saved = self.saved(judge) / judge.before.context_bytes
        return saved >= _WORTH_SAVED and self.room >= _WORTH_ROOM

    def in_words(self, judge: Judge) -> str:
        if self.same is None:
            return f"{self.kind} is refused: {self.outcomes[0].refusal}."
        percent = round(100 * self.same.context_bytes / judge.before.context_bytes)
        return f"{self.kind} takes {percent} % of the bytes: room for {_sizes(self.outcomes)}."


def _quantize(judge: Judge) -> Remedy:
    tried = [_quantized(judge, kind) for kind in _CHEAPER_TYPES]
    # A type that takes as many bytes as there are now is no remedy.
    tried = [one for one in tried if one.same is None or one.saved(judge) > 0]
    answers = [one.in_words(judge) for one in tried]
    if tried and all(one.same is None for one in tried):
        verdict = Verdict.NOT_POSSIBLE
    elif any(one.is_worthwhile(judge) for one in tried):
        verdict = Verdict.HELPS
        answers += [_room_now(judge), "Fewer bits may change answers: compare some."]
    else:
        verdict = Verdict.DOES_NOT_HELP
        answers += [_room_now(judge), _why_not_bits(judge, tried)] if tried else [_NOTHING_SAVED]
    return Remedy(
        code="quantize-cache",
        question="What if the cache is quantised?",
        before=judge.before,
        after=tuple(outcome for one in tried for outcome in one.outcomes),
        verdict=verdict,
        answer=" ".join(answers),
    )


def _quantized(judge: Judge, kind: str) -> _Quantized:
    plan, tokens = judge.plan, judge.tokens
    wish = plan.wish.with_types(kind)
    try:
        same = judge.what.planned(wish, plan.slots, tokens)
    except PlanRefused as refusal:
        refused = Outcome(what=kind, slots=plan.slots, ctx_per_slot=tokens, refusal=str(refusal))
        return _Quantized(kind, None, (refused,))
    longest = judge.what.largest_context(wish, plan.slots)
    most = judge.what.most_slots(wish, tokens)
    outcomes = (
        judge.outcome(f"{kind}, same slots", wish, plan.slots, longest),
        judge.outcome(f"{kind}, same context", wish, most, tokens),
    )
    room = max(_times(longest, judge.longest), _times(most, judge.most))
    return _Quantized(kind, same, outcomes, room)


def _room_now(judge: Judge) -> str:
    by_context = size_in_words(judge.plan.slots if judge.longest else 0, judge.longest)
    by_slots = size_in_words(judge.most, judge.tokens)
    known = {by_slots: judge.most, by_context: judge.longest}
    room = [words for words, fits in known.items() if fits]
    return f"Now there is room for {' or '.join(room) or 'no slot'}."


def _why_not_bits(judge: Judge, tried: list[_Quantized]) -> str:
    """What stays, or eats the savings."""
    state = judge.what.memory.parts.get("state", 0)
    if 4 * state >= judge.what.memory.total:
        return f"{show_size(state)} of the context are states, which stay f32."
    saved, eaten = max((one.saved(judge), one.scratch(judge)) for one in tried)
    if 2 * eaten >= saved:
        return f"Of {show_size(saved)} saved, the f16 copy of a layer takes {show_size(eaten)}."
    return "That makes hardly more room."


def _shorten(judge: Judge) -> Remedy:
    plan = judge.plan
    after = []
    for name, times in (("half the context", 1), ("a quarter of the context", 2)):
        tokens = halved(judge.tokens, times)
        if tokens:
            slots = judge.what.most_slots(plan.wish, tokens)
            after.append(judge.outcome(name, plan.wish, slots, tokens))
    verdict, answer = _judge_shorter(judge, after)
    return Remedy(
        code="shorten-windows",
        question="What if each slot's context window is shorter?",
        before=judge.before,
        after=tuple(after),
        verdict=verdict,
        answer=answer,
    )


def _judge_shorter(judge: Judge, after: list[Outcome]) -> tuple[Verdict, str]:
    now = size_in_words(judge.most, judge.tokens)
    if not after:
        return Verdict.NOT_POSSIBLE, f"A slot has at least {PAD_TOKENS} tokens, and has them now."
    if judge.most == MAX_SEQUENCES:
        return Verdict.DOES_NOT_HELP, f"There is room for {now}, and llama.cpp holds no more."
    room = f"There is room for {_sizes(after)}, instead of {now}."
    if _times(after[0].slots, judge.most) >= _WORTH_HALF:
        return Verdict.HELPS, f"{room} A request longer than its slot is refused."
    return Verdict.DOES_NOT_HELP, f"{room} {_why_not_shorter(judge)}"


def _why_not_shorter(judge: Judge) -> str:
    parts = judge.what.memory.parts
    fixed = {"window": "window caches", "state": "states"}
    kept = [
        f"{show_size(parts[part])} of {words}" for part, words in fixed.items() if part in parts
    ]
    if kept:
        return f"A shorter context leaves {' and '.join(kept)} as they are."
    return "What else is on the device takes the room."


def _queue(judge: Judge) -> Remedy:
    plan = judge.plan
    running = size_in_words(plan.slots, judge.before.ctx_per_slot)
    answer = (
        f"{running} run at once; other requests wait in Slotgate for the next slot instead of "
        "being told that none is available (`slotgate serve` in front of this server, or "
        "`slotgate up`, which starts it). "
        f"A request that waits takes nothing of the device, and about {WAITING_BYTES // 1024} KiB "
        f"of the host beside its body: {show_size(1000 * WAITING_BYTES)} for 1,000. "
        "That evens out bursts; if more comes than the slots can answer, the queue fills and "
        "refuses in order."
    )
    return Remedy(
        code="queue",
        question="What if requests queue instead?",
        before=judge.before,
        after=(judge.outcome("with a queue", plan.wish, plan.slots, judge.tokens),),
        verdict=Verdict.HELPS if plan.fits else Verdict.DOES_NOT_HELP,
        answer=answer if plan.fits else "What runs must fit first; then the others can wait.",
    )


def _sizes(outcomes: Sequence[Outcome]) -> str:
    fitting = [one.size for one in outcomes if one.fits]
    return " or ".join(dict.fromkeys(fitting)) or "no slot"


def _times(after: int, before: int) -> float:
    """How many times as much; where there was nothing, anything is a gain."""
    if not before:
        return float("inf") if after else 1.0
    return after / before
