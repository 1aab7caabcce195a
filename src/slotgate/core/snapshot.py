"""Immutable pictures of the scheduler: the only way to look inside."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from slotgate.core.deployment import State
    from slotgate.core.pool import Lease, SlotPool
    from slotgate.core.ticket import Ticket
    from slotgate.core.waiter import Waiter


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseView:
    """A lease; it settles if `settles_by` is set, and is free then at the latest."""

    id: str
    ticket: Ticket
    since: float
    settles_by: float | None
    input_tokens: int
    cached_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentView:
    """A deployment.

    `state` is what it can be used for, `reported` what the backend said, `hold` what the operator
    said.  `headroom` is the slots that may be handed out now, `held_for` the id of a wide ticket
    that they are kept for.  Of a router's model, `is_loaded` says whether it is there (None: it is
    no router's), and `awaits_turn` that it must wait for its turn.
    A removed deployment is shown until its last lease has ended.  One that
    was ready, and is down, is expected back until `expected_until`.
    """

    id: str
    model: str
    state: State
    reported: State
    hold: State | None
    is_removed: bool
    slots: int
    outside: int
    headroom: int
    ctx_per_slot: int | None
    kv_pool_tokens: int | None
    kv_reserved: int
    limit: int
    held_for: str | None
    is_loaded: bool | None
    awaits_turn: bool
    expected_until: float | None
    running: tuple[LeaseView, ...]
    settling: tuple[LeaseView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingView:
    """A ticket that waits; `position` counts from 1, among the waiting of its model.

    `first_position` is what it was when it came (0: it did not have to wait, and was taken back).

    `predicted_wait` is in seconds: from its arrival in a snapshot, from now in `waiting_of`.
    """

    ticket: Ticket
    position: int
    first_position: int = 0
    since: float
    bypassed: int
    predicted_wait: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything at one moment: deployments as added, the waiting by model and order."""

    now: float
    is_draining: bool
    deployments: tuple[DeploymentView, ...]
    waiting: tuple[WaitingView, ...]
    waiting_bytes: int

    def deployment(self, deployment_id: str) -> DeploymentView:
        """Return one deployment; KeyError if there is none of that id."""
        for view in self.deployments:
            if view.id == deployment_id:
                return view
        raise KeyError(deployment_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Slots over all deployments: how many there are, may be handed out, are taken; who waits.

    `processing` includes settling leases and work that is not ours.  `idle` and `processing` do
    not add up to `slots` while a deployment with free slots is not ready.
    """

    slots: int
    idle: int
    processing: int
    waiting: int
    waiting_bytes: int


def view_pool(pool: SlotPool, held_for: str | None) -> DeploymentView:
    """Picture a deployment."""
    return DeploymentView(
        id=pool.id,
        model=pool.model,
        state=pool.state,
        reported=pool.reported,
        hold=pool.hold,
        is_removed=pool.is_removed,
        slots=pool.slots,
        outside=pool.outside,
        headroom=pool.headroom,
        ctx_per_slot=pool.ctx_per_slot,
        kv_pool_tokens=pool.kv_pool_tokens,
        kv_reserved=pool.kv_reserved,
        limit=min(pool.limit, pool.slots),
        held_for=held_for,
        is_loaded=None if pool.seat is None else pool.seat.is_loaded,
        awaits_turn=pool.awaits_turn,
        expected_until=pool.expected_until if isfinite(pool.expected_until) else None,
        running=tuple(_view_lease(lease) for lease in pool.running.values()),
        settling=tuple(_view_lease(lease) for lease in pool.settling.values()),
    )


def view_queue(queue: Iterable[Waiter]) -> Iterator[WaitingView]:
    """Picture the queue of one model."""
    for position, waiter in enumerate(queue, start=1):
        yield WaitingView(
            ticket=waiter.ticket,
            position=position,
            first_position=waiter.position,
            since=waiter.since,
            bypassed=waiter.bypassed,
            predicted_wait=waiter.predicted_wait,
        )


def _view_lease(lease: Lease) -> LeaseView:
    return LeaseView(
        id=lease.id,
        ticket=lease.waiter.ticket,
        since=lease.since,
        settles_by=lease.settles_by,
        input_tokens=lease.input_tokens,
        cached_tokens=lease.cached_tokens,
        output_tokens=lease.output_tokens,
    )
