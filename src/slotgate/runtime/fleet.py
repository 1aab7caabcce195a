"""The backends and their probes, and which of them serves which model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.core.deployment import State
from slotgate.runtime import names
from slotgate.wire.models import public_name

if TYPE_CHECKING:
    from slotgate.backends.llama_server import LlamaServer
    from slotgate.runtime.driver import Driver
    from slotgate.runtime.probes import Probe
    from slotgate.wire.models import ListedModel

# What is asked first where any would do.
_BY_TRUST = {State.READY: 0, State.DEGRADED: 1}


class Fleet:
    """Every backend by its name.  Only asks; what a probe learns goes to the scheduler."""

    def __init__(self, driver: Driver) -> None:
        self.backends: dict[str, LlamaServer] = {}
        self.probes: dict[str, Probe] = {}
        # Names of those that were removed and still have requests running.
        self._leaving: set[str] = set()
        self._driver = driver

    def add(self, probe: Probe) -> None:
        """Add a backend, or take another probe and other settings for one that is there."""
        self._leaving.discard(probe.backend.name)
        self.backends[probe.backend.name] = probe.backend
        self.probes[probe.backend.name] = probe

    def retire(self, name: str) -> None:
        """Send nothing more to a backend; what runs there is still to be found by its name."""
        self._leaving.add(name)

    def forget(self, name: str) -> None:
        """Drop what was retired."""
        self._leaving.discard(name)
        del self.backends[name], self.probes[name]

    @property
    def serving(self) -> list[Probe]:
        """The probes of the backends that are not being removed."""
        return [probe for name, probe in self.probes.items() if name not in self._leaving]

    def resolve(self, model: str | None) -> str | None:
        """Return the pool that serves a model, None if none does.

        Where all backends serve one model, any name will do, as with llama-server itself.
        """
        return names.resolve(model, self.serving)

    def models(self) -> list[tuple[str, ListedModel]]:
        """Return the models of all pools, each once, under a name by which it is found."""
        found: dict[str, tuple[str, ListedModel]] = {}
        for probe in self.serving:
            for listed in probe.listed:
                name = self._listed_name(probe, listed)
                found.setdefault(name, (name, listed))
        return list(found.values())

    @property
    def has_several_models(self) -> bool:
        """Whether there is more than one pool."""
        return len({probe.model for probe in self.serving}) > 1

    def name_of(self, model: str) -> str:
        """Return what clients know a pool's model by; "" while no backend of it has told.

        A backend without an alias has its own name for its model.
        """
        told = (probe.told for probe in self.probes.values() if probe.model == model)
        return model or next((public_name(own[0]) for own in told if own), "")

    @staticmethod
    def _listed_name(probe: Probe, listed: ListedModel) -> str:
        return probe.model or public_name(listed.id)

    def any_backend(self, model: str | None) -> LlamaServer | None:
        """Return a backend of the pool for a request that takes no slot; ready ones first."""
        mine = [probe for probe in self.serving if model is None or probe.model == model]
        states = self._driver.states()
        reachable = [probe for probe in mine if probe.backend.is_reachable]
        usable = [(probe, states.get(probe.backend.name, State.STARTING)) for probe in reachable]
        usable = [(probe, state) for probe, state in usable if state is not State.DOWN]
        usable.sort(key=_by_trust)
        return usable[0][0].backend if usable else None

    def largest_context(self, model: str) -> int | None:
        """Return the most tokens that a slot of the pool holds, None while any is unknown."""
        known = [
            probe.props.ctx_per_slot if probe.props is not None else None
            for probe in self.serving
            if probe.model == model
        ]
        contexts = [context for context in known if context is not None]
        return max(contexts) if contexts and len(contexts) == len(known) else None

    def contexts(self, model: str) -> frozenset[int]:
        """Return how many tokens the pool's slots hold, each number once."""
        return frozenset(
            probe.props.ctx_per_slot
            for probe in self.serving
            if probe.model == model and probe.props is not None and probe.props.ctx_per_slot
        )

    def kv_pool_tokens(self, model: str) -> int | None:
        """Return the smallest pool that the slots of a backend share; None where none share any."""
        pools = (probe.kv_pool_tokens for probe in self.serving if probe.model == model)
        return min((tokens for tokens in pools if tokens is not None), default=None)

    def most_slots(self, model: str) -> int | None:
        """Return the slots of the pool's largest backend, None while none is known."""
        slots = [
            probe.slot_count
            for probe in self.serving
            if probe.model == model and probe.props is not None
        ]
        return max(slots, default=None)

    def is_busy(self) -> bool:
        """Whether a newcomer would probably have to wait."""
        counts = self._driver.counts()
        return counts.waiting > 0 or counts.idle == 0


def _by_trust(each: tuple[Probe, State]) -> tuple[bool, int]:
    probe, state = each
    # A router's model that is not loaded would refuse what takes no slot.
    return not probe.backend.is_awake, _BY_TRUST.get(state, len(_BY_TRUST))
