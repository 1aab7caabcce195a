"""A llama-server in router mode, and each of its models as a server of its own.

Rule 1: watching loads nothing and wakes nothing.  The router is asked for its list; a model only
        while that says that it is loaded, and with `autoload=false`, should it be gone by then.
Rule 2: whatever takes no slot loads nothing either: only a request that was admitted may.
Rule 3: a model is asked for by a name that the router knows; a body that has one stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode, urlsplit

from typing_extensions import override

from slotgate.backends.llama_server import LlamaServer, Unsupported
from slotgate.core.deployment import Residence
from slotgate.errors import BrokenAnswerError, UnreachableError
from slotgate.wire import llama_cpp
from slotgate.wire.models import with_model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slotgate.net.client import Client
    from slotgate.wire.models import ListedModel

_LOADED, _UNLOADED = "loaded", "unloaded"
# Its process is there: the router counts it among those that it holds.
_HELD = frozenset({_LOADED, "loading", "sleeping"})


@dataclass(slots=True)
class RouterView:
    """What is known of a router: as whoever watches it saw it last.

    `room` is how many models it holds at once (0: all), `loads` whether it loads what it is asked
    for, and `trouble` why it cannot be asked at all ("": it can).
    """

    name: str
    room: int = 0
    loads: bool = True
    trouble: str = ""
    models: dict[str, ListedModel] = field(default_factory=dict)


class RoutedModel(LlamaServer):
    """One model of a router, whose `id` the router has given it."""

    def __init__(
        self,
        name: str,
        client: Client | None,
        view: RouterView,
        id: str,
        *,
        api_key: str | None = None,
    ) -> None:
        super().__init__(name, client, api_key=api_key)
        self.id = id
        self._view = view
        # What it told while it was loaded.
        self._told = llama_cpp.Props()

    @property
    def listed(self) -> ListedModel | None:
        """The model as the router lists it, None if it does not any more."""
        return self._view.models.get(self.id)

    @property
    def status(self) -> str:
        """The router's word for how the model is."""
        return (self.listed.status if self.listed is not None else None) or _UNLOADED

    @property
    @override
    def is_awake(self) -> bool:
        return self.status == _LOADED

    @property
    @override
    def residence(self) -> Residence:
        view = self._view
        return Residence(router=view.name, room=view.room, is_loaded=self.status in _HELD)

    @override
    async def health(self) -> llama_cpp.Health:
        if self._view.trouble:
            raise UnreachableError(self._view.trouble)
        if self.listed is None:
            raise UnreachableError(f"{self._view.name} does not list it any more")
        if self.status not in _HELD and not self._view.loads:
            raise UnreachableError("it is not loaded, and its router loads nothing by itself")
        return llama_cpp.Health(state=llama_cpp.HealthState.OK)

    @override
    async def props(self) -> llama_cpp.Props:
        if self.is_awake:
            try:
                self._told = llama_cpp.parse_props(await self._ask("/props"))
            except Unsupported:
                pass  # it was unloaded a moment ago
            else:
                return self._told
        slots = self._told.slots or (self.listed.slots if self.listed is not None else None)
        return replace(self._told, slots=slots, is_sleeping=self.status == "sleeping")

    @override
    async def slots(self) -> tuple[llama_cpp.SlotView, ...]:
        return llama_cpp.parse_slots(await self._ask("/slots"))

    @override
    async def metrics(self) -> bytes:
        return await self._ask("/metrics")

    @override
    async def models(self) -> tuple[ListedModel, ...]:
        return () if self.listed is None else (self.listed,)

    @override
    async def count_tokens(
        self, target: str, body: bytes, headers: Sequence[tuple[bytes, bytes]]
    ) -> int:
        if not self.is_awake:
            raise Unsupported(f"{self.name} is not loaded")
        body = self.addressed(body, None)
        return await super().count_tokens(self.free_target(target), body, headers)

    @override
    def addressed(self, body: bytes, named: str | None) -> bytes:
        names = (self.id,) if self.listed is None else self.listed.names
        return body if named in names else with_model(body, self.id, names)

    @override
    def free_target(self, target: str) -> str:
        parts = urlsplit(target)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        query |= {"model": self.id, "autoload": "false"}
        return f"{parts.path}?{urlencode(query)}"

    async def _ask(self, target: str) -> bytes:
        if not self.is_awake:
            raise Unsupported(f"{self.name} is not loaded")
        target = self.free_target(target)
        status, body = await self._get(target)
        if status in {400, 404, 501}:  # unloaded meanwhile, or an endpoint that is off
            raise Unsupported(f"{self.name}: {target} answered {status}")
        if status != 200:
            raise BrokenAnswerError(f"{self.name}: {target} answered {status}")
        return body
