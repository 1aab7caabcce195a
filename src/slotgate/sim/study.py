"""Several rehearsals of one setting that differ in their seed, and what they gave together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slotgate.load.backoff import ClientKind
from slotgate.sim.clients import back_off_of
from slotgate.sim.rehearsal import rehearse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from slotgate.load.dice import Dice
    from slotgate.load.workloads import Workload
    from slotgate.sim.rehearsal import MakesFront, Rehearsal
    from slotgate.slotsim import ServerSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What is rehearsed: `draw` makes a workload, `make_front` sets up a policy.

    `client` is how refused clients behave, in workloads that say nothing of it themselves.
    """

    draw: Callable[[Dice], Workload]
    make_front: Callable[[Dice], MakesFront]
    specs: Sequence[ServerSpec]
    client: ClientKind = ClientKind.NONE
    stopwatch: Callable[[], float] | None = None

    def run(self, dice: Dice) -> Rehearsal:
        """Rehearse once.  Policies get the same load from the same dice: it is drawn first."""
        workload = self.draw(dice)
        kind = self.client
        if workload.retries and kind is ClientKind.NONE:
            kind = ClientKind.OPENAI
        return rehearse(
            workload,
            self.specs,
            self.make_front(dice),
            back_off=back_off_of(kind, dice),
            stopwatch=self.stopwatch,
        )
