"""Routers: one backend of the configuration that is a deployment for each of its models.

Whether a server is a router is known once it was looked at.  From then on it is no deployment
itself, and its probe only reads its list: a model that appears there becomes a backend of its own,
`ROUTER/MODEL`, and one that is gone leaves like a backend that is removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from slotgate.config import ServerSettings
from slotgate.runtime.member import Routed, model_settings

if TYPE_CHECKING:
    from slotgate.backends.router import RouterView
    from slotgate.config import Backend
    from slotgate.runtime.driver import Driver, Verb
    from slotgate.runtime.member import Member


class Staff(Protocol):
    """What the roster does when a router, or a model of it, comes, changes or goes."""

    def enter(self, settings: Backend, routed: Routed) -> Member: ...
    def alter(self, member: Member, settings: Backend) -> None: ...
    def leave(self, member: Member) -> None: ...
    def split(self, member: Member) -> None: ...
    def unsplit(self, member: Member) -> None: ...


class Routers:
    """Keeps the models of routers in step with what these list."""

    def __init__(self, staff: Staff, driver: Driver) -> None:
        self._staff = staff
        self._driver = driver
        # Router -> what the operator has last said of it as a whole.
        self._holds: dict[str, Verb] = {}
        # Model's backend -> how its router was, and how it was there, when that was last looked at.
        self._seen: dict[str, tuple[str, str | None]] = {}

    def looked(self, member: Member) -> None:
        """Go by what the look at a server has shown."""
        settings, view = member.settings, member.view
        if view is None or not member.probe.is_router or not isinstance(settings, ServerSettings):
            self.dismiss(member)
            return
        if not member.is_split:
            member.is_split = True
            self._staff.split(member)
        for gone in member.models.keys() - view.models.keys():
            self._leave(member.models.pop(gone))
        for listed in view.models:
            self._keep(member, settings, view, listed)

    def _keep(self, member: Member, settings: ServerSettings, view: RouterView, id: str) -> None:
        own = model_settings(settings, view, id)
        model = member.models.get(id)
        if model is None:
            model = member.models[id] = self._staff.enter(own, Routed(view, id))
            if member.name in self._holds:
                self._driver.hold(model.name, self._holds[member.name])
        elif model.settings != own:
            self._staff.alter(model, own)
        seen = view.trouble, view.models[id].status
        if self._seen.get(model.name) != seen:
            self._seen[model.name] = seen
            model.probe.look_anew()

    def dismiss(self, member: Member) -> None:
        """Let the models of what was a router go."""
        for model in member.models.values():
            self._leave(model)
        member.models.clear()
        if member.is_split:
            member.is_split = False
            self._staff.unsplit(member)

    def forget(self, member: Member) -> None:
        """Let a backend go that is removed, with its models and what the operator said of it."""
        self.dismiss(member)
        self._holds.pop(member.name, None)

    def _leave(self, model: Member) -> None:
        self._seen.pop(model.name, None)
        self._staff.leave(model)

    def hold(self, member: Member, verb: Verb) -> None:
        """Do to all models of a router, and to those that come, what the operator says."""
        self._holds[member.name] = verb
        for model in member.models.values():
            self._driver.hold(model.name, verb)
