"""What requests of our own a server can bear, decided before any is sent."""

from __future__ import annotations

from dataclasses import dataclass

from slotgate.doctor.checks.context import is_surely_separate
from slotgate.doctor.evidence import SLOTS, Evidence, Make

# llama-server's default batch: a prompt as long shows what one batch costs.
PROMPT_TOKENS = 2048
STREAM_TOKENS = 512
# A first prompt tells how fast prompts are read, so that the long one cannot last for minutes.
FIRST_TOKENS = 128
READING_SECONDS = 10.0
# A shorter prompt shows nothing.
LEAST_TOKENS = 64
# Tokens of a slot that its prompt leaves free, for the answer.
_SPARE_TOKENS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurePlan:
    """`stream_tokens`: the most that a stream may write.

    `prompt_tokens`: the most that is read beside it, 0 if there is no slot for that.
    """

    stream_tokens: int
    prompt_tokens: int

    def describe(self, seconds: float) -> str:
        """Say what will be asked of the server."""
        stream = f"a stream of at most {self.stream_tokens} tokens"
        if not self.prompt_tokens:
            return f"{stream}, in one slot, for at most {seconds:g} s; after it, one token"
        first, most = self.first_tokens, self.prompt_tokens
        beside = f"beside it prompts of {first} and at most {most:,} tokens, each answered by one"
        when = f"in two slots, for at most {seconds:g} s; after them, one token"
        return f"{stream}, and {beside}; {when}"

    @property
    def first_tokens(self) -> int:
        return min(FIRST_TOKENS, self.prompt_tokens)

    def long_tokens(self, rate: float | None) -> int:
        """How many tokens to have read, if so many are read in a second; None: it is not known."""
        if rate is None:
            return self.first_tokens
        return min(self.prompt_tokens, max(self.first_tokens, int(rate * READING_SECONDS)))


def plan_measure(seen: Evidence, *, is_forced: bool) -> MeasurePlan | str:
    """Return what may be asked, or why nothing is.

    Forced, it takes slots that others may be waiting for.  It never wakes a server, and never asks
    for more context than there surely is.
    """
    refusal = _never(seen) or ("" if is_forced else _not_now(seen))
    if refusal or seen.size is None:
        return refusal or "nothing was asked: it tells neither slots nor context"
    slots, context = seen.size
    idle = seen.idle_slots
    places = slots if is_forced or idle is None else idle
    if is_surely_separate(seen):
        stream, prompt = context // 2, context - _SPARE_TOKENS
    else:
        free = context - _held(seen)
        stream, prompt = free // 4, free // 2
    if min(stream, prompt) < LEAST_TOKENS:
        return "nothing was asked: there is too little context"
    return MeasurePlan(
        stream_tokens=min(stream, STREAM_TOKENS),
        prompt_tokens=min(prompt, PROMPT_TOKENS) if places >= 2 else 0,
    )


def _never(seen: Evidence) -> str:
    if seen.make is not Make.LLAMA_SERVER:
        return "nothing was asked: only a llama-server is measured (`slotgate bench` measures any)"
    if seen.is_sleeping:
        return "nothing was asked: it sleeps"
    answer = seen.answers.get(SLOTS)
    if answer is not None and answer.trouble is not None:
        return f"nothing was asked: GET {SLOTS} had {answer.message}"
    return ""


def _not_now(seen: Evidence) -> str:
    idle = seen.idle_slots
    if idle is None:
        return (
            "nothing was asked: whether a slot is free cannot be seen (--force asks all the same)"
        )
    if idle <= 0 or (seen.counted is not None and seen.counted.deferred):
        return "nothing was asked: all slots are busy (--force asks all the same)"
    return ""


def _held(seen: Evidence) -> int:
    """Tokens in the slots that work, and as many more as they may want meanwhile."""
    if not seen.looks:
        return 0
    working = [slot for slot in seen.looks[-1].slots if slot.is_processing]
    return sum((slot.n_prompt_tokens or 0) + STREAM_TOKENS for slot in working)
