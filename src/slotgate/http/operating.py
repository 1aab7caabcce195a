"""What the operator does, whoever asks for it: each act is checked, carried out, and logged once.

Everything here is synchronous, so that no two acts can mix.  Who asks (`by`) is `admin` for the
API and the command line, `signal` for SIGHUP.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slotgate.config.changes import adopt, compare
from slotgate.config.limits import limits_of, policies_of
from slotgate.core.deployment import State
from slotgate.errors import ConfigError, ConflictError, UnknownNameError
from slotgate.http.auth import Keyring
from slotgate.runtime.driver import Verb

if TYPE_CHECKING:
    from collections.abc import Callable

    from slotgate.config import Settings
    from slotgate.config.changes import Changes
    from slotgate.core.snapshot import DeploymentView
    from slotgate.runtime.driver import Driver
    from slotgate.runtime.journal import Journal
    from slotgate.runtime.roster import Roster


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloaded:
    """What a reload has changed, and what is allowed but unwise in the new settings."""

    changes: Changes
    warnings: tuple[str, ...]


class Operator:
    """The operator's verbs.  `settings` are those in force."""

    def __init__(
        self,
        *,
        settings: Settings,
        driver: Driver,
        roster: Roster,
        journal: Journal,
        read_settings: Callable[[], Settings] | None,
    ) -> None:
        self.settings = settings
        self._driver = driver
        self._roster = roster
        self._journal = journal
        self._read_settings = read_settings
        # Called with the new settings, and the keys that go with them.
        self.reload_hooks: list[Callable[[Settings, Keyring], None]] = []

    # Backends.

    def models_of(self, name: str) -> list[str]:
        """Return the backends that are a router's models; of any other, itself."""
        return self._roster.models_of(name)

    def hold(self, name: str, verb: Verb, *, by: str) -> None:
        """Pause, drain, disable, resume or enable a backend, or all models of a router.

        Raises UnknownNameError, and ConflictError where the verb has no meaning: for a backend
        that is being removed, and `resume` for a disabled one.
        """
        if self._roster.hold(name, verb):
            self._journal.operated(verb, name, by=by, result="its models")
            return
        before = self.backend(name)
        if before.is_removed:
            raise ConflictError(
                f"{name} is being removed: it ends what runs there and takes nothing"
            )
        if verb is Verb.RESUME and before.hold is State.DOWN:
            raise ConflictError(f"{name} is disabled, which `resume` does not undo; `enable` does")
        self._driver.hold(name, verb)
        after = self.backend(name)
        self._journal.operated(verb, name, by=by, result=after.hold or "in use")

    def backend(self, name: str) -> DeploymentView:
        """Return a backend as it is now.  Raises UnknownNameError, naming those that there are."""
        snapshot = self._driver.snapshot()
        try:
            return snapshot.deployment(name)
        except KeyError:
            names = ", ".join(view.id for view in snapshot.deployments)
            raise UnknownNameError(f"there is no backend {name!r}; there are: {names}") from None

    # Tickets.

    def kill(self, ticket_id: str, *, by: str) -> None:
        """End a request, whether it waits or runs.  Raises UnknownNameError."""
        if not self._driver.kill(ticket_id):
            raise UnknownNameError(f"no ticket {ticket_id!r} waits or runs (any more)")
        self._journal.operated("kill", ticket_id, by=by, result="killed")

    # Everything.

    def reload(self, *, by: str) -> Reloaded:
        """Read the configuration anew and go by it; nothing changes unless all of it is good.

        Raises ConfigError with every fault, and ConflictError where there is no file, or the
        gateway is stopping.
        """
        try:
            wanted = self._read()
            settings = adopt(self.settings, wanted)
        except (ConfigError, ConflictError) as error:
            self._journal.reload_failed(str(error), by=by)
            raise
        changes = compare(self.settings, wanted)
        self._apply(settings)
        self._journal.reloaded(changes, by=by, warnings=settings.warnings)
        return Reloaded(changes=changes, warnings=settings.warnings)

    def reload_on_signal(self) -> None:
        """Reload; what is wrong is in the log only."""
        with contextlib.suppress(ConfigError, ConflictError):  # logged already
            self.reload(by="signal")

    def _read(self) -> Settings:
        if self._read_settings is None:
            raise ConflictError(
                "the gateway was started without a file: there is nothing to reload"
            )
        if self._driver.is_draining:
            raise ConflictError("the gateway is shutting down")
        return self._read_settings()

    def _apply(self, settings: Settings) -> None:
        keyring = Keyring.from_settings(settings)
        self._roster.change(settings.backends)
        self._driver.reconfigure(limits_of(settings), policies_of(settings.scheduling))
        self.settings = settings
        for hook in self.reload_hooks:
            hook(settings, keyring)
