"""How a plain balancer spreads requests over servers, at once and for good.

Each is early binding: a request is given to a server when it comes, and waits there if it must,
while a slot of another may come free.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slotgate.core.clock import Dice
    from slotgate.sim.requests import Request


class Spread(Protocol):
    """Chooses a server for a newcomer."""

    def choose(self, request: Request, loads: Sequence[int]) -> int:
        """Return the place of a server; `loads` are the requests that each has, running or not."""


class InTurn:
    """Round robin."""

    def choose(self, request: Request, loads: Sequence[int]) -> int:
        return request.number % len(loads)


class AtRandom:
    """Each server with the same chance."""

    def __init__(self, dice: Dice) -> None:
        self._dice = dice

    def choose(self, request: Request, loads: Sequence[int]) -> int:
        del request
        return int(self._dice.random() * len(loads))


class TwoChoices(AtRandom):
    """The less loaded of two that are drawn: what balancers do that do not know each other."""

    @override
    def choose(self, request: Request, loads: Sequence[int]) -> int:
        drawn = super().choose(request, loads), super().choose(request, loads)
        return min(drawn, key=loads.__getitem__)


class Shortest(AtRandom):
    """The least loaded of all; join the shortest queue."""

    @override
    def choose(self, request: Request, loads: Sequence[int]) -> int:
        least = min(loads)
        equals = [place for place, load in enumerate(loads) if load == least]
        return equals[super().choose(request, equals)]


class Sticky(Shortest):
    """Where the session was before, whatever waits there; its first request the least loaded."""

    def __init__(self, dice: Dice) -> None:
        super().__init__(dice)
        self._places: dict[str, int] = {}

    @override
    def choose(self, request: Request, loads: Sequence[int]) -> int:
        session = request.arrival.session
        place = self._places.get(session) if session else None
        if place is None:
            place = self._places[session] = super().choose(request, loads)
        return place
