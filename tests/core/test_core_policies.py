"""Rules that are exchanged: other orders, placements and KV budgets plug in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.core.decision import Granted
from slotgate.core.kv_budget import Room
from slotgate.core.limits import Limits, TenantCaps
from slotgate.core.policies import Policies
from slotgate.testing import Script, ready

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slotgate.core.lengths import Lengths
    from slotgate.core.pool import Lease, SlotPool
    from slotgate.core.ticket import Ticket
    from slotgate.core.waiter import Waiter


class LastComeFirst:
    """Another order, as short as can be."""

    def rank(self, waiter: Waiter) -> float:
        return -waiter.number


class LastOne:
    def choose(self, ticket: Ticket, pools: Sequence[SlotPool], lengths: Lengths) -> SlotPool:
        return pools[-1]


class TwoHundredTokens:
    """A budget of input tokens on each deployment, and what is left for output."""

    def fits(self, ticket: Ticket, pool: SlotPool, lengths: Lengths) -> Room | None:
        used = sum(lease.waiter.ticket.input_tokens for lease in pool.running.values())
        left = 200 - used - ticket.input_tokens
        return Room(output_clamp=left) if left >= 0 else None

    def need(self, lease: Lease, lengths: Lengths) -> int:
        return 0


def test_an_order_says_who_is_next() -> None:
    policies = Policies(order=LastComeFirst)
    limits = Limits(tenants={"hog": TenantCaps(max_in_flight=1)})
    Script(ready("left"), limits=limits, policies=policies).run("""
        0  submit a tenant=hog             -> granted a on left
        0  submit b
        0  submit c
        0  submit d tenant=hog
        1  leave a                         -> granted d on left
        2  leave d                         -> granted c on left
        3  leave c                         -> granted b on left
    """)


def test_a_placement_chooses_among_the_deployments_that_fit() -> None:
    policies = Policies(placement=LastOne)
    Script(ready("left", slots=9), ready("right", slots=1), policies=policies).run("""
        0  submit a   -> granted a on right
        0  submit b   -> granted b on left
    """)


def test_a_kv_budget_lets_wait_and_clamps() -> None:
    policies = Policies(kv_budget=TwoHundredTokens)
    script = Script(ready("left", slots=3), policies=policies).run("""
        0  submit a tokens=120   -> granted a on left
        0  submit b tokens=120
        1  leave a               -> granted b on left
    """)
    granted = script.decisions[-1]
    assert isinstance(granted, Granted)
    assert granted.output_clamp == 80


def test_free_slots_without_kv_are_held_for_the_first_in_the_end() -> None:
    policies = Policies(kv_budget=TwoHundredTokens)
    left = ready("left", slots=4, ctx_per_slot=1000)
    script = Script(left, policies=policies, limits=Limits(max_bypass=1)).run("""
        0  submit a tokens=120           -> granted a on left
        0  submit b tokens=120 width=2
        0  submit c tokens=10            -> granted c on left
        0  submit d tokens=10
    """)
    assert script.scheduler.snapshot().deployment("left").held_for == "b"
    script.run("1 leave a -> granted b on left, granted d on left")


def test_where_the_kv_budget_has_no_room_the_next_best_deployment_is_tried() -> None:
    policies = Policies(kv_budget=TwoHundredTokens)
    Script(ready("left", slots=9), ready("right", slots=1), policies=policies).run("""
        0  submit a tokens=150   -> granted a on left
        0  submit b tokens=150   -> granted b on right
        0  submit c tokens=150
        1  leave b               -> granted c on right
    """)
