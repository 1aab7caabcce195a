"""Workloads by name: who asks for how much, when.

A load is said as a multiple of what the server can do (`capacity`).  The tenants `A` to `D` ask
for different kinds of things, see `TENANTS`; `A` is who misbehaves.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol

from slotgate.errors import ConfigError
from slotgate.load.arrival import Arrival
from slotgate.load.lengths import CHAT, CODE, REASON, SUMM, LengthClass
from slotgate.load.sessions import TURN, Sessions
from slotgate.load.streams import Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from slotgate.load.capacity import Capacity
    from slotgate.load.dice import Dice

TENANTS: Final = {"A": CHAT, "B": CODE, "C": SUMM, "D": REASON}
BURST_SECONDS: Final = 60.0
# Of the load on which a burst comes.
_BASE: Final = 0.7
_CROWD: Final = 100
_STORM_EVERY: Final = 60.0
_STORM_REACH: Final = 10.0
_STORM_SHARE: Final = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Arrivals in order of time, and what a report must know of them.

    `heavy` are the tenants that ask for more than their share, `burst_ended_at` is when a burst
    was over, and `retries` says that refused clients come back as SDKs do.
    """

    name: str
    seconds: float
    arrivals: tuple[Arrival, ...]
    heavy: frozenset[str] | None = None
    burst_ended_at: float | None = None
    retries: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is asked of a workload.

    `load` is a multiple of the capacity, None the workload's own.  `hog_share` is the heavy
    tenant's part of it.  `kinds` has what each tenant asks for; its order is theirs.
    """

    capacity: Capacity
    dice: Dice
    seconds: float = 600.0
    load: float | None = None
    hog_share: float = 0.8
    patience: float = 30.0
    kinds: Mapping[str, LengthClass] = field(default_factory=lambda: TENANTS)
    max_tokens: int | None = None

    def stream(
        self,
        tenant: str,
        load: float | Callable[[float], float],
        *,
        kind: LengthClass | None = None,
        start: float = 0.0,
        end: float | None = None,
    ) -> Stream:
        """The tenant's requests, so many that they cost `load` of the capacity."""
        asked = kind or self.kinds.get(tenant) or self.kinds[self.first]
        cost = self.capacity.cost(asked)
        return Stream(
            tenant=tenant,
            kind=asked,
            rate=(lambda at: load(at) / cost) if callable(load) else (lambda _: load / cost),
            start=start,
            end=self.seconds if end is None else end,
            patience=self.patience,
            max_tokens=self.max_tokens,
        )

    def evenly(
        self,
        load: float,
        tenants: Iterable[str] | None = None,
        *,
        kind: LengthClass | None = None,
    ) -> list[Stream]:
        """Every tenant asks for the same part of the capacity."""
        names = list(self.kinds if tenants is None else tenants)
        return [self.stream(name, load / len(names), kind=kind) for name in names]

    @property
    def first(self) -> str:
        return next(iter(self.kinds))

    @property
    def others(self) -> list[str]:
        return list(self.kinds)[1:]

    @property
    def burst(self) -> tuple[float, float]:
        """From a quarter of the time on, for a minute, or for a quarter of a short time."""
        start = self.seconds / 4
        return start, start + min(BURST_SECONDS, start)


class Source(Protocol):
    """Where arrivals come from."""

    def arrivals(self, dice: Dice) -> Iterator[Arrival]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What a recipe says: the streams, and what is special about them."""

    streams: Sequence[Source]
    heavy: frozenset[str] | None = None
    burst_ended_at: float | None = None
    retries: bool = False
    change: Callable[[Arrival, Dice], Arrival] = lambda arrival, _: arrival


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a named workload is made, and the load that it has unless another is asked for."""

    help: str
    load: float
    draft: Callable[[Plan, float], Draft]


def _steady(plan: Plan, load: float) -> Draft:
    return Draft(streams=plan.evenly(load))


def _burst(plan: Plan, load: float) -> Draft:
    """The first tenant asks for `load` times the capacity, and the others as before."""
    start, end = plan.burst
    burst = plan.stream(plan.first, load, start=start, end=end)
    return Draft(
        streams=[*plan.evenly(_BASE), burst], heavy=frozenset({plan.first}), burst_ended_at=end
    )


def _retry_storm(plan: Plan, load: float) -> Draft:
    return replace(_burst(plan, load), retries=True)


def _hog(plan: Plan, load: float) -> Draft:
    hog = plan.stream(plan.first, load * plan.hog_share)
    others = plan.evenly(load * (1 - plan.hog_share), plan.others)
    return Draft(streams=[hog, *others], heavy=frozenset({plan.first}))


def _unequal(plan: Plan, load: float) -> Draft:
    """Both want more than half; one is made of many short requests, the other of few long ones."""
    short = plan.stream("short", load / 2, kind=CODE)
    long = plan.stream("long", load / 2, kind=REASON)
    return Draft(streams=[short, long], heavy=frozenset({"short", "long"}))


def _on_off(plan: Plan, load: float) -> Draft:
    """The first tenant asks for twice its part for 30 s, then for nothing for 30 s."""
    part = load / len(plan.kinds)
    on_off = plan.stream(plan.first, lambda at: 2 * part if at % 60 < 30 else 0.0)
    others = plan.evenly(load - part, plan.others)
    return Draft(streams=[on_off, *others])


def _flash(plan: Plan, load: float) -> Draft:
    """A hundred tenants that nobody has seen before come at once."""
    start, end = plan.burst
    crowd = [
        plan.stream(f"new{number:03}", load / _CROWD, start=start, end=end)
        for number in range(_CROWD)
    ]
    return Draft(streams=[*plan.evenly(_BASE), *crowd], burst_ended_at=end)


def _disconnects(plan: Plan, load: float) -> Draft:
    """Once a minute most of those that came within the last ten seconds leave at once."""

    def leave(arrival: Arrival, dice: Dice) -> Arrival:
        left = _STORM_EVERY - arrival.at % _STORM_EVERY
        if left > _STORM_REACH or dice.random() > _STORM_SHARE:
            return arrival
        return replace(arrival, leaves_after=left)

    return Draft(streams=plan.evenly(load), change=leave)


def _sessions(plan: Plan, load: float) -> Draft:
    """The load is that of a server which reads each prompt as a whole."""
    streams = plan.evenly(load, kind=TURN)
    return Draft(streams=[Sessions(stream) for stream in streams])


def _slow_readers(plan: Plan, load: float) -> Draft:
    """A quarter of the clients reads five tokens a second."""

    def slow(arrival: Arrival, dice: Dice) -> Arrival:
        return replace(arrival, reading_rate=5.0) if dice.random() < 0.25 else arrival

    return Draft(streams=plan.evenly(load), change=slow)


def _kv_tight(plan: Plan, load: float) -> Draft:
    """Clients name a large bound for their answers, as most do, and use little of it."""
    return Draft(streams=plan.evenly(load), change=lambda a, _: replace(a, max_tokens=4096))


RECIPES: Final = {
    "steady": Recipe("all tenants alike, below the capacity", 0.8, _steady),
    "burst": Recipe("a minute of one tenant's burst on a load of 0.7", 5.0, _burst),
    "overload": Recipe("all tenants alike, above the capacity", 2.0, _steady),
    "hog": Recipe("one tenant asks for most of an overload", 2.4, _hog),
    "unequal": Recipe("short requests of one tenant against long ones", 4.0, _unequal),
    "on-off": Recipe("one tenant comes and goes every 30 s", 1.5, _on_off),
    "flash-crowd": Recipe("a minute of a hundred new tenants on 0.7", 3.0, _flash),
    "retry-storm": Recipe("a burst whose clients come back as SDKs do", 5.0, _retry_storm),
    "disconnects": Recipe("most clients leave together, once a minute", 1.5, _disconnects),
    "slow-readers": Recipe("a quarter of the clients reads slowly", 0.8, _slow_readers),
    "sessions": Recipe(
        "conversations of three to seven turns, each with its answer", 0.8, _sessions
    ),
    "kv-tight": Recipe("large bounds on answers, to overcommit a shared cache", 3.0, _kv_tight),
}


def make_workload(name: str, plan: Plan) -> Workload:
    """Draw the workload; ConfigError if there is none of this name."""
    recipe = RECIPES.get(name)
    if recipe is None:
        raise ConfigError(f"no workload is called {name!r}; there are {', '.join(RECIPES)}")
    draft = recipe.draft(plan, recipe.load if plan.load is None else plan.load)
    drawn = [
        draft.change(arrival, plan.dice)
        for stream in draft.streams
        for arrival in stream.arrivals(plan.dice)
    ]
    return Workload(
        name=name,
        seconds=plan.seconds,
        arrivals=tuple(sorted(drawn, key=lambda arrival: arrival.at)),
        heavy=draft.heavy,
        burst_ended_at=draft.burst_ended_at,
        retries=draft.retries,
    )
