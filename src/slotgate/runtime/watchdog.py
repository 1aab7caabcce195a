"""Watches every backend by what moves there, and acts on what the watchdog of the core finds.

Rule 1: it never waits for what may be stuck.  It reads what others have learned, once a second, and
        whatever takes time (ending a process, the operator's command) has a task of its own.
Rule 2: a backend gets no more work before its streams are ended, in the same turn of the loop: they
        go back to the queue, and must not come back to it.
Rule 3: it asks a backend nothing by itself.  While one is in quarantine its probe asks for the
        slots, at the probe's own pace, unless the server sleeps.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from slotgate.core.cooldown import Cooldown
from slotgate.core.deployment import State
from slotgate.core.findings import Due, Finding, Kind, Over
from slotgate.core.vitals import Question, Signs, StreamSigns
from slotgate.core.watchdog import TICK_SECONDS
from slotgate.runtime.hook import run_hook

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from slotgate.core.findings import News
    from slotgate.runtime.driver import Driver
    from slotgate.runtime.journal import Journal
    from slotgate.runtime.lease import Lease
    from slotgate.runtime.probes import Probe

# What the client of a stream is told that the watchdog ended, and the log of one that runs again.
_WORDS = {
    Kind.STUCK_READING: "its first token is overdue",
    Kind.STUCK_WRITING: "its next token is overdue",
    Kind.LEAKED: "no slot works for it",
    Kind.WEDGED: "the backend stands still",
    Kind.SWALLOWS: "the backend takes requests and answers none",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """What may be done, and how often.  Times are seconds; no `hook`, no command."""

    ends_streams: bool = True
    restarts: bool = True
    restarts_per_hour: int = 4
    restart_grace_seconds: float = 5.0
    hook: tuple[str, ...] = ()
    hook_timeout_seconds: float = 30.0
    cooldown_seconds: float = 300.0


class Dog(Protocol):
    """Tells the news; `core.watchdog.Watchdog` is one."""

    def tick(self, signs: Signs) -> list[News]: ...


class Engine(Protocol):
    """A process that is ours; `ManagedServer` is one.  Who waits for its end starts it again."""

    @property
    def is_running(self) -> bool: ...
    async def end_process(self, grace_seconds: float) -> None: ...


@dataclass(slots=True)
class _Watched:
    probe: Probe
    dog: Dog
    engine: Engine | None
    restarts: Cooldown
    # Kind of finding -> when the command may be run for it.
    hooks: dict[Kind, Cooldown] = field(default_factory=dict)


class BackendWatch:
    """All backends' watchdogs, and their hands."""

    def __init__(self, driver: Driver, journal: Journal, options: WatchOptions) -> None:
        self._driver = driver
        self._journal = journal
        self._options = options
        self._watched: dict[str, _Watched] = {}
        self._start: Callable[[Coroutine[Any, Any, None]], object] | None = None

    def add(self, probe: Probe, dog: Dog, engine: Engine | None = None) -> None:
        """Watch a backend; `engine` is its process if it is ours."""
        options = self._options
        restarts = Cooldown(seconds=options.cooldown_seconds, per_hour=options.restarts_per_hour)
        self._watched[probe.backend.name] = _Watched(probe, dog, engine, restarts)

    def remove(self, name: str) -> None:
        """Watch a backend no more."""
        self._watched.pop(name, None)

    async def run(self) -> None:
        """Go on until cancelled; what was begun ends then too."""
        async with asyncio.TaskGroup() as group:
            self._start = group.create_task
            while True:
                await asyncio.sleep(TICK_SECONDS)
                self.tick()

    def tick(self) -> None:
        """Look at every backend, and do what is due."""
        now = asyncio.get_running_loop().time()
        running = self._driver.running()
        for name, watched in self._watched.items():
            for news in watched.dog.tick(self._signs(watched, running.get(name, []), now)):
                self._act(watched, news)

    # Evidence.

    def _signs(self, watched: _Watched, leases: list[Lease], now: float) -> Signs:
        probe = watched.probe
        name = probe.backend.name
        asked, books = probe.asked, self._driver.books(name)
        prefill, gap = self._driver.speeds(name)
        has_slots = probe.has_slots and asked.look is not None
        return Signs(
            now=now,
            streams=tuple(_stream(lease) for lease in leases),
            prefill=prefill,
            gap=gap,
            leaves_reading=any(not entry.has_written for entry in books.settling.values()),
            may_load=probe.may_load,
            health=asked.health,
            slots=asked.slots if has_slots else Question.NONE,
            has_slots=has_slots,
            look=asked.look if has_slots else None,
            outside=probe.outside - probe.zombies.slots,
            zombies=probe.zombies.slots,
            served=books.served,
            errors=books.errors,
        )

    # Actions.

    def _act(self, watched: _Watched, news: News) -> None:
        if isinstance(news, Finding):
            self._found(watched, news)
        elif isinstance(news, Over):
            self._journal.watch_over(news)
        else:
            watched.probe.release()
            self._journal.quarantine_lifted(news)

    def _found(self, watched: _Watched, finding: Finding) -> None:
        self._journal.watch_found(finding)
        if self._options.ends_streams:
            if finding.due is Due.QUARANTINE:
                self._isolate(watched, finding)
            self._end_streams(finding)
        if self._options.hook:
            self._run_hook(watched, finding)

    def _isolate(self, watched: _Watched, finding: Finding) -> None:
        why = f"the watchdog found it {finding.kind.value}"
        is_restarting = self._may_restart(watched, finding.now)
        watched.probe.quarantine(State.STARTING if is_restarting else State.DOWN, why)
        self._journal.quarantined(finding, is_restarting=is_restarting)
        if is_restarting and watched.engine is not None:
            watched.probe.is_restarting = True
            self._begin(watched.engine.end_process(self._options.restart_grace_seconds))

    def _may_restart(self, watched: _Watched, now: float) -> bool:
        has_engine = watched.engine is not None and watched.engine.is_running
        return self._options.restarts and has_engine and watched.restarts.allows(now)

    def _end_streams(self, finding: Finding) -> None:
        words = _WORDS.get(finding.kind, finding.kind.value)
        for ticket in finding.tickets:
            if self._driver.stop(ticket, f"the watchdog ended it: {words}"):
                self._journal.stream_ended(finding, ticket)

    def _run_hook(self, watched: _Watched, finding: Finding) -> None:
        cooldown = watched.hooks.setdefault(
            finding.kind, Cooldown(seconds=self._options.cooldown_seconds)
        )
        if cooldown.allows(finding.now):
            self._begin(self._hook(finding))

    async def _hook(self, finding: Finding) -> None:
        options = self._options
        document = json.dumps(describe(finding)).encode() + b"\n"
        failure = await run_hook(options.hook, document, options.hook_timeout_seconds)
        self._journal.hook_ran(finding, failure)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        if self._start is None:
            work.close()
            raise RuntimeError("the watch does not run")
        self._start(work)


def describe(finding: Finding) -> dict[str, object]:
    """Return a finding as the operator's command gets it."""
    return {
        "finding": finding.kind.value,
        "backend": finding.deployment,
        "due": finding.due.value,
        "lasts_seconds": round(finding.now - finding.since, 1),
        "requests": list(finding.tickets),
        "evidence": dict(finding.figures),
    }


def _stream(lease: Lease) -> StreamSigns:
    upstream, granted = lease.upstream, lease.granted
    return StreamSigns(
        lease=granted.lease if granted is not None else "",
        ticket=lease.ticket.id,
        width=lease.ticket.width,
        prompt_tokens=lease.ticket.input_tokens,
        output_tokens=lease.output_tokens,
        received=upstream.bytes_received if upstream is not None else None,
        is_held=upstream.is_held if upstream is not None else False,
    )
