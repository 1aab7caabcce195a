"""A clock for each stream: how long it has been quiet, and how long it may be.

Before the first token:  allowed = floor + factor * (ahead / prefill + 2 * gap)
    `ahead` is its prompt and all others that are read in its time: prompts are read together, so
    those of others delay it, and one step of those who write goes before, another along.  Before
    prompts were measured, a token is taken to be read no more slowly than one is written.
Between tokens:          allowed = max(floor, factor * gap)
    `gap` is what a token takes among as many streams as write now.

What is not measured yet is bounded by the backend's own timeouts.  A sign of life starts a clock
anew: a token, a piece of prefill's progress, or `/slots` showing that every slot moves.  It stands
still while

- a prompt of ours is read, which stalls all who write, until reading itself is overdue;
- a prompt is read that is not ours any more, or never was, for as long as `unknown`;
- its client does not take what has come: the quiet is ours then;
- not a byte has come, and the server may have to load its model first;
- a prompt is read by a server that answers nothing meanwhile but comments in the stream, as forks
  of llama.cpp do for as long as half an hour.

A comment is no sign of life: llama-server sends them from a thread that knows nothing of the slots.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from slotgate.core.vitals import Question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slotgate.core.slot_looks import SlotLooks
    from slotgate.core.vitals import Signs, StreamSigns
    from slotgate.core.watch_rules import ClockRules

# So few bytes in a second are comments: a chunk of one is 8 bytes, and the shortest frame of any
# route is longer than three of them.
_COMMENT_BYTES = 24
# A prompt waits for a batch of those who write, and is read along with another.
_STEPS = 2
# llama-server comments on a silence every 30 s.
_COMMENT_SECONDS = 65.0


class StreamClock:
    """One stream's.  `quiet` and `allowed` are seconds."""

    __slots__ = ("ahead", "allowed", "commented_at", "has_moved", "is_told", "quiet", "seen_at",
                 "signs")  # fmt: skip

    def __init__(self, signs: StreamSigns, now: float) -> None:
        self.signs = signs
        self.seen_at = now
        self.quiet = 0.0
        self.allowed = inf
        self.ahead = signs.prompt_tokens
        self.has_moved = True  # by coming
        self.commented_at = -inf
        # Whether it was found to be stuck, and somebody was told.
        self.is_told = False

    @property
    def is_overdue(self) -> bool:
        """Whether it has been quiet for longer than is explained."""
        return self.quiet > self.allowed

    def see(self, signs: StreamSigns, now: float) -> None:
        """Compare with what was seen last."""
        before, self.signs = self.signs, signs
        more = (signs.received or 0) - (before.received or 0)
        self.has_moved = more > _COMMENT_BYTES or signs.output_tokens > before.output_tokens
        if 0 < more <= _COMMENT_BYTES:
            self.commented_at = now
        if self.has_moved:
            self.start_anew()

    def start_anew(self) -> None:
        """Note a sign of life."""
        self.quiet = 0.0
        self.is_told = False


class StreamClocks:
    """The clocks of all streams of a deployment."""

    def __init__(self, rules: ClockRules) -> None:
        self._rules = rules
        # Lease id -> its clock, by grant.
        self._clocks: dict[str, StreamClock] = {}
        # How long slots that are not ours seem to have been reading one batch.
        self._strange_reading = 0.0

    def __iter__(self) -> Iterator[StreamClock]:
        return iter(self._clocks.values())

    def __len__(self) -> int:
        return len(self._clocks)

    def tick(self, signs: Signs, looks: SlotLooks, seconds: float) -> None:
        """Take what is seen now, `seconds` after the last time."""
        self._take_in(signs)
        if looks.shows_all_moving(sum(clock.signs.width for clock in self)):
            for clock in self:
                clock.start_anew()
        for clock in self:
            clock.allowed = self._allowed(clock, signs)
        self._note_strangers(looks, seconds)
        others_read = signs.leaves_reading or 0 < self._strange_reading <= self._rules.unknown
        is_read = others_read or self._is_reading()
        for clock in self:
            is_stalled = is_read if clock.signs.is_writing else others_read
            if not (is_stalled or _stands(clock, signs)):
                clock.quiet += seconds

    # What has changed.

    def _take_in(self, signs: Signs) -> None:
        before, self._clocks = self._clocks, {}
        for stream in signs.streams:
            clock = before.get(stream.lease)
            if clock is None:
                self._queue_behind(StreamClock(stream, signs.now), before)
            else:
                clock.see(stream, signs.now)
                self._clocks[stream.lease] = clock

    def _queue_behind(self, newcomer: StreamClock, others: dict[str, StreamClock]) -> None:
        for other in {**others, **self._clocks}.values():
            if not other.signs.is_writing:
                newcomer.ahead += other.signs.prompt_tokens
                other.ahead += newcomer.signs.prompt_tokens
        self._clocks[newcomer.signs.lease] = newcomer

    def _note_strangers(self, looks: SlotLooks, seconds: float) -> None:
        # Of ours, one that has sent nothing yet may still be unseen, behind another's batch.
        ours = sum(c.signs.width for c in self if not c.signs.is_writing and c.signs.received != 0)
        is_strange = looks.reading() > ours and not looks.has_moved
        self._strange_reading = self._strange_reading + seconds if is_strange else 0.0

    # How long each may be quiet.

    def _allowed(self, clock: StreamClock, signs: Signs) -> float:
        rules = self._rules
        if clock.signs.is_writing:
            if signs.gap is None:
                return max(rules.unknown, rules.gap_floor)
            return max(rules.gap_floor, rules.gap_factor * signs.gap)
        # Reading a token never takes longer than writing one.
        each = 1 / signs.prefill if signs.prefill else signs.gap
        # An answer that comes whole is written within that time too, at any length.
        if each is None or clock.signs.received is None:
            return max(rules.unknown, rules.first_token_floor)
        steps = _STEPS * (signs.gap or 0.0)
        return rules.first_token_floor + rules.first_token_factor * (clock.ahead * each + steps)

    def _is_reading(self) -> bool:
        """Whether a prompt of ours is being read, as far as can be believed."""
        return any(not clock.signs.is_writing and not clock.is_overdue for clock in self)


def _stands(clock: StreamClock, signs: Signs) -> bool:
    if clock.has_moved or clock.signs.is_held or (signs.may_load and clock.signs.received == 0):
        return True
    is_dumb = signs.health in (Question.OPEN, Question.TIMED_OUT)
    is_commenting = signs.now - clock.commented_at <= _COMMENT_SECONDS
    return not clock.signs.is_writing and is_dumb and is_commenting
