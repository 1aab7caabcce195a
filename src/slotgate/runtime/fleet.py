"""The backends and their probes, and which of them serves which model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.core.deployment import State

if TYPE_CHECKING:
    from slotgate.backends.llama_server import LlamaServer
    from slotgate.runtime.driver import Driver
    from slotgate.runtime.probes import Probe


class Fleet:
    """Every backend by its name.  Only asks; what a probe learns goes to the scheduler."""

    def __init__(self, driver: Driver) -> None:
        self.backends: dict[str, LlamaServer] = {}
        self.probes: dict[str, Probe] = {}
        self._driver = driver

    def add(self, probe: Probe) -> None:
        self.backends[probe.backend.name] = probe.backend
        self.probes[probe.backend.name] = probe

    def resolve(self, model: str | None) -> str | None:
        """Return the pool that serves a model, None if none does.

        Where all backends serve one model, any name will do, as with llama-server itself.
        """
        pools = {probe.model for probe in self.probes.values()}
        if len(pools) == 1:
            return next(iter(pools))
        return model if model in pools else None

    def any_backend(self, model: str | None) -> LlamaServer | None:
        """Return a backend of the pool for a request that takes no slot; ready ones first."""
        mine = [probe for probe in self.probes.values() if model is None or probe.model == model]
        usable = [probe for probe in mine if probe.standing[0] is not State.DOWN]
        usable.sort(key=lambda probe: probe.standing[0] is not State.READY)
        return usable[0].backend if usable else None

    def largest_context(self, model: str) -> int | None:
        """Return the most tokens that a slot of the pool holds, None while any is unknown."""
        known = [
            probe.props.ctx_per_slot if probe.props is not None else None
            for probe in self.probes.values()
            if probe.model == model
        ]
        contexts = [context for context in known if context is not None]
        return max(contexts) if contexts and len(contexts) == len(known) else None

    def contexts(self, model: str) -> frozenset[int]:
        """Return how many tokens the pool's slots hold, each number once."""
        return frozenset(
            probe.props.ctx_per_slot
            for probe in self.probes.values()
            if probe.model == model and probe.props is not None and probe.props.ctx_per_slot
        )

    def kv_pool_tokens(self, model: str) -> int | None:
        """Return the smallest pool that the slots of a backend share; None where none share any."""
        pools = (probe.kv_pool_tokens for probe in self.probes.values() if probe.model == model)
        return min((tokens for tokens in pools if tokens is not None), default=None)

    def most_slots(self, model: str) -> int | None:
        """Return the slots of the pool's largest backend, None while none is known."""
        slots = [
            probe.slot_count
            for probe in self.probes.values()
            if probe.model == model and probe.props is not None
        ]
        return max(slots, default=None)

    def is_busy(self) -> bool:
        """Whether a newcomer would probably have to wait."""
        counts = self._driver.counts()
        return counts.waiting > 0 or counts.idle == 0
