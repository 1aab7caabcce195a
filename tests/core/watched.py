"""A watchdog over a simulated llama-server, in virtual time: hours take a second."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING

from slotgate.core.findings import Finding, Kind, Lifted, News
from slotgate.core.vitals import Look, Question, Signs, SlotSigns, StreamSigns
from slotgate.core.watchdog import TICK_SECONDS, Watchdog
from slotgate.slotsim import (
    Cancelled,
    Failed,
    Finished,
    Generated,
    Job,
    Pace,
    Pinged,
    Prompt,
    ServerSpec,
    SimulatedServer,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from slotgate.core.watch_rules import WatchRules
    from slotgate.slotsim import Event

FRAME_BYTES = 150
COMMENT_BYTES = 8
LOOK_SECONDS = 1.2
TIMEOUT_SECONDS = 5.0


@dataclass
class Stream:
    signs: StreamSigns
    asked_at: float
    first_token_at: float | None = None


@dataclass
class Watched:
    """`run` lets time pass; `news` has all that the watchdog said.

    `knows` says whether its speeds have been measured.  `is_dumb`: neither `/health` nor `/slots`
    answers; `is_silent`: requests are taken and go nowhere.  What ends by the watchdog's word
    leaves the server too, if it `obeys`.
    """

    slots: int = 4
    decode: float = 20.0
    prefill: float = 200.0
    batch: int = 2048
    rules: WatchRules | None = None
    knows: bool = True
    has_slots: bool = True
    shows_progress: bool = True
    is_dumb: bool = False
    is_silent: bool = False
    obeys: bool = True
    now: float = 0.0
    outside: int = 0
    zombies: int = 0
    errors: int = 0
    served: int = 0
    news: list[News] = field(default_factory=list)
    streams: dict[str, Stream] = field(default_factory=dict)
    on_end: Callable[[str], None] | None = None

    def __post_init__(self) -> None:
        pace = Pace.constant(self.decode, slots=self.slots, prefill=self.prefill)
        spec = ServerSpec(slots=self.slots, ctx=1 << 20, pace=pace, batch=self.batch)
        self.server = SimulatedServer(spec)
        self.dog = Watchdog("left", self.rules)
        self.speed = 1.0
        self._look: Look | None = None
        self._asked_at = -inf
        self._question = Question.NONE
        self._next_tick = 0.0
        self._ours: set[str] = set()

    # What happens.

    def ask(
        self, name: str, read: int = 100, write: int | None = None, *, is_whole: bool = False
    ) -> None:
        """Send a request of ours; without `write` its answer never ends by itself."""
        received = None if is_whole else 0
        signs = StreamSigns(lease=name, ticket=name, prompt_tokens=read, received=received)
        self.streams[name] = Stream(signs, self.now)
        self._ours.add(name)
        if not self.is_silent:
            self.server.submit(self._job(name, read, write), self.now)

    def ask_behind(self, name: str, read: int = 100, write: int | None = None) -> None:
        """Send a request that the gateway knows nothing of."""
        self.server.submit(self._job(name, read, write), self.now)

    def _job(self, name: str, read: int, write: int | None) -> Job:
        return Job(
            id=name,
            prompts=(Prompt(read),),
            stream=True,
            max_tokens=write if write is not None else 1 << 19,
            progress=self.shows_progress,
            ping_interval=30.0,
            report_every=max(1, int(self.decode / 2)),  # twice a second is enough
        )

    def hold(self, name: str) -> None:
        """Let its client take nothing more."""
        stream = self.streams[name]
        stream.signs = replace(stream.signs, is_held=True)

    def run(self, seconds: float) -> list[News]:
        """Let time pass; return what was said meanwhile."""
        said = len(self.news)
        until = self.now + seconds
        while min(self._next_tick, self._next_look()) <= until:
            if self._next_tick <= self._next_look():
                self._advance(self._next_tick)
                self._next_tick += TICK_SECONDS
                self._tick()
            else:
                self._advance(self._next_look())
                self._ask_slots()
        self._advance(until)
        return self.news[said:]

    def sleep(self, seconds: float) -> None:
        """Let time pass while the gateway does nothing, as if its machine were suspended."""
        until = self.now + seconds
        self._next_tick = max(self._next_tick, until)
        self._asked_at = max(self._asked_at, until - LOOK_SECONDS)
        self._advance(until)

    def stop_all(self) -> None:
        """Let no byte come any more: the process stands still."""
        self.server.wedge(self.now)
        self.is_dumb = True

    # Questions.

    def found(self, kind: Kind) -> list[Finding]:
        return [news for news in self.news if isinstance(news, Finding) and news.kind is kind]

    @property
    def kinds(self) -> list[str]:
        """What was found, in order."""
        return [news.kind.value for news in self.news if isinstance(news, Finding)]

    @property
    def lifted(self) -> list[Lifted]:
        return [news for news in self.news if isinstance(news, Lifted)]

    # How it is.

    def _next_look(self) -> float:
        is_wanted = self.streams or self.dog.quarantined_since is not None
        if not self.has_slots or not is_wanted:
            return inf
        rest = TIMEOUT_SECONDS if self._question is Question.OPEN else 0.0
        return max(self.now, self._asked_at + LOOK_SECONDS + rest)

    def _ask_slots(self) -> None:
        self._asked_at = self.now
        if self.is_dumb or self.server.is_wedged:
            self._question = Question.OPEN
            return
        self._question = Question.ANSWERED
        views = self.server.slots(self.now)
        self.server.poll(self.now)
        number = 1 if self._look is None else self._look.number + 1
        slots = tuple(
            SlotSigns(
                id=view.id,
                is_processing=view.is_processing,
                task=view.task_id,
                decoded=view.decoded if view.job is not None else None,
                read=view.prompt_tokens_processed if view.job is not None else None,
            )
            for view in views
        )
        self._look = Look(number=number, sent_at=self.now, slots=slots)

    def _tick(self) -> None:
        if self._question is Question.OPEN and self.now - self._asked_at >= TIMEOUT_SECONDS:
            self._question = Question.TIMED_OUT
        signs = Signs(
            now=self.now,
            streams=tuple(stream.signs for stream in self.streams.values()),
            prefill=self.prefill if self.knows else None,
            gap=1 / self.decode if self.knows else None,
            health=Question.TIMED_OUT if self.is_dumb else Question.ANSWERED,
            slots=self._question,
            has_slots=self.has_slots,
            look=self._look,
            outside=self.outside,
            zombies=self.zombies,
            errors=self.errors,
            served=self.served,
        )
        for news in self.dog.tick(signs):
            self.news.append(news)
            if isinstance(news, Finding) and self.obeys:
                for name in news.tickets:
                    self.leave(name)

    def leave(self, name: str) -> None:
        """Close a request of ours."""
        if self.streams.pop(name, None) is not None:
            self.server.disconnect(name, self.now)
            if self.on_end is not None:
                self.on_end(name)

    def _advance(self, now: float) -> None:
        self.now = max(self.now, now)
        for event in self.server.advance(self.now):
            self._take(event)

    def _take(self, event: Event) -> None:
        stream = self.streams.get(str(event.job))
        if stream is None or isinstance(event, Cancelled):
            return
        if isinstance(event, Finished | Failed):
            del self.streams[str(event.job)]
            self.served += isinstance(event, Finished)
            return
        tokens = event.count if isinstance(event, Generated) else 0
        size = COMMENT_BYTES if isinstance(event, Pinged) else FRAME_BYTES * max(1, tokens)
        signs = stream.signs
        if tokens and stream.first_token_at is None:
            stream.first_token_at = self.now
        if signs.received is not None:
            stream.signs = replace(
                signs,
                received=signs.received + size,
                output_tokens=signs.output_tokens + tokens,
            )
