"""Rules that are exchanged: other orders, placements and KV budgets plug in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slotgate.core.decision import Granted
from slotgate.core.kv_budget import Room
from slotgate.core.limits import Limits, TenantCaps
from slotgate.core.policies import Policies
from slotgate.testing import Script, ready

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from slotgate.core.pool import SlotPool
    from slotgate.core.ticket import Ticket
    from slotgate.core.waiter import Shape, Waiter


class EarliestDeadline:
    """Another order, as short as can be."""

    def __init__(self, is_open: Callable[[str], bool]) -> None:
        self._is_open = is_open
        self._waiters: list[Waiter] = []

    def __len__(self) -> int:
        return len(self._waiters)

    def __iter__(self) -> Iterator[Waiter]:
        return iter(sorted(self._waiters, key=lambda waiter: waiter.ticket.deadline))

    def shapes(self) -> list[Shape]:
        return list({waiter.shape for waiter in self._waiters})

    def join(self, waiter: Waiter) -> None:
        self._waiters.append(waiter)

    def leave(self, waiter: Waiter) -> None:
        self._waiters.remove(waiter)

    def reopen(self, tenant: str) -> bool:
        return any(waiter.ticket.tenant == tenant for waiter in self._waiters)

    def front(self) -> Iterator[Waiter]:
        return (waiter for waiter in self if self._is_open(waiter.ticket.tenant))


class LastOne:
    def choose(self, ticket: Ticket, pools: Sequence[SlotPool]) -> SlotPool:
        return pools[-1]


class TwoHundredTokens:
    """A budget of input tokens on each deployment, and what is left for output."""

    def fits(self, ticket: Ticket, pool: SlotPool) -> Room | None:
        used = sum(lease.waiter.ticket.input_tokens for lease in pool.running.values())
        left = 200 - used - ticket.input_tokens
        return Room(output_clamp=left) if left >= 0 else None


def test_an_order_says_who_is_next() -> None:
    limits = Limits(tenants={"hog": TenantCaps(max_in_flight=1)})
    script = Script(ready("left"), limits=limits, policies=Policies(order=EarliestDeadline))
    script.run("""
        0  submit a tenant=hog             -> granted a on left
        0  submit b within=30
        0  submit c within=20
        0  submit d within=10 tenant=hog
        1  leave a                         -> granted d on left
        2  leave d                         -> granted c on left
        3  deployment left slots=2         -> granted b on left
    """)


def test_a_placement_chooses_among_the_deployments_that_fit() -> None:
    policies = Policies(placement=LastOne())
    Script(ready("left", slots=9), ready("right", slots=1), policies=policies).run("""
        0  submit a   -> granted a on right
        0  submit b   -> granted b on left
    """)


def test_a_kv_budget_lets_wait_and_clamps() -> None:
    policies = Policies(kv_budget=TwoHundredTokens())
    script = Script(ready("left", slots=3), policies=policies).run("""
        0  submit a tokens=120   -> granted a on left
        0  submit b tokens=120
        1  leave a               -> granted b on left
    """)
    granted = script.decisions[-1]
    assert isinstance(granted, Granted)
    assert granted.output_clamp == 80


def test_free_slots_without_kv_are_held_for_the_first_in_the_end() -> None:
    policies = Policies(kv_budget=TwoHundredTokens())
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
    policies = Policies(kv_budget=TwoHundredTokens())
    Script(ready("left", slots=9), ready("right", slots=1), policies=policies).run("""
        0  submit a tokens=150   -> granted a on left
        0  submit b tokens=150   -> granted b on right
        0  submit c tokens=150
        1  leave b               -> granted c on right
    """)
