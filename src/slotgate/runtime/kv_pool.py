"""Whether the slots of a llama-server share one pool of context, and how much it surely holds.

When a shared pool overflows, llama-server ends every running request.  It does not say whether it
has one: it shows the number of slots and what each may hold, and a slot of a shared pool may hold
all of it.  What is known of it, the surest first:

1. What the operator says (`kv_pool`), or we ourselves, of an engine that we started.
2. What was seen:
   - A slot that idles loses its tokens although no other task has been in it.  At each new task,
     and when a shared pool is full, llama-server empties idle slots; separate ones it leaves.
     That it leaves them proves nothing: with `--cache-ram 0`, and before build 8664, it does so
     anyway.
   - A request ends with "Context size has been exceeded.".  Where slots are separate, each only
     ends its own answer.
   - So many tokens are in the slots at once: the pool holds that much, whatever it is.
3. What is likely: four slots are llama-server's own choice, and then they share; any other number
   was given with -np, which separates them unless -kvu says otherwise.

Rule: what is not known for sure is the least that it can be.  Four slots are taken to share no
more than one slot's context, until more than that is seen in them at once.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slotgate.wire.llama_cpp import SlotView

# How many slots llama-server has when nobody says how many.
UNASKED_SLOTS = 4
# Pools are multiples of this, in tokens.
PAD_TOKENS = 256
# What is learned is told in so many steps a slot's context at most: each wakes the scheduler.
STEPS = 16


class Sharing(StrEnum):
    """How it is known whether the slots share."""

    SEPARATE = "each slot has its own context"
    CONFIGURED = "as kv_pool says"
    PRESUMED = "four slots that share their context are what llama-server takes by itself"
    DOUBTED = "four slots share their context by default, though these keep it like separate ones"
    EMPTIED = "a slot that idled was emptied for another's request"
    EXCEEDED = "requests ended with 'Context size has been exceeded.'"

    @property
    def is_guess(self) -> bool:
        """Whether the operator had better say it."""
        return self not in {Sharing.SEPARATE, Sharing.CONFIGURED}

    def advice(self, slots: int, context: int | None) -> str:
        """Say what ends the sharing, and what to say if there is none."""
        if context is None:
            return "set kv_pool to what its -c (--ctx-size) says"
        mend = (
            f"start it with -np {slots} -no-kvu, which divides its context, or with "
            f"--kv-unified-per-slot {context} and no -c, which has enough for all"
        )
        if self in {Sharing.EMPTIED, Sharing.EXCEEDED}:
            return f"{mend}; or set kv_pool to what its -c (--ctx-size) says"
        return f"{mend}; if it was started so, set kv_pool: {slots * context}"


class KvPool:
    """What is known of one server's pool.

    `configured` is its size in tokens as the operator says it, `is_separate` that the slots are
    known not to share.  With either, nothing is learned.
    """

    def __init__(self, *, configured: int | None = None, is_separate: bool = False) -> None:
        self._configured = configured
        self._is_separate = is_separate
        self._slots = 0
        self._context: int | None = None
        self._forget()

    def _forget(self) -> None:
        self._proof: Sharing | None = None
        self.restarted()

    # What is learned.

    def sized(self, slots: int, context: int | None) -> None:
        """Note how many slots the server says that it has, and what each may hold."""
        if (slots, context) != (self._slots, self._context):
            self._slots, self._context = slots, context
            self._forget()

    def restarted(self) -> None:
        """Forget what was seen in the slots; with the same slots it shares as before."""
        self._seen = 0
        self._has_kept = False
        self._last_task = -1
        # Slot -> the last task in it, of those that idled with tokens at the last look.
        self._idle: dict[int, int] = {}

    def looked(self, slots: Iterable[SlotView], *, is_all_ours: bool) -> None:
        """Learn from `/slots`.

        `is_all_ours`: no sequences of one request run in several slots, which share their tokens.
        """
        views = tuple(slots)
        last_task = max((view.id_task for view in views if view.id_task is not None), default=-1)
        if last_task < self._last_task:
            self.restarted()
        if last_task > self._last_task or any(view.is_processing for view in views):
            self._compare(views)
        self._last_task = last_task
        self._idle = {
            view.id: view.id_task
            for view in views
            if view.id_task is not None and view.n_prompt_tokens and not view.is_processing
        }
        if is_all_ours and self._proof is not Sharing.EXCEEDED:
            self._seen = max(self._seen, sum(map(_held, views)))

    def exceeded(self) -> None:
        """Note that a request ended for want of context in the pool: it has no more than that."""
        self._proof = Sharing.EXCEEDED
        self._seen = 0

    def _compare(self, views: tuple[SlotView, ...]) -> None:
        """See what became of the slots that idled at the last look, and idle still.

        Only while the server works: tools that erase slots do so when it rests.
        """
        idled = [
            view
            for view in views
            if not view.is_processing and self._idle.get(view.id, -1) == view.id_task
        ]
        if self._proof is None and any(view.n_prompt_tokens == 0 for view in idled):
            self._proof = Sharing.EMPTIED
        is_newer = max((view.id_task or 0 for view in views), default=0) > self._last_task
        self._has_kept = self._has_kept or (is_newer and any(v.n_prompt_tokens for v in idled))

    # What is known.

    @property
    def sharing(self) -> Sharing:
        """Whether the slots share, and how that is known."""
        if self._is_separate:
            return Sharing.SEPARATE
        if self._configured is not None:
            return Sharing.CONFIGURED
        if self._proof is not None:
            return self._proof
        if self._slots != UNASKED_SLOTS:
            return Sharing.SEPARATE
        return Sharing.DOUBTED if self._has_kept else Sharing.PRESUMED

    def tokens(self, used_slots: int) -> int | None:
        """Return what the pool surely holds; None where so many slots cannot overflow it."""
        sharing = self.sharing
        if sharing is Sharing.SEPARATE or used_slots < 2:
            return None
        if self._context is None:
            return self._configured
        pool = self._configured if self._configured is not None else self._learned(self._context)
        return pool if pool < used_slots * self._context else None

    def _learned(self, context: int) -> int:
        step = max(PAD_TOKENS, context // STEPS)
        return context + max(0, self._seen - context) // step * step


def _held(view: SlotView) -> int:
    """Tokens that are surely in the slot; those of a prompt that is being read come bit by bit."""
    if view.n_prompt_tokens is None or (view.is_processing and not view.n_decoded):
        return 0
    return view.n_prompt_tokens
