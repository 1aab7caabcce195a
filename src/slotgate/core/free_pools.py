"""The deployments of one model that have slots to hand out.

Where they are many, looking at each of them for each request would be most of its cost, and the
best of 64 is hardly worse than the best of 1,000: so of more than 64, a newcomer chooses among 64,
which take turns, and the one that served its session last.  Those that read no long prompt are
listed apart, as in an overload long prompts often wait while slots are free.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from slotgate.core.pool import SlotPool

# So many are enough to choose from.
_ENOUGH = 64
# Sessions whose deployment is remembered: those that were served last.
_MOST_SESSIONS = 100_000


class FreePools:
    """Deployments by place; coming and going is O(1)."""

    __slots__ = ("_homes", "_next", "_places", "_pools", "quiet")

    def __init__(self) -> None:
        self._pools: list[SlotPool] = []
        # Deployment id -> its place in the list.
        self._places: dict[str, int] = {}
        # Those that read no long prompt, by id.
        self.quiet: dict[str, SlotPool] = {}
        # The place from which the next ones are taken.
        self._next = 0
        # Session -> the deployment that served it last; the one served longest ago is first.
        self._homes: dict[str, str] = {}

    def add(self, pool: SlotPool) -> None:
        """List a deployment, if it is not, and note whether it reads a long prompt."""
        if pool.long_reading:
            self.quiet.pop(pool.id, None)
        else:
            self.quiet[pool.id] = pool
        if pool.id not in self._places:
            self._places[pool.id] = len(self._pools)
            self._pools.append(pool)

    def discard(self, pool: SlotPool) -> None:
        """List a deployment no more, if it is; the last one takes its place."""
        place = self._places.pop(pool.id, None)
        if place is None:
            return
        self.quiet.pop(pool.id, None)
        last = self._pools.pop()
        if last is not pool:
            self._pools[place] = last
            self._places[last.id] = place

    def served(self, session: str | None, pool: SlotPool) -> None:
        """Note where a session is served now."""
        if session is not None:
            self._homes.pop(session, None)
            self._homes[session] = pool.id
            if len(self._homes) > _MOST_SESSIONS:
                del self._homes[next(iter(self._homes))]

    @property
    def are_many(self) -> bool:
        """Whether `some` are not all of them."""
        return len(self._pools) > _ENOUGH

    def some(self, session: str | None) -> Sequence[SlotPool]:
        """Return those that a request of the session chooses among."""
        pools = self._pools
        if not self.are_many:
            return pools
        start = self._next % len(pools)
        self._next = end = start + _ENOUGH
        some = pools[start:end] + pools[: max(0, end - len(pools))]
        home = None if session is None else self._places.get(self._homes.get(session, ""))
        if home is not None and pools[home] not in some:
            some.append(pools[home])
        return some

    def __len__(self) -> int:
        return len(self._pools)

    def __iter__(self) -> Iterator[SlotPool]:
        return iter(self._pools)
