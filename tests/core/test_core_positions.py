"""The position that is told is how many are granted before: under each rule of fairness."""

from __future__ import annotations

import pytest

from slotgate.core.limits import TenantCaps
from slotgate.core.policies import FAIRNESS
from slotgate.core.scheduler import Scheduler
from tests.core.world import World

# How much longer the answers of "large" are.
LENGTHS = {"many": 200, "few": 200, "large": 1000, "one": 200}
WEIGHTS = {"few": TenantCaps(weight=2.0)}
# Who asks, in this order; with two slots, two more run.
ARRIVALS = [*"mmmmmmmm", *"fl" * 4, *"mlmf" * 2, "o", *"mm"]
# What a position may be off by, of 27, and in the mean.  Under `none` only that decides which
# was known when it was told.  The others follow what was charged: a tenant is granted in all slots
# before its first answer costs it anything, and of two whose turns come together, either goes
# first; `drr` besides takes arrivals to be mixed, where turns within a quantum are by arrival.
TOLERANCES = {
    "none": (0.0, 0.0),
    "round_robin": (3.0, 0.6),
    "vtc": (4.0, 1.2),
    "drr": (9.0, 2.5),
    "las": (4.0, 1.5),
}


def told(scheduler: Scheduler) -> dict[str, int]:
    return {view.ticket.id: view.position for t in LENGTHS for view in scheduler.waiting_of(t)}


def busy(fairness: str, order: str = "fifo") -> World:
    """Each tenant has been seen, and what its answers cost is known."""
    world = World(slots=2, fairness=fairness, order=order, caps=WEIGHTS)
    for tenant, length in LENGTHS.items():
        world.teach([length] * 30, tenant)
    for _ in range(2):
        world.submit(200, tenant="runs")
    return world


def arrive(world: World) -> None:
    by_letter = {tenant[0]: tenant for tenant in LENGTHS}
    for letter in ARRIVALS:
        tenant = by_letter[letter]
        world.submit(LENGTHS[tenant], tenant=tenant, bound=LENGTHS[tenant])
    # What is told is at most a quarter of a second old.
    world.run_until(world.clock.now() + 0.3)


def errors(world: World, positions: dict[str, int]) -> list[int]:
    world.run_out()
    waited = [ticket_id for ticket_id in world.grants if ticket_id in positions]
    return [abs(positions[each] - place) for place, each in enumerate(waited, start=1)]


@pytest.mark.parametrize("fairness", sorted(FAIRNESS))
def test_a_position_is_the_number_of_grants_before(fairness: str) -> None:
    world = busy(fairness)
    arrive(world)
    off = errors(world, told(world.scheduler))
    most, mean = TOLERANCES[fairness]
    assert len(off) == len(ARRIVALS)
    assert max(off) <= most
    assert sum(off) / len(off) <= mean


@pytest.mark.parametrize(
    ("order", "expected"), [("fifo", [1, 2, 3, 4, 5, 6]), ("edf", [6, 1, 4, 3, 5, 2])]
)
def test_without_tenants_a_position_is_exact_whatever_the_order(
    order: str, expected: list[int]
) -> None:
    world = busy("none", order)
    tenants = ("many", "few")
    ids = [
        world.submit(200, tenant=tenants[number % 2], within=1000 + within)
        for number, within in enumerate([900, 300, 700, 500, 800, 400])
    ]
    positions = told(world.scheduler)
    assert [positions[ticket_id] for ticket_id in ids] == expected
    assert set(errors(world, positions)) == {0}


@pytest.mark.parametrize("fairness", ["none", "round_robin", "vtc"])
def test_so_is_the_wait_that_is_told(fairness: str) -> None:
    """Two slots, and ten seconds for each answer, whoever asks."""
    world = World(slots=2, fairness=fairness)
    world.teach([200] * 30)
    for _ in range(2):
        world.submit(200, tenant="runs")
    for number in range(12):
        world.submit(200, tenant=("many", "many", "few")[number % 3])
    world.run_until(world.clock.now() + 0.3)
    now = world.clock.now()
    views = [view for tenant in ("many", "few") for view in world.scheduler.waiting_of(tenant)]
    world.run_out()
    for view in views:
        waited = world.grants[view.ticket.id].waited - (now - view.since)
        assert view.predicted_wait == pytest.approx(waited, rel=0.2, abs=10.0)


def test_at_its_cap_a_tenant_waits_for_its_own_and_not_for_the_whole_line() -> None:
    world = World(slots=8, fairness="none", caps={"capped": TenantCaps(max_in_flight=1)})
    world.teach([200] * 30)
    for tenant in ("capped", "capped", *["chat"] * 12, "capped"):
        world.submit(200, tenant=tenant)
    first, second = world.scheduler.waiting_of("capped")
    assert (first.position, second.position) == (1, 7)
    assert second.predicted_wait == pytest.approx(20.0, rel=0.2)


def test_a_grant_tells_where_its_ticket_stood_when_it_came() -> None:
    world = World(slots=1)
    ids = [world.submit(20) for _ in range(4)]
    world.run_out()
    assert [world.grants[ticket_id].position for ticket_id in ids] == [0, 1, 2, 3]
