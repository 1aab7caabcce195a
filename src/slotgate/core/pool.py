"""The slots of one deployment: who holds them, and how many may be handed out now.

A lease is *running* from its grant until its ticket leaves, and may then be *settling*: the
upstream is closed, but llama-server may need up to a whole batch to notice, and until then the
slot is not free.  Handing it out early would queue the next request inside llama-server, where
there is no deadline and no leaving.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slotgate.core.deployment import State

if TYPE_CHECKING:
    from slotgate.core.deployment import DeploymentReport
    from slotgate.core.waiter import Shape, Waiter


@dataclass(slots=True, eq=False, kw_only=True)
class Lease:
    """The right to some slots of a deployment, and what has been used by it so far."""

    id: str
    waiter: Waiter
    pool: SlotPool
    since: float
    settles_by: float | None = None
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


class SlotPool:
    """The books of one deployment.

    The number of slots may change at any time.  Lowering it below what is held revokes nothing:
    leases end by themselves, and none starts meanwhile.
    """

    def __init__(self, report: DeploymentReport) -> None:
        self.id = report.id
        # Lease id -> lease, by grant.
        self.running: dict[str, Lease] = {}
        # Lease id -> lease, by the end of their running.
        self.settling: dict[str, Lease] = {}
        self._held_slots = 0
        # The operator's hold: PAUSED, DRAINING or DOWN; None leaves it to the reported state.
        self.hold: State | None = None
        # Whether it has ever said that it is ready, hence how many slots it has.
        self.was_ready = False
        self.update(report)

    # Events.

    def update(self, report: DeploymentReport) -> None:
        """Take over what was learned; what the operator holds stays held."""
        self.model = report.model
        self.slots = report.slots
        self.outside = report.outside
        self.ctx_per_slot = report.ctx_per_slot
        self.reported = report.state
        self.was_ready = self.was_ready or report.state is State.READY
        self.is_removed = False
        self._recount()

    def remove(self) -> None:
        """Serve nothing any more, and start afresh with the next report, if there is one."""
        self.is_removed = True
        self.hold = None
        self.was_ready = False
        self._recount()

    def set_hold(self, hold: State | None) -> None:
        """Put the operator's hold on it, or lift it."""
        self.hold = hold
        self._recount()

    def begin(self, lease: Lease) -> None:
        """Hand out the slots of the lease."""
        self.running[lease.id] = lease
        self._held_slots += lease.waiter.shape.width
        self._recount_headroom()

    def settle(self, lease: Lease) -> None:
        """Stop counting the lease as running, but not yet its slots as free."""
        self.settling[lease.id] = self.running.pop(lease.id)

    def end(self, lease: Lease) -> None:
        """Take the slots of the lease back."""
        (self.running if lease.id in self.running else self.settling).pop(lease.id)
        self._held_slots -= lease.waiter.shape.width
        self._recount_headroom()

    def _recount(self) -> None:
        # What it can be used for now: the operator's word, unless it is down anyway.
        if self.is_removed or self.reported is State.DOWN:
            self.state = State.DOWN
        else:
            self.state = self.reported if self.hold is None else self.hold
        # Slots that are ours to hand out, free or not; none while it serves no newcomers.
        self.usable = self.slots - self.outside if self.state is State.READY else 0
        self._recount_headroom()

    def _recount_headroom(self) -> None:
        # Slots that may be handed out now.
        self.headroom = max(0, self.usable - self._held_slots)

    # Questions.

    @property
    def busy(self) -> int:
        """Slots taken, by whomever."""
        return min(self.slots, self._held_slots + self.outside)

    @property
    def is_empty(self) -> bool:
        """Whether no lease is left, running or settling."""
        return not self.running and not self.settling

    def holds(self, context: int) -> bool:
        """Whether a slot has that much context; an unknown context is taken to be enough."""
        return self.ctx_per_slot is None or context <= self.ctx_per_slot

    def is_made_for(self, shape: Shape) -> bool:
        """Whether the shape is known to fit, were it ready and nobody else there."""
        return self.was_ready and self.may_be_made_for(shape)

    def may_be_made_for(self, shape: Shape) -> bool:
        """Whether nothing that is known of it says that the shape never fits."""
        is_wide_enough = not self.was_ready or self.slots >= shape.width
        return is_wide_enough and self.holds(shape.context)

    def could_fit(self, shape: Shape) -> bool:
        """Whether the shape would fit if all our leases ended."""
        return self.usable >= shape.width and self.holds(shape.context)
