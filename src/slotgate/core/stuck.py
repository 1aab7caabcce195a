"""Which streams are stuck, and whether it is they or the whole deployment.

    an overdue stream, while another moves                        -> stuck_reading, stuck_writing
    an overdue stream, nothing moves, /slots hangs or stands still -> wedged
    ours run, but fewer slots are busy, twice in a row            -> leaked
    two were stuck or leaked, and no stream has moved since       -> swallows

`/slots` shows the state at the last batch's end, so a request that has just come is not in it while
a batch runs.  Hence only a look after which something has moved, or nothing is busy, can miss one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.core.findings import Figures, Finding, Kind
from slotgate.core.stream_clocks import StreamClock, StreamClocks
from slotgate.core.vitals import Question

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from slotgate.core.slot_looks import SlotLooks
    from slotgate.core.vitals import Signs
    from slotgate.core.watch_rules import WatchRules

# The most that counts between two ticks; and how far apart two streams of a deployment that stops
# may be seen to stop.
LONGEST_TICK_SECONDS = 2.0
# Looks in a row that must show the same before it is believed.
_LOOKS = 2
# Streams in a row that get stuck before the deployment is to blame.
_STRIKES = 2
# A request may take so long to be seen in a slot.
_UNSEEN_SECONDS = 1.2
# So long it takes to see whether a deployment stands still: three looks, or none that is answered.
_EVIDENCE_SECONDS = 5.0


class StuckWatch:
    """One deployment's streams."""

    def __init__(self, deployment: str, rules: WatchRules, looks: SlotLooks) -> None:
        self._deployment = deployment
        self._rules = rules
        self._looks = looks
        self._clocks = StreamClocks(rules.clocks)
        # Of the latest tick: a stream of ours has moved; so has that, or a slot, or all are idle.
        self.is_streaming = self.is_alive = False
        # Seconds since anything moved while ours run; since a stream did; without an answer.
        self._quiet = self._stream_quiet = self._unanswered = 0.0
        # Looks in a row that miss some of ours; streams in a row that were stuck.
        self._missing = self._strikes = 0
        self._served = 0
        self._is_wedged = self._swallows = False

    def tick(self, signs: Signs, seconds: float) -> Iterator[Finding]:
        """Take what is seen now, `seconds` after the last time; yield what is found anew."""
        self._clocks.tick(signs, self._looks, seconds)
        self._note_movement(signs, seconds)
        self._note_missing()
        overdue = [clock for clock in self._clocks if clock.is_overdue]
        if self._is_wedged:
            return  # since nothing has moved, nothing else is worth telling
        if overdue and self._is_standing(signs, overdue):
            self._is_wedged = True
            yield self._blame(Kind.WEDGED, signs)
        else:
            yield from self._stuck(signs, overdue)

    def forgive(self) -> None:
        """Begin anew: what was stuck is no news any more."""
        self._strikes = 0
        self._is_wedged = self._swallows = False

    # What has changed.

    def _note_movement(self, signs: Signs, seconds: float) -> None:
        has_served, self._served = signs.served > self._served, signs.served
        self.is_streaming = has_served or any(
            c.has_moved and (c.seen_at < signs.now or c.signs.is_writing) for c in self._clocks
        )
        self.is_alive = self.is_streaming or self._looks.has_moved or self._looks.is_newly_idle
        if self.is_streaming:
            self._strikes = 0
            self._swallows = False
        if self.is_alive:
            self._is_wedged = False
        has_none = not signs.streams
        self._stream_quiet = 0.0 if self.is_streaming or has_none else self._stream_quiet + seconds
        moves = self.is_streaming or self._looks.has_moved or has_none
        self._quiet = 0.0 if moves else self._quiet + seconds
        asked = {signs.slots, signs.health}
        is_open = bool(asked & {Question.OPEN, Question.TIMED_OUT})
        self._unanswered = self._unanswered + seconds if is_open else 0.0

    def _note_missing(self) -> None:
        looks = self._looks
        if not looks.is_new or looks.latest is None:
            return
        asked = looks.latest.sent_at - _UNSEEN_SECONDS
        ours = sum(c.signs.width for c in self._clocks if c.seen_at <= asked)
        is_short = looks.latest.processing < ours
        can_miss = looks.is_newly_idle or looks.has_moved
        self._missing = self._missing + 1 if is_short and can_miss else 0

    # Whose fault it is.

    def _has_stopped(self, overdue: list[StreamClock]) -> bool:
        """Whether nothing has moved since the overdue stopped."""
        return self._quiet + LONGEST_TICK_SECONDS >= min(clock.quiet for clock in overdue)

    def _is_undecided(self, signs: Signs, overdue: list[StreamClock]) -> bool:
        """Whether the looks to come may yet show that it is all of it that stands."""
        is_early = signs.has_slots and self._quiet < _EVIDENCE_SECONDS
        return is_early and self._has_stopped(overdue)

    def _is_standing(self, signs: Signs, overdue: list[StreamClock]) -> bool:
        """Whether nothing has moved since the overdue stopped, and nothing says otherwise."""
        if not self._has_stopped(overdue):
            return False
        if self._unanswered >= self._rules.mute_after:
            return True
        if not signs.has_slots:  # then all of them must say so
            return len(overdue) == len(self._clocks)
        return self._looks.still >= _LOOKS

    def _stuck(self, signs: Signs, overdue: list[StreamClock]) -> Iterator[Finding]:
        lost = self._lost()
        # An answer that comes whole shows nothing by itself.
        late = [c for c in overdue if c.signs.received is not None and c not in lost]
        if late and self._is_undecided(signs, late):
            late = []
        found = [clock for clock in (*lost, *late) if not clock.is_told]
        for clock in found:
            clock.is_told = True
            yield self._one(signs, clock, is_lost=clock in lost)
        if found and self._stream_quiet + LONGEST_TICK_SECONDS >= min(c.quiet for c in found):
            self._strikes += len(found)
        if self._strikes >= _STRIKES and not self._swallows:
            self._swallows = True
            yield self._blame(Kind.SWALLOWS, signs)

    def _lost(self) -> list[StreamClock]:
        """Return those of ours for which no slot works, the quietest first."""
        if self._missing < _LOOKS or self._looks.latest is None:
            return []
        short = sum(c.signs.width for c in self._clocks) - self._looks.latest.processing
        floor = self._rules.clocks.gap_floor
        quiet = [clock for clock in self._clocks if clock.quiet >= floor]
        return sorted(quiet, key=lambda clock: -clock.quiet)[: max(0, short)]

    # Telling.

    def _one(self, signs: Signs, clock: StreamClock, *, is_lost: bool) -> Finding:
        kind = Kind.STUCK_WRITING if clock.signs.is_writing else Kind.STUCK_READING
        figures = {
            **self._figures(signs),
            "quiet": round(clock.quiet, 1),
            "allowed": round(clock.allowed, 1),
            "tokens": clock.signs.output_tokens,
        }
        return self._finding(Kind.LEAKED if is_lost else kind, signs, figures, (clock,))

    def _blame(self, kind: Kind, signs: Signs) -> Finding:
        figures = {**self._figures(signs), "quiet": round(self._stream_quiet, 1)}
        return self._finding(kind, signs, figures, self._clocks)

    def _figures(self, signs: Signs) -> dict[str, float | int | str | bool | None]:
        latest = self._looks.latest
        return {
            "streams": len(self._clocks),
            "processing": latest.processing if latest is not None else None,
            "still_looks": self._looks.still,
            "health": signs.health.value,
            "slots": signs.slots.value if signs.has_slots else "none",
        }

    def _finding(
        self, kind: Kind, signs: Signs, figures: Figures, clocks: Iterable[StreamClock]
    ) -> Finding:
        clocks = list(clocks)
        quiet = max((clock.quiet for clock in clocks), default=0.0)
        return Finding(
            kind=kind,
            deployment=self._deployment,
            now=signs.now,
            since=signs.now - quiet,
            figures=figures,
            tickets=tuple(clock.signs.ticket for clock in clocks),
        )
