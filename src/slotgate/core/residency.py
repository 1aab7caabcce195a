"""Turns of models that do not fit in memory together.

A router (`llama-server --models-dir`) holds at most so many of its models at once, here its
*seats*.  Asked for another, it unloads the one that was used least recently, as soon as nothing
runs on that: which may be never while a model is busy, and may be a load for each request while two
are asked for in turn.  So each model takes its turn:

Rule 1: only a model that has a seat is asked for.  The tickets of one without wait.
Rule 2: a seat is taken until its model's last lease has ended.  So the router is never asked for
        more models than it holds, and what it unloads has nothing running.
Rule 3: whoever waits longest for a seat gets the next one, and nobody overtakes it.
Rule 4: a model keeps its seat while nobody else needs it.  Then it gives it up once it is idle, at
        the latest when its turn is over: from then on it gets nothing new, and what runs may end.
Rule 5: a turn begins with the first answer, and is at least as long as loading took, so that a
        router does not spend more time on loading than on answers.  A model that is idle is waited
        for as long as it would take to bring it back, though never for longer than a second: who
        sends one request after the other is not unloaded between them.

Where all models fit, each has a seat of its own and none of this happens.
"""

from __future__ import annotations

from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from slotgate.core.deployment import Residence
    from slotgate.core.pool import SlotPool

# The longest time for which an idle model keeps its seat from others.
LINGER_SECONDS = 1.0
# A seat of which nobody made use at once, as whoever waits may not run yet, goes to the next.
UNUSED_SECONDS = 0.05


class Seat:
    """A model of a router: whether it may be asked for, and since when.

    `wanted_since` is since when somebody waits for it while it has no seat, `answered_at` when its
    turn began, `load_seconds` how long it took to bring it in the last time (0: unknown).
    """

    __slots__ = (
        "_was_away",
        "answered_at",
        "is_loaded",
        "is_open",
        "load_seconds",
        "opened_at",
        "pool",
        "wanted_since",
    )

    def __init__(self, pool: SlotPool) -> None:
        self.pool = pool
        self.is_open = self.is_loaded = self._was_away = False
        self.opened_at = -inf
        self.wanted_since: float | None = None
        self.answered_at: float | None = None
        self.load_seconds = 0.0

    def open(self, now: float) -> None:
        """Let it be asked for."""
        self.is_open, self.opened_at = True, now
        self.wanted_since = self.answered_at = None
        self._was_away = not self.is_loaded
        self.pool.sit(self)

    def close(self) -> None:
        """Let it not be asked for any more; what runs may end."""
        self.is_open = False
        self.pool.sit(self)

    def answered(self, now: float) -> None:
        """Note a first token; the first of a turn tells how long loading took."""
        if self.answered_at is None:
            self.answered_at = now
            if self._was_away:
                self.load_seconds = now - self.opened_at

    def has_loaded_for(self, since: float) -> bool:
        """Whether what was granted then had to wait until the model was loaded."""
        began = self.answered_at
        return self._was_away and (began is None or self.opened_at <= since < began)

    @property
    def is_taken(self) -> bool:
        """Whether the router may have to hold the model for us."""
        return self.is_open or not self.pool.is_empty

    def yields_at(self, turn_seconds: float) -> float:
        """Return from when on it gives up its seat to who needs it."""
        pool = self.pool
        if not pool.usable:
            return -inf  # it can serve nobody
        turn = max(turn_seconds, self.load_seconds)
        ends = inf if self.answered_at is None else self.answered_at + turn
        if not pool.is_empty:
            return ends
        if pool.begun_at < self.opened_at:
            return self.opened_at + UNUSED_SECONDS
        return min(ends, pool.ended_at + min(self.load_seconds, LINGER_SECONDS))

    def is_sought_by(self, moment: float) -> bool:
        """Whether somebody waits for it while it has no seat, since then or before."""
        return self.wanted_since is not None and self.wanted_since <= moment

    def frees_in(self, now: float, turn_seconds: float) -> float:
        """Return how long it will still be asked for, if others wait, as far as is known."""
        if not self.is_open:
            return 0.0
        at = self.yields_at(turn_seconds)
        return self.loads_for(now) + turn_seconds if at == inf else max(0.0, at - now)

    def loads_for(self, now: float) -> float:
        """Return how long it will still take to load, as far as is known; 0 if it answers."""
        if not self.is_open:
            return 0.0 if self.is_loaded else self.load_seconds
        if self.answered_at is not None or not self._was_away:
            return 0.0
        return max(0.0, self.opened_at + self.load_seconds - now)


_WISH = attrgetter("wanted_since")
_LAST_USE = attrgetter("pool.begun_at")
_OPENED = attrgetter("opened_at")


class Router:
    """The models of one router, which holds `room` of them at once (0: all)."""

    def __init__(self) -> None:
        self.room = 0
        # Deployment id -> its seat; one that was removed stays until its last lease has ended.
        self.seats: dict[str, Seat] = {}
        # When somebody will give up a seat that another needs.
        self.due = inf

    @property
    def is_bounded(self) -> bool:
        """Whether its models have to take turns."""
        return 0 < self.room < len(self.seats)

    def rearrange(
        self, now: float, wants: Callable[[SlotPool], bool], turn_seconds: float
    ) -> list[SlotPool]:
        """Give seats to those that want them; return whose tickets may run from now on."""
        self.due = inf
        for seat in [seat for seat in self.seats.values() if seat.pool.is_gone]:
            del self.seats[seat.pool.id]
        if not self.is_bounded:
            return list(self._open([s for s in self.seats.values() if not s.is_open], now))
        for seat in sorted(self._opened(), key=_LAST_USE)[: max(0, self._surplus)]:
            seat.close()  # it holds fewer than before
        seekers = self._seekers(now, wants)
        return list(self._open(self._seated(seekers, now, turn_seconds), now))

    def _open(self, seats: Iterable[Seat], now: float) -> Iterator[SlotPool]:
        for seat in seats:
            seat.open(now)
            yield seat.pool

    @property
    def _surplus(self) -> int:
        return len(self._opened()) - self.room

    def _opened(self) -> list[Seat]:
        return [seat for seat in self.seats.values() if seat.is_open]

    def _seekers(self, now: float, wants: Callable[[SlotPool], bool]) -> list[Seat]:
        """Return who needs a seat, the longest first."""
        seekers = []
        for seat in self.seats.values():
            if seat.is_open or not wants(seat.pool):
                seat.wanted_since = None
            else:
                seat.wanted_since = now if seat.wanted_since is None else seat.wanted_since
                seekers.append(seat)
        return sorted(seekers, key=_WISH)

    def _seated(self, seekers: list[Seat], now: float, turn_seconds: float) -> Iterator[Seat]:
        """Yield the seekers that get a seat now, and have others give theirs up."""
        for place, seeker in enumerate(seekers):
            if self._others(seeker) >= self.room:
                self._make_room(len(seekers) - place, now, turn_seconds)
            if self._others(seeker) >= self.room:
                return
            yield seeker

    def _others(self, seeker: Seat) -> int:
        return sum(seat.is_taken for seat in self.seats.values() if seat is not seeker)

    def _make_room(self, needed: int, now: float, turn_seconds: float) -> None:
        """Close seats whose time has come, as long as more are needed than come free."""
        yielding = {seat: seat.yields_at(turn_seconds) for seat in self._opened()}
        over = [seat for seat, at in yielding.items() if at <= now]
        # The idle first, as the router does: the one that was used least recently.
        idle = sorted((seat for seat in over if seat.pool.is_empty), key=_LAST_USE)
        busy = sorted((seat for seat in over if not seat.pool.is_empty), key=_OPENED)
        for seat in (*idle, *busy):
            if self.room - len(self._opened()) >= needed:
                break
            seat.close()
        self.due = min((at for at in yielding.values() if at > now), default=inf)

    def wait(
        self, seat: Seat, now: float, rest: Callable[[SlotPool], float], turn_seconds: float
    ) -> float:
        """Return when a model without a seat will probably get one, in seconds."""
        since = now if seat.wanted_since is None else seat.wanted_since
        others = [other for other in self.seats.values() if other is not seat]
        ahead = sum(other.is_sought_by(since) for other in others)
        taken = [other for other in others if other.is_taken]
        frees = [max(other.frees_in(now, turn_seconds), rest(other.pool)) for other in taken]
        frees += [0.0] * (self.room - len(frees))
        rounds, place = divmod(ahead, self.room)
        return sorted(frees)[place] + rounds * turn_seconds


class Residency:
    """All routers by name, and the seat of each deployment that belongs to one."""

    def __init__(self, turn_seconds: float) -> None:
        self.turn_seconds = turn_seconds
        self._routers: dict[str, Router] = {}

    @property
    def has_routers(self) -> bool:
        """Whether any deployment belongs to a router."""
        return bool(self._routers)

    def told(self, pool: SlotPool, residence: Residence | None) -> None:
        """Take over where a deployment lives."""
        seat = pool.seat
        if residence is None:
            if seat is not None:
                self._leave(pool)
            return
        router = self._routers.setdefault(residence.router, Router())
        router.room = residence.room
        if router.seats.get(pool.id) is None or seat is None:
            self._leave(pool)
            seat = router.seats[pool.id] = Seat(pool)
            pool.sit(seat)
        if seat.is_loaded and not residence.is_loaded:
            pool.forget_sessions()
        seat.is_loaded = residence.is_loaded

    def _leave(self, pool: SlotPool) -> None:
        for router in self._routers.values():
            router.seats.pop(pool.id, None)
        pool.sit(None)

    def mates(self, pool: SlotPool) -> Iterator[SlotPool]:
        """Yield the deployments of the same router."""
        for router in self._routers.values():
            if pool.id in router.seats:
                yield from (seat.pool for seat in router.seats.values())

    def rearrange(self, now: float, wants: Callable[[SlotPool], bool]) -> list[SlotPool]:
        """Give seats to those that want them; return whose tickets may run from now on."""
        opened = []
        for router in self._routers.values():
            opened += router.rearrange(now, wants, self.turn_seconds)
        return opened

    def next_due(self) -> float | None:
        """Return when a seat will be given up that another needs."""
        due = min((router.due for router in self._routers.values()), default=inf)
        return None if due == inf else due

    def due(self, now: float) -> Iterator[SlotPool]:
        """Yield the deployments of the routers where that has come."""
        for router in self._routers.values():
            if router.due <= now:
                router.due = inf
                yield from (seat.pool for seat in router.seats.values())

    def wait(self, pool: SlotPool, now: float, rest: Callable[[SlotPool], float]) -> float:
        """Return how long a deployment's tickets wait for its turn and its loading, roughly.

        `rest` tells how long what runs on a deployment will still last.
        """
        seat = pool.seat
        if seat is None:
            return 0.0
        loading = seat.loads_for(now)
        if seat.is_open:
            return loading
        router = next(router for router in self._routers.values() if pool.id in router.seats)
        return loading + router.wait(seat, now, rest, self.turn_seconds)
