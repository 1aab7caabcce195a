"""Tells what is wrong with a deployment by what moves there, not by the clock alone.

What is stuck is found by `stuck`; here is what lasts: compute errors, slowness, zombie slots and
outside traffic; and the quarantine.

Rule 1: only what is seen counts, never what was not looked at.  Time that the gateway itself was
        away, or slow, is nobody's fault: between two ticks at most two seconds pass.
Rule 2: each thing is told once; what lasts, once more when it is over.
Rule 3: nothing here waits for anything, or asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.core.findings import Due, Figures, Finding, Kind, Lifted, News, Over
from slotgate.core.pace import PaceWatch
from slotgate.core.quarantine import Quarantine
from slotgate.core.slot_looks import SlotLooks
from slotgate.core.stuck import LONGEST_TICK_SECONDS, StuckWatch
from slotgate.core.watch_rules import WatchRules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slotgate.core.vitals import Signs

# How often to tick.
TICK_SECONDS = 1.0


class Watchdog:
    """One deployment's.  `tick` it with what is seen, every second; it returns the news.

    `active` is what is wrong for now, by kind.
    """

    def __init__(self, deployment: str, rules: WatchRules | None = None) -> None:
        self.deployment = deployment
        self.active: dict[Kind, Finding] = {}
        self._rules = rules = rules or WatchRules()
        self._looks = SlotLooks()
        self._stuck = StuckWatch(deployment, rules, self._looks)
        self._pace = PaceWatch(factor=rules.slow_factor, stretch=rules.slow_after / 2)
        self._quarantine = Quarantine(
            shortest=rules.shortest_quarantine, longest=rules.longest_quarantine
        )
        self._ticked_at: float | None = None
        self._outside_for = 0.0
        # Errors that a quarantine has atoned for.
        self._old_errors = 0

    @property
    def quarantined_since(self) -> float | None:
        """Since when it gets no work; None if it does."""
        return self._quarantine.since

    def tick(self, signs: Signs) -> list[News]:
        """Take what is seen now."""
        seconds = self._elapsed(signs.now)
        self._looks.take(signs.look)
        self._pace.tick(signs, seconds)
        news: list[News] = []
        for finding in self._stuck.tick(signs, seconds):
            if finding.due is Due.QUARANTINE:
                self.active[finding.kind] = finding
            news.append(finding)
        news += self._recovered(signs)
        news += self._lasting(signs, seconds)
        if self._rules.quarantines:
            news += self._keep(signs, news)
        return news

    def _elapsed(self, now: float) -> float:
        before, self._ticked_at = self._ticked_at, now
        return 0.0 if before is None else min(now - before, LONGEST_TICK_SECONDS)

    # What lasts.

    def _recovered(self, signs: Signs) -> Iterator[Over]:
        if self._stuck.is_alive:
            yield from self._end(Kind.WEDGED, signs)
        if self._stuck.is_streaming:
            self._quarantine.streamed()
            yield from self._end(Kind.SWALLOWS, signs)

    def _lasting(self, signs: Signs, seconds: float) -> Iterator[News]:
        pace = self._pace
        figures = {"gap": round(pace.gap, 4), "usual": round(pace.usual, 4)}
        yield from self._follow(Kind.SLOW, signs, figures, is_so=pace.is_slow)
        zombies = {"slots": signs.zombies}
        yield from self._follow(Kind.ZOMBIES, signs, zombies, is_so=signs.zombies > 0)
        self._outside_for = self._outside_for + seconds if signs.outside else 0.0
        is_long = self._outside_for >= self._rules.outside_after
        yield from self._follow(Kind.OUTSIDE, signs, {"slots": signs.outside}, is_so=is_long)
        self._old_errors = min(self._old_errors, signs.errors)
        errors = signs.errors - self._old_errors
        is_sick = errors >= self._rules.errors
        yield from self._follow(Kind.COMPUTE_ERRORS, signs, {"errors": errors}, is_so=is_sick)

    def _follow(self, kind: Kind, signs: Signs, figures: Figures, *, is_so: bool) -> Iterator[News]:
        if not is_so:
            yield from self._end(kind, signs)
        elif kind not in self.active:
            self.active[kind] = Finding(
                kind=kind,
                deployment=self.deployment,
                now=signs.now,
                since=signs.now,
                figures=figures,
            )
            yield self.active[kind]

    def _end(self, kind: Kind, signs: Signs) -> Iterator[Over]:
        finding = self.active.pop(kind, None)
        if finding is not None:
            yield Over(kind=kind, deployment=self.deployment, now=signs.now, since=finding.since)

    # The quarantine.

    def _keep(self, signs: Signs, news: list[News]) -> Iterator[News]:
        if any(isinstance(each, Finding) and each.due is Due.QUARANTINE for each in news):
            self._quarantine.begin(signs.now)
            return
        since = self._quarantine.since
        if since is None or not self._quarantine.tick(signs, self._looks):
            return
        self._stuck.forgive()
        self._old_errors = signs.errors
        for kind in (Kind.WEDGED, Kind.SWALLOWS, Kind.COMPUTE_ERRORS):
            yield from self._end(kind, signs)
        yield Lifted(deployment=self.deployment, now=signs.now, since=since)
