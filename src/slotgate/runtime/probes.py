"""Watches one backend: learns its slots and its state, and settles leases that were closed early.

Rule 1: admission never waits for a probe.  What a probe learns only corrects the books.
Rule 2: `/slots` is asked at most once an interval (1.2 s), and only while our requests are there:
        asked more often it keeps llama-server from noticing clients that left, and at any pace it
        keeps an idle server from sleeping.
Rule 3: a probe may free what we closed, and may find work that is not ours.  It never frees a
        lease that still runs.
Rule 4: what it notices, and what requests tell it, are signals; what they mean is `core.health`'s.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Protocol

from slotgate.backends.llama_server import LlamaServer, NotAuthorizedError, Unsupported
from slotgate.core.deployment import DeploymentReport, State
from slotgate.core.health import Health, Patience, Signal
from slotgate.errors import (
    BackendError,
    BackendTimeoutError,
    BrokenAnswerError,
    UnreachableError,
)
from slotgate.runtime.kv_pool import KvPool
from slotgate.runtime.names import PoolNames
from slotgate.runtime.signs import Asked
from slotgate.runtime.zombies import Zombies
from slotgate.wire.llama_cpp import HealthState, Props, SlotView, requests_processing

if TYPE_CHECKING:
    from collections.abc import Callable

    from slotgate.backends.router import RouterView
    from slotgate.runtime.books import DeploymentBooks, RunningLease
    from slotgate.runtime.driver import Driver
    from slotgate.runtime.kv_pool import Sharing
    from slotgate.wire.models import ListedModel

PROPS_INTERVAL_SECONDS = 10.0
METRICS_INTERVAL_SECONDS = 5.0
# A request that was closed before its slot had started may still be launched and then dropped;
# llama-server notices within a second that its client is gone.
UNSTARTED_SETTLE_SECONDS = 1.2
# Where neither /slots nor /metrics tells, a closed request is believed gone after this long:
# one second to notice, and a batch of 512 prompt tokens on a slow machine.
BLIND_SETTLE_SECONDS = 3.0
# A timer may ring so much before its time (uvloop counts in milliseconds).  Whoever was woken to
# ask for the slots must not find it too early, and rest for an interval more.
EARLY_SECONDS = 0.01
RESTARTING = "it is being started again"
# Answers that end for want of context within so many seconds were ended together.
TOGETHER_SECONDS = 1.0
# How llama.cpp says that it could not compute; where that goes on, only a start anew helps.
COMPUTE_ERROR = b"Compute error"
# What requests tell when nothing is wrong.
_FINE = frozenset({Signal.BEGAN, Signal.SERVED})


class ProbeListener(Protocol):
    """Told what a probe learns: telemetry and the log."""

    def backend_changed(self, name: str, report: DeploymentReport, why: str) -> None: ...
    def backend_metrics(self, name: str, text: bytes | None) -> None: ...
    def backend_shares(self, name: str, report: DeploymentReport, how: Sharing) -> None: ...
    def backend_overflowed(self, name: str, report: DeploymentReport, how: Sharing) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeOptions:
    """`model` is the public name, and `aliases` are others; `pools` names those of all backends.

    `slots` caps (or, for other makes, states) the slots.  `kv_pool` is how many tokens all slots
    hold together, where the operator says it; `is_kv_separate` that they are known not to share
    them.
    """

    model: str = ""
    aliases: tuple[str, ...] = ()
    pools: PoolNames = field(default_factory=PoolNames)
    slots: int | None = None
    kv_pool: int | None = None
    is_kv_separate: bool = False
    restart_grace: float = 0.0
    interval_seconds: float = 1.2
    patience: Patience = field(default_factory=Patience)
    settle_bound_seconds: float = 30.0


class Probe:
    """One backend's watcher.  `run` goes on until cancelled; everything else is a question."""

    def __init__(
        self, backend: LlamaServer, driver: Driver, options: ProbeOptions, listener: ProbeListener
    ) -> None:
        self.backend = backend
        self.props: Props | None = None
        self.slots: tuple[SlotView, ...] = ()
        # What it lists as its models: all of a router's, the one of any other.
        self.listed: tuple[ListedModel, ...] = ()
        self._health = Health(options.patience)
        # Both are set by whoever starts it again.  Requests wait meanwhile; one whose process has
        # just gone counts as restarting too, as nobody may have noticed yet.
        self.is_supervised = self.is_restarting = False
        self._driver = driver
        self._options = options
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._poked = asyncio.Event()
        self._is_alarmed = False  # poked because something failed
        self._reported: DeploymentReport | None = None
        self._wanted: set[asyncio.Future[None]] = set()  # who waits for fresh slots
        self.asked = Asked()
        bound = options.settle_bound_seconds
        self.zombies = Zombies(after_seconds=max(bound / 2, bound - 2 * options.interval_seconds))
        self._quarantine: tuple[State, str] | None = None
        self._outside = 0
        self._outside_before = 0
        self._peak_before = 0
        self._kv = KvPool(configured=options.kv_pool, is_separate=options.is_kv_separate)
        self._sharing: Sharing | None = None  # as it was last told
        # When answers were last ended for want of context, and whether others ran there then.
        self._overflowed_at = -inf
        self._was_crowded = False
        self._has_slots = self._has_metrics = True
        # Set where it may turn out to be a router: that is no deployment, but each of its models
        # is one, with a probe of its own.  The hook is called after each look at a router, and
        # after the first at one that is none any more.
        self.view: RouterView | None = None
        self.is_router = False
        self.router_hook: Callable[[], None] | None = None
        self._props_at = self._slots_at = self._metrics_at = -inf

    # The watch.

    async def run(self) -> None:
        """Rest, look, report; for ever.  The first look is the caller's."""
        while True:
            await self._rest()
            await self.look()

    def poke(self) -> None:
        """Look again soon: something happened."""
        self._poked.set()

    def note(self, signal: Signal, why: str, *, since: float = inf) -> None:
        """Take in a signal; of a request, with when that was granted its slot."""
        self._judge(signal, why, since)
        if signal not in _FINE:
            self._is_alarmed = True
            self.poke()

    def put(self, state: State, why: str) -> None:
        """Take the word of whoever starts the backend; telling the scheduler is theirs too."""
        self._health.put(state, why, self._loop.time())

    def overflowed(self) -> bool:
        """The pool that the slots share was full and ended an answer; whether others ran there."""
        now = self._loop.time()
        if now - self._overflowed_at >= TOGETHER_SECONDS:
            self._was_crowded = len(self._driver.books(self.backend.name).running) > 1
            if self._reported is not None:
                self._listener.backend_overflowed(
                    self.backend.name, self._reported, self._kv.sharing
                )
        self._overflowed_at = now
        self._kv.exceeded()
        self._report()
        return self._was_crowded

    def saw_error(self, text: bytes) -> None:
        """A request was answered with an error that may be the watchdog's business."""
        self._driver.books(self.backend.name).errors += COMPUTE_ERROR in text

    def look_anew(self) -> None:
        """Look again soon, at everything: it may be another than before."""
        self._props_at = -inf
        self.poke()

    def quarantine(self, state: State, why: str) -> None:
        """Have no work given to it until `release`, as in that state, whatever it says itself."""
        self._quarantine = (state, why)
        self._report()
        self.poke()

    def release(self) -> None:
        """Have it given work again."""
        self._quarantine = None
        self._report()

    async def look(self) -> None:
        """Ask the backend how it is and tell the scheduler."""
        self._driver.forget_settled(self.backend.name)
        was_router = self.is_router
        noticed = await self._notice()
        if noticed is not None:
            self._judge(*noticed)
            if noticed[0] is Signal.SILENT and self.state is not State.DOWN:
                self.poke()
        if self.router_hook is not None and (was_router or self.is_router):
            self._show()
            self.router_hook()
        # Told first: a slot that is freed must not be handed out where nothing answers.
        self._report()
        self._settle_blindly()
        if self._health.is_gone and self.state is State.DOWN:
            self._driver.evacuate(self.backend.name)

    # Questions.

    @property
    def state(self) -> State:
        """What is thought of it by itself; the scheduler may have to use it all the same."""
        return self._health.state

    @property
    def why(self) -> str:
        return self._health.why

    @property
    def model(self) -> str:
        """The pool that the backend belongs to."""
        return self._options.pools.pool_of(self._options.model, self.told)

    @property
    def is_other_make(self) -> bool:
        """Whether it is known to be no llama-server."""
        return self.props is not None and not self.props.is_llama_cpp

    @property
    def given(self) -> tuple[str, ...]:
        """What the operator calls its model besides."""
        return self._options.aliases

    @property
    def told(self) -> tuple[str, ...]:
        """What it calls its model itself, as it last told."""
        return tuple(name for model in self.listed for name in model.names)

    @property
    def slot_count(self) -> int:
        """The slots that the scheduler was last told of."""
        return self._reported.slots if self._reported is not None else 0

    @property
    def is_quarantined(self) -> bool:
        return self._quarantine is not None

    @property
    def standing(self) -> tuple[State, str]:
        """Its state as the scheduler is told, and why."""
        if self._quarantine is not None and self.state in {State.READY, State.DEGRADED}:
            return self._quarantine
        return self.state, self.why

    @property
    def outside(self) -> int:
        """Slots that seem to be busy with work that is not ours, or not any more."""
        return self._outside + self.zombies.slots

    @property
    def kv_pool_tokens(self) -> int | None:
        """The tokens that its slots share, None if they do not; as the scheduler was told."""
        return self._reported.kv_pool_tokens if self._reported is not None else None

    @property
    def sharing(self) -> Sharing:
        """Whether its slots share their context, and how that is known."""
        return self._kv.sharing

    @property
    def has_slots(self) -> bool:
        """Whether its slots can be looked at, as far as is known."""
        return self._has_slots

    @property
    def is_sleeping(self) -> bool:
        return self.props is not None and bool(self.props.is_sleeping)

    @property
    def may_load(self) -> bool:
        """Whether a request may have to wait until it has loaded a model."""
        return self.is_sleeping or not self.backend.is_awake

    async def wait_fresh_slots(self, timeout_seconds: float) -> None:
        """Have `/slots` asked again if what we know is older than an interval; wait a little."""
        age = self._loop.time() - self._slots_at
        is_fresh = age < self._options.interval_seconds
        if is_fresh or self.is_sleeping or not self._has_slots or not self.backend.is_awake:
            return
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._wanted.add(waiter)
        self.poke()
        try:
            async with asyncio.timeout(timeout_seconds):
                await waiter
        except TimeoutError:
            pass
        finally:
            self._wanted.discard(waiter)

    # Looking.

    async def _notice(self) -> tuple[Signal, str] | None:
        began = self._loop.time()
        try:
            return await self._look()
        except BackendTimeoutError as error:
            # It may be busy with what it does for us, and not answer anything else.
            is_heard = self.backend.heard_at > began
            return None if is_heard else (Signal.SILENT, str(error))
        except UnreachableError as error:
            return Signal.UNREACHABLE, str(error)
        except BackendError as error:
            return Signal.UNWELL, str(error)

    async def _look(self) -> tuple[Signal, str] | None:
        """Ask what is due; None where the slots are wanted and it is too early to ask for them."""
        with self.asked.asking_health():
            health = await self.backend.health()
        if health.state is HealthState.LOADING:
            return Signal.LOADING, "it loads its model"
        if health.state is HealthState.ERROR:
            return Signal.UNWELL, "its /health reports an error"
        now = self._loop.time()
        # Somebody wants to see the slots: asking for them would wake a server that sleeps by now.
        is_old = now - self._props_at >= PROPS_INTERVAL_SECONDS or bool(self._wanted)
        if self.props is None or is_old:
            await self._read_props()
            await self._read_models()
            self._props_at = now
        elif self.is_router:
            await self._read_models()
        is_too_early = now - self._slots_at < self._options.interval_seconds - EARLY_SECONDS
        is_shallow = self._wants_slots() and is_too_early
        if self._wants_slots() and not is_too_early:
            await self._read_slots()
        elif self.is_sleeping or not self.backend.is_awake:
            self._wake_wanted()
        if now - self._metrics_at >= METRICS_INTERVAL_SECONDS:
            self._metrics_at = now
            await self._read_metrics()
        return None if is_shallow else (Signal.ANSWERED, "ok")

    async def _read_props(self) -> None:
        try:
            self.props = await self.backend.props()
        except Unsupported:
            self.props = Props()
        # A server that was restarted with other flags may have other endpoints.  A router has
        # none of its own: it would load the model that is named.
        is_router = self.is_router = self.view is not None and self.props.role == "router"
        self._kv.sized(self.props.slots or 0, self.props.ctx_per_slot)
        self._has_slots = self.props.endpoint_slots is not False and not is_router
        if self.is_other_make:
            self._has_slots = False
        self._has_metrics = self.props.endpoint_metrics is not False and not is_router

    async def _read_models(self) -> None:
        with suppress(Unsupported, NotAuthorizedError, BrokenAnswerError):
            self.listed = await self.backend.models() or self.listed

    async def _read_slots(self) -> None:
        sent_at = self._slots_at = self._loop.time()
        try:
            with self.asked.asking_slots():
                self.slots = await self.backend.slots()
        except (Unsupported, NotAuthorizedError):
            self._has_slots = False
        else:
            self._slots_at = self._loop.time()
            self.asked.looked(self.slots, sent_at)
            processing = sum(slot.is_processing for slot in self.slots)
            self._reconcile(processing, sent_at)
            self._kv.looked(self.slots, is_all_ours=self._is_all_ours(processing))
        self._wake_wanted()

    async def _read_metrics(self) -> None:
        if not self._has_metrics:
            self._listener.backend_metrics(self.backend.name, None)
            return
        sent_at = self._loop.time()
        try:
            text = await self.backend.metrics()
        except (Unsupported, NotAuthorizedError):
            self._has_metrics = False
            text = None
        self._listener.backend_metrics(self.backend.name, text)
        if text is not None and not self._has_slots:
            processing = requests_processing(text)
            if processing is not None:
                self._reconcile(processing, sent_at)

    def _is_all_ours(self, processing: int) -> bool:
        """Whether only requests of ours run there, none in several slots."""
        books = self._driver.books(self.backend.name)
        leases = [*books.running.values(), *books.settling.values()]
        return processing <= books.width and all(entry.width == 1 for entry in leases)

    def _wants_slots(self) -> bool:
        if not self._has_slots or self.is_sleeping or not self.backend.is_awake:
            return False
        books = self._driver.books(self.backend.name)
        # One that did not answer must answer this too before it is trusted.
        is_new = self._slots_at == -inf or self.state is State.DOWN
        is_doubtful = is_new or self.is_quarantined
        return bool(self._wanted or books.width or self.outside or is_doubtful)

    # Correcting the books.

    def _reconcile(self, processing: int, sent_at: float) -> None:
        """Compare the slots that the backend says are busy with those that we hold.

        What it says is at most as new as its last batch, so it may miss a request that has just
        begun.  Hence only leases whose response head had come before we asked count as surely
        seen, and whatever is busy beyond them may be one of those that we closed.
        """
        books = self._driver.books(self.backend.name)
        seen = sum(
            entry.width
            for entry in books.running.values()
            if entry.started_at is not None and entry.started_at < sent_at
        )
        processing = self.zombies.looked(processing, seen)
        processing -= self._take_over(books, processing - seen - self._outside, sent_at)
        self._settle(books, max(0, processing - seen - self._outside), sent_at)
        self._find_outside(books, processing)

    def _take_over(self, books: DeploymentBooks, busy: int, sent_at: float) -> int:
        """Take slots for zombies that will not come free in time; return how many."""
        before = self.zombies.slots
        taken = self.zombies.take_over(books, busy, sent_at)
        if taken:
            self._report()  # nobody may get these slots meanwhile
        for lease in taken:
            self._driver.settled(self.backend.name, lease)
        return self.zombies.slots - before

    def _settle(self, books: DeploymentBooks, still_busy: int, sent_at: float) -> None:
        closed = [entry for entry in books.settling.values() if _may_settle(entry, sent_at)]
        free = sum(entry.width for entry in closed) - still_busy
        for entry in closed:
            if entry.width <= free:
                free -= entry.width
                self._driver.settled(self.backend.name, entry.lease)

    def _find_outside(self, books: DeploymentBooks, processing: int) -> None:
        # Twice in a row, and beyond the most that we held since the look before: a request that
        # has just ended must not be taken for somebody else's.
        peak = books.take_peak()
        now = max(0, processing - max(peak, self._peak_before))
        self._outside = min(now, self._outside_before)
        self._outside_before, self._peak_before = now, peak

    def _settle_blindly(self) -> None:
        is_gone = self._health.is_gone
        if self._has_slots and self.backend.is_awake and not is_gone:
            return
        # A server that is down or loads anew has no slot busy with what we closed.
        patience = 0.0 if is_gone else BLIND_SETTLE_SECONDS
        now = self._loop.time()
        for entry in list(self._driver.books(self.backend.name).settling.values()):
            if entry.closed_at is not None and now - entry.closed_at >= patience:
                self._driver.settled(self.backend.name, entry.lease)

    # Judging and telling.

    def _judge(self, signal: Signal, why: str, since: float = inf) -> None:
        health = self._health
        before = health.state, health.is_ejected
        if self._is_our_restart(signal):
            signal, why = Signal.RESTARTING, RESTARTING
        health.note(signal, why, self._loop.time(), since=since)
        if (health.state, health.is_ejected) == before:
            return
        if health.is_gone:
            self._outside = self._outside_before = 0
            self.zombies.forget()
            self.props = None
            self._kv.restarted()
        self._report()

    def _is_our_restart(self, signal: Signal) -> bool:
        if signal is Signal.UNREACHABLE:
            return self.is_supervised or self.is_restarting
        return self.is_restarting and signal in {Signal.UNWELL, Signal.SILENT}

    def _show(self) -> None:
        """Keep what is known of a router where its models look for it."""
        view = self.view
        if view is None:
            return
        view.trouble = "" if self.state is State.READY else self.why
        if self.props is not None and self.is_router:
            view.room, view.loads = self.props.room, self.props.loads
            view.models = {model.id: model for model in self.listed}

    def _report(self) -> None:
        if self.is_router:
            return
        slots = self._count_slots()
        report = DeploymentReport(
            id=self.backend.name,
            model=self.model,
            slots=slots,
            state=self.standing[0],
            ctx_per_slot=self.props.ctx_per_slot if self.props is not None else None,
            outside=self.outside,
            kv_pool_tokens=self._kv.tokens(slots),
            restart_grace=self._options.restart_grace,
            is_ejected=self._health.is_ejected and not self.is_quarantined,
            residence=self.backend.residence,
        )
        if report != self._reported:
            self._reported = report
            self._listener.backend_changed(self.backend.name, report, self.standing[1])
            self._driver.report(report)
        if report.kv_pool_tokens is not None and self._sharing is not self._kv.sharing:
            self._sharing = self._kv.sharing
            self._listener.backend_shares(self.backend.name, report, self._sharing)

    def _count_slots(self) -> int:
        """Believe the server; a configured number only lowers it, or stands in where it is mum."""
        if self._health.is_gone and self._reported is not None:
            return self._reported.slots  # it says nothing now: what it said last holds
        said = self.props.slots if self.props is not None else None
        if said is None:
            said = len(self.slots) or None
        if said is None:
            return self._options.slots or 1
        return min(said, self._options.slots or said)

    def _wake_wanted(self) -> None:
        for waiter in self._wanted:
            if not waiter.done():
                waiter.set_result(None)

    # Resting.

    async def _rest(self) -> None:
        interval = self._options.interval_seconds
        try:
            async with asyncio.timeout(interval):
                await self._poked.wait()
        except TimeoutError:
            pass
        self._poked.clear()
        is_alarmed, self._is_alarmed = self._is_alarmed, False
        # Poked awake, perhaps too early to ask for the slots again: keep the interval.
        early = self._slots_at + interval - self._loop.time()
        if early > 0 and not is_alarmed and self._driver.books(self.backend.name).settling:
            await asyncio.sleep(early)


def _may_settle(entry: RunningLease, sent_at: float) -> bool:
    if entry.closed_at is None or entry.closed_at > sent_at:
        return False
    return entry.started_at is not None or sent_at - entry.closed_at >= UNSTARTED_SETTLE_SECONDS
